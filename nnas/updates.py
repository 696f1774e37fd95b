"""One update of network weights: micro-batches, averaging over processes, clipping, decay and the solver's step."""

from hashlib import sha256

import nnabla as nn
import nnabla.functions as F
import numpy as np

from nnas.errors import NnasError, check_number, one_line
from nnas.layers import is_decayed
from nnas.randomness import seed_functions
from nnas.schedules import cosine


class WeightUpdate:
    """Updates the weights that a loss reaches, and leaves all others as they are, their momentum included.

    parameters: {name: variable}. make_solver: a function to a nnabla solver. weight_decay: of weights, not of biases
    and batch normalization. clip_norm: the largest norm of the whole gradient, or None. communicator: of processes that
    share the micro-batches of each update. seed: the run's. schedule: of the learning rate, as in schedules.
    statistics: {name: variable}, the running ones of batch normalization. Each micro-batch is normalized by its own;
    the running ones move once an update, by the mean of what its micro-batches move them by.
    """

    def __init__(
        self,
        parameters,
        make_solver,
        learning_rate,
        weight_decay,
        clip_norm,
        communicator,
        seed,
        schedule=cosine,
        statistics=None,
    ):
        self._learning_rate = check_number("learning_rate", learning_rate, 0, open_below=True)
        self._weight_decay = check_number("weight_decay", weight_decay, 0)
        self._clip_norm = None if clip_norm is None else check_number("clip_norm", clip_norm, 0, open_below=True)
        self._parameters = parameters
        self._communicator = communicator
        self._seed = seed
        # All parameters are registered once: nnabla's solvers forget their states when it is done again.
        self._decayed, self._plain = built_solver(make_solver), built_solver(make_solver)
        for solver, decayed in ((self._decayed, True), (self._plain, False)):
            solver.set_parameters({name: p for name, p in parameters.items() if is_decayed(name) == decayed})
        self._left = set(parameters)  # those of whose gradients something may be left
        self._norm = _GradientNorm(parameters) if self._clip_norm else None
        self._schedule = schedule
        self._statistics = _by_scope(statistics or {}, parameters)
        self.learning_rate(0, 1)

    def learning_rate(self, step, steps):
        """Of a step, counted from 0, of so many in all."""
        try:
            rate = self._schedule(self._learning_rate, step, steps)
        except TypeError as error:
            raise NnasError(f"schedule: {one_line(error)}; it is a function of (base, step, steps)") from None
        return check_number(f"the learning rate of the schedule at step {step} of {steps}", rate, 0)

    def step(self, graph, micro_batches, active, learning_rate, place):
        """Make one update and return {loss, error, further metrics: mean over its samples}.

        micro_batches: (images, labels) of each, or None for one that another process computes. active: names of the
        parameters that the loss reaches. place: of the random functions, as in randomness.
        """
        for name in self._left.union(active):  # a solver's zero_grad visits the parameters of all paths
            self._parameters[name].grad.zero()
        self._left = set(active)
        micro_batches = list(micro_batches)
        figures, weight = [], self._communicator.weight(len(micro_batches))
        moves = self._moves(active) if len(micro_batches) > 1 else None
        for number, micro_batch in enumerate(micro_batches):
            if micro_batch is None:
                continue
            seed_functions(self._seed, *place, number)
            graph.forward(*micro_batch)
            graph.loss.backward(weight, clear_buffer=True)
            figures.append(graph.figures())
            if moves:
                moves.take(weight)
        sums = self._communicator.sum([sum(one[name] for one in figures) for name in figures[0]])
        means = {name: float(total) / len(micro_batches) for name, total in zip(figures[0], sums, strict=True)}
        if not np.isfinite(means["loss"]):
            raise NnasError(f"the loss is {means['loss']} at {_words(place)}; a smaller learning rate may help")
        gradients = [self._parameters[name].grad for name in active]
        # A gradient that nothing was added to is left so: to read it would make the solvers use it.
        self._communicator.average([one for one in gradients if not one.zeroing] + ([moves.total] if moves else []))
        if moves:
            moves.apply()
        if self._norm:
            norm = self._norm(active)
            if not np.isfinite(norm):
                raise NnasError(f"the gradient is {norm} at {_words(place)}; a smaller learning rate may help")
            if norm > self._clip_norm:
                for solver in self._solvers:
                    solver.scale_grad(self._clip_norm / norm)
        self._decayed.weight_decay(self._weight_decay)
        for solver in self._solvers:
            solver.set_learning_rate(learning_rate)
            solver.update()
        return means

    def moves(self, gradients, learning_rate):
        """{name: array}: by how much a step along these gradients, {name: array}, would move the weights.

        Raises NnasError for solvers other than gradient descent with or without momentum."""
        found = {}
        for solver, decay in ((self._decayed, self._weight_decay), (self._plain, 0.0)):
            if solver.name not in ("Sgd", "Momentum"):
                raise NnasError(
                    f"searcher.order=2 looks a step of Sgd or Momentum ahead, and search.solver is {solver.name}; add "
                    "search.solver.make_solver._target_=nnabla.solvers.Momentum"
                )
            momentum = solver.info["momentum"] if solver.name == "Momentum" else 0.0
            states = solver.get_states()
            for name, parameter in solver.get_parameters().items():
                found[name] = -learning_rate * (gradients[name] + decay * parameter.d)
                for velocity in states[name].pstate.values():  # nnabla keeps it multiplied by the learning rate
                    found[name] -= momentum * velocity.d
        return found

    def state(self):
        return {"decayed": solver_state(self._decayed), "plain": solver_state(self._plain)}

    def restore(self, state):
        restore_solver(self._decayed, state["decayed"])
        restore_solver(self._plain, state["plain"])

    def _moves(self, active):
        scopes = {None, *(name.rpartition("/")[0] for name in active)}
        found = [one for scope in self._statistics.keys() & scopes for one in self._statistics[scope]]
        return _Moves(found) if found else None

    @property
    def _solvers(self):
        return self._decayed, self._plain


class _Moves:
    """By how much the micro-batches of an update move some running statistics, each from the same start."""

    def __init__(self, variables):
        self._variables = sorted(variables)
        self._start = self._now()
        self.total = np.zeros_like(self._start)

    def take(self, weight):
        """Add what a micro-batch has moved, and undo it."""
        self.total += np.float32(weight) * (self._now() - self._start)
        self._set(self._start)

    def apply(self):
        self._set(self._start + self.total)

    def _now(self):
        return np.concatenate([variable.d.ravel() for _, variable in self._variables], dtype=np.float32)

    def _set(self, values):
        start = 0
        for _, variable in self._variables:
            end = start + variable.size
            variable.d = values[start:end].reshape(variable.shape)
            start = end


class _GradientNorm:
    """The norm of the gradients of some of the parameters, as one graph over all of them with an input mask.

    The sum is one of sums of the options, of which those without an active parameter are passed over. What is not
    active in the others is zero, and stays marked as zero: nnabla's solvers would take it as computed otherwise."""

    def __init__(self, parameters):
        squares = {}
        for name, parameter in parameters.items():
            gradient = nn.Variable(parameter.shape)
            gradient.data = parameter.grad
            row, column = (1, 1, gradient.size), (1, gradient.size, 1)  # nnabla's powers and sums take 7 times as long
            square = F.batch_matmul(F.reshape(gradient, row), F.reshape(gradient, column))
            squares.setdefault(_option(name), []).append(square)
        self._options = list(squares)
        self._norm = F.pow_scalar(F.add_n(*(F.add_n(*of) for of in squares.values())), 0.5)
        self._sum = self._norm.parent.inputs[0].parent

    def __call__(self, active):
        options = set(map(_option, active))
        self._sum.set_active_input_mask([option in options for option in self._options])
        self._norm.forward()
        return self._norm.d.item()


def _option(name):
    """Of the scopes of a parameter the first two: those of a decision and its option in most spaces."""
    return tuple(name.split("/")[:2])


def _by_scope(statistics, parameters):
    """{scope: [(name, variable)]}; those in whose scope nothing is trained, which any path may move, are at None."""
    trained, found = {name.rpartition("/")[0] for name in parameters}, {}
    for name, variable in statistics.items():
        scope = name.rpartition("/")[0]
        found.setdefault(scope if scope in trained else None, []).append((name, variable))
    return found


def built_solver(make_solver):
    try:
        return make_solver()
    except (TypeError, RuntimeError) as error:
        given = getattr(make_solver, "keywords", {})
        raise NnasError(f"make_solver: no solver can be made of {given}: {one_line(error)}") from None


def _words(place):
    """As people count: (phase, epoch, step) from 0 -> 'train epoch 1 step 1'."""
    phase, *counts = place
    return " ".join([str(phase), *(f"{name} {n + 1}" for name, n in zip(("epoch", "step"), counts, strict=False))])


def solver_state(solver):
    """The state of a nnabla solver as arrays and numbers."""
    return {
        name: {"t": state.t, "arrays": {key: variable.d.copy() for key, variable in state.pstate.items()}}
        for name, state in solver.get_states().items()
    }


def restore_solver(solver, saved):
    states = solver.get_states()
    for name, state in states.items():
        state.t = saved[name]["t"]
        for key, variable in state.pstate.items():
            variable.d = saved[name]["arrays"][key]
    solver.set_states(states)


def parameter_arrays(parameters):
    """{name: array} of parameters; NaN or infinity among them is an error, so that none is ever saved."""
    arrays = {name: parameter.d.copy() for name, parameter in parameters.items()}
    wrong = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if wrong:
        raise NnasError(
            f"{len(wrong)} of {len(arrays)} parameters are not finite, as {', '.join(wrong[:3])}; a smaller learning "
            "rate may help"
        )
    return arrays


def array_digest(parameters, count=16):
    """A digest of some of the parameters, evenly spread over all of them."""
    digest = sha256()
    for name in list(parameters)[:: max(1, len(parameters) // count)]:
        digest.update(np.ascontiguousarray(parameters[name].d).data)
    return digest.hexdigest()


def set_parameters(parameters, arrays, source):
    """Set all parameters from arrays of the same names and shapes. source: names the arrays for people."""
    wrong = sorted(
        name for name, parameter in parameters.items() if name not in arrays or arrays[name].shape != parameter.shape
    )
    if wrong:
        raise NnasError(
            f"{source}: {len(wrong)} of {len(parameters)} parameters are missing or of another shape, as "
            f"{', '.join(wrong[:3])}; it belongs to another network or is incomplete"
        )
    for name, parameter in parameters.items():
        parameter.d = arrays[name]
