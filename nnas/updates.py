"""One update of network weights: micro-batches, averaging over processes, clipping, decay and the solver's step."""

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
    and batch normalization. clip_norm: the largest norm of the whole gradient, or None. seed: the run's. schedule: of
    the learning rate, as in schedules.
    """

    def __init__(
        self, parameters, make_solver, learning_rate, weight_decay, clip_norm, communicator, seed, schedule=cosine
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
        self._norm = _GradientNorm(parameters) if self._clip_norm else None
        self._schedule = schedule
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

        active: names of the parameters that the loss reaches. place: of the random functions, as in randomness.
        """
        for solver in self._solvers:
            solver.zero_grad()
        micro_batches = list(micro_batches)
        figures = []
        for number, (images, labels) in enumerate(micro_batches):
            seed_functions(self._seed, *place, number)
            graph.forward(images, labels)
            graph.loss.backward(1 / len(micro_batches), clear_buffer=True)
            figures.append(graph.figures())
        means = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
        if not np.isfinite(means["loss"]):
            raise NnasError(f"the loss is {means['loss']} at {_words(place)}; a smaller learning rate may help")
        self._communicator.average([self._parameters[name].grad for name in active])
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

    def state(self):
        return {"decayed": solver_state(self._decayed), "plain": solver_state(self._plain)}

    def restore(self, state):
        restore_solver(self._decayed, state["decayed"])
        restore_solver(self._plain, state["plain"])

    @property
    def _solvers(self):
        return self._decayed, self._plain


class _GradientNorm:
    """The norm of the gradients of some of the parameters, as one graph over all of them with an input mask.

    It never touches the gradients of the others: nnabla's solvers would take those as computed."""

    def __init__(self, parameters):
        self._names = list(parameters)
        squares = []
        for parameter in parameters.values():
            gradient = nn.Variable(parameter.shape)
            gradient.data = parameter.grad
            squares.append(F.sum(F.pow_scalar(gradient, 2)))
        self._norm = F.pow_scalar(F.add_n(*squares), 0.5)
        self._sum = self._norm.parent.inputs[0].parent

    def __call__(self, active):
        active = set(active)
        self._sum.set_active_input_mask([name in active for name in self._names])
        self._norm.forward()
        return float(self._norm.d)


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
