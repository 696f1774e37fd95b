"""What the search loop asks of a searcher, and what searchers that learn probabilities share."""

from abc import ABC, abstractmethod

import nnabla as nn
import numpy as np

from nnas.errors import NnasError
from nnas.objectives import Loss, Reward, most_probable
from nnas.randomness import generator
from nnas.space import NONE
from nnas.updates import built_solver, restore_solver, solver_state

SKIPS = ("skip", "skip_connect")


class Searcher(ABC):
    """An algorithm that chooses architectures of a space under constraints.

    space: nnas.space.Space. constraints: a list of nnas.objectives.Constraint. objective: an instance of `objectives`,
    a class of nnas.objectives. generator: the only source of its draws, to be saved with its state.
    """

    objectives = Reward
    # {decision: nnabla variable of shape (options,)}: the weights of a graph that sums all options, built for those
    # searchers that have them.
    gates = None
    # Whether the weights of the network are trained on that sum, and not on sampled paths.
    mixes = False
    # Whether `step` needs evaluate.look_ahead.
    looks_ahead = False
    # On which split of the data the searcher learns.
    split = "validation"
    # A share of 1/channel_share of the channels of a node's edges passes through its operators, the rest by them.
    channel_share = 1
    # How many updates there will be; see `plan`.
    planned = 1

    def __init__(self, space, constraints, objective, communicator, seed):
        self.check_objective(objective)
        objective.check(space, constraints)
        self.space = space
        self.constraints = constraints
        self.objective = objective
        self.communicator = communicator
        self.generator = generator(seed, "searcher")
        # (choices, accuracy) of all that a reward was asked for in the present epoch, for the run's samples.
        self.judged = []

    @classmethod
    def check_objective(cls, objective):
        """Raise NnasError if the objective is not of the kind that this searcher takes."""
        if not isinstance(objective, cls.objectives):
            raise NnasError(
                f"{cls.__name__} does not take the objective {type(objective).__name__}; choose objective= from "
                f"{', '.join(cls.objectives.names())}, or make your own of nnas.objectives.{cls.objectives.__name__}"
            )

    def costs(self, choices):
        """{constraint: predicted cost} of an architecture."""
        return {one.name: one.costs.cost(choices) for one in self.constraints}

    def accuracies(self, evaluate, sampled):
        """The accuracies of a list of architectures; a plain function `evaluate` is asked for one after the other."""
        each = getattr(evaluate, "each", None)
        return [evaluate(choices) for choices in sampled] if each is None else each(sampled)

    def reward(self, choices, accuracy):
        self.judged.append((choices, accuracy))
        return self.objective(accuracy, self.costs(choices), self.constraints)

    def plan(self, updates):
        """Learn, before the first, of how many updates there will be: `planned`, 1 at least."""
        self.planned = max(updates, 1)

    @abstractmethod
    def sample(self):
        """Choices of the path whose weights are trained next."""

    @abstractmethod
    def step(self, evaluate):
        """Make one update on a minibatch of validation samples.

        evaluate(choices) -> accuracy in [0, 1] with the shared weights; `accuracies` asks it for many at once, which
        processes share. For a searcher with gates there is
        evaluate.differentiate({decision: options}) -> (loss, error) too: of the sum of these options, weighted by the
        gates, with the gradient of the loss left at the gates.

        Returns figures for the epoch's record: validation_error, and reward or objective (what is made small)."""

    @abstractmethod
    def best(self):
        """The choices that the search would end with now; they keep all bounds."""

    def figures(self):
        """Figures on where the search stands, for the epoch's record: entropy and expected_cost where they exist."""
        return {}

    @abstractmethod
    def state(self):
        """All that `restore` needs to go on as if nothing had happened: dictionaries, numbers, words, arrays."""

    @abstractmethod
    def restore(self, state):
        """Take up a state."""

    def start_from(self, state):  # noqa: B027, since most have something to take
        """Begin a new search with what an earlier one of the same space learnt, by its last state; by default nothing
        of it is taken."""


class AlphaSearcher(Searcher):
    """A searcher that learns the logits (alphas) of a probability of every option, from 0 on.

    make_solver: a function to a nnabla solver for the alphas.
    """

    def __init__(self, space, constraints, objective, make_solver, communicator, seed):
        super().__init__(space, constraints, objective, communicator, seed)
        self._alphas = {name: nn.Variable((size,), need_grad=True) for name, size in self._sizes().items()}
        for alpha in self._alphas.values():
            alpha.d = 0
        self._solver = built_solver(make_solver)
        self._solver.set_parameters(self._alphas)
        self._updates = 0
        self._take_log_probabilities()

    def sample(self):
        """Choices drawn from the present probabilities, each decision with a draw of its own, given that they are legal
        (see space.Space.draw)."""
        return self.space.draw(self._probabilities, self.generator)

    @property
    def probabilities(self):
        """{decision: array}: of each option, in its order."""
        return self._probabilities

    def best(self):
        """The most probable choices that keep the bounds."""
        return self._most_probable(self._log_probabilities)

    def figures(self):
        """What tells where the search stands: expected costs, of legal architectures, the mean entropy of the decisions
        in [0, 1], and the probabilities, in the order of the options."""
        named = self._named(self.space.marginals(self._probabilities))
        entropies = [self._entropy(name) for name, p in self._probabilities.items() if len(p) > 1]
        return {
            "entropy": float(np.mean(entropies)) if entropies else 0.0,
            "expected_cost": {one.name: one.costs.expected(named) for one in self.constraints},
            "probabilities": {name: [round(one, 4) for one in p.tolist()] for name, p in self._probabilities.items()},
        }

    def state(self):
        return {
            "alphas": {name: alpha.d.copy() for name, alpha in self._alphas.items()},
            "updates": self._updates,
            "solver": solver_state(self._solver),
            "generator": self.generator.bit_generator.state,
        }

    def restore(self, state):
        for name, alpha in self._alphas.items():
            alpha.d = state["alphas"][name]
        self._updates = state["updates"]
        restore_solver(self._solver, state["solver"])
        self.generator.bit_generator.state = state["generator"]
        self._take_log_probabilities()

    def start_from(self, state):
        """Begin with the probabilities of an earlier search."""
        for name, alpha in self._alphas.items():
            alpha.d = state["alphas"][name]
        self._take_log_probabilities()

    def _sizes(self):
        """{decision: how many alphas it has}."""
        return {decision.name: len(decision.options) for decision in self.space.decisions}

    def _entropy(self, name):
        """Of a decision, in [0, 1]; 0 where there is nothing to choose."""
        p = self._probabilities[name]
        return float(-(p * self._log_probabilities[name]).sum() / np.log(len(p))) if len(p) > 1 else 0.0

    def _most_probable(self, log_probabilities):
        return most_probable(self.space, self._named(log_probabilities), self.constraints, self.objective.lowest)

    def _move(self, gradients):
        """One step of the solver along {decision: gradient for its alphas}, which all processes have alike."""
        for name, gradient in gradients.items():
            self._alphas[name].g = gradient
        self._solver.update()
        self._updates += 1
        self._take_log_probabilities()

    def _take_log_probabilities(self):
        # Kept as arrays: to read a nnabla variable takes longer than to draw from it.
        alphas = {name: alpha.d.astype(np.float64) for name, alpha in self._alphas.items()}
        for name, values in alphas.items():
            if not np.isfinite(values).all():
                raise NnasError(
                    f"the alphas of {name} are {values.tolist()} after update {self._updates} of the searcher; a "
                    "smaller learning rate (searcher.make_solver.alpha) may help"
                )
        self._log_probabilities = {name: _log_softmax(values) for name, values in alphas.items()}
        self._probabilities = {
            name: np.exp(logs) / np.exp(logs).sum() for name, logs in self._log_probabilities.items()
        }

    def _named(self, arrays):
        return {
            decision.name: dict(zip(decision.options, arrays[decision.name].tolist(), strict=True))
            for decision in self.space.decisions
        }


class GradientSearcher(AlphaSearcher):
    """A searcher that learns its probabilities from the gradients of a sum of options and of the expected costs."""

    objectives = Loss

    def __init__(self, space, constraints, objective, make_solver, communicator, seed):
        super().__init__(space, constraints, objective, make_solver, communicator, seed)
        self.gates = {name: nn.Variable(alpha.shape, need_grad=True) for name, alpha in self._alphas.items()}

    def gradient(self, probabilities, gates, cross_entropy):
        """The loss, and its gradient for the alphas, {decision: array}.

        probabilities: {decision: array}, 0 for options that are not considered. gates: {decision: the gradient of the
        cross entropy for its gates}. The derivative of a softmax p turns d = d loss / d p into p (d - <p, d>)."""
        loss, by_option = self.slopes(probabilities, gates, cross_entropy)
        return loss, {name: p * (by_option[name] - p @ by_option[name]) for name, p in probabilities.items()}

    def slopes(self, probabilities, gates, cross_entropy):
        """The loss, and its gradient for the probabilities, {decision: array}; the cost is that of legal
        architectures."""
        named = self._named(self.space.marginals(probabilities))
        expected = {one.name: one.costs.expected(named) for one in self.constraints}
        loss, factor, slopes = self.objective(cross_entropy, expected, self.constraints)
        by_option = {name: factor * gradient for name, gradient in gates.items()}
        for one in self.constraints:
            costs = {name: np.array(list(each.values())) for name, each in one.costs.gradient(named).items()}
            for name, gradient in self.space.marginals_gradient(probabilities, costs).items():
                by_option[name] = by_option[name] + slopes[one.name] * gradient
        return loss, by_option


class MixtureSearcher(GradientSearcher):
    """A searcher whose network is the sum of all options, weighted: its weights are trained on that sum as well."""

    mixes = True

    def weigh(self):
        """Set the gates to the weights of the options, and return these, {decision: array}: the probabilities."""
        self._set_gates(self._probabilities)
        return self._probabilities

    def step(self, evaluate):
        """Make one update; evaluate: as in Searcher, of a searcher with gates. Returns figures for the record."""
        weights = self.weigh()
        cross_entropy, error = self._differentiate(evaluate)
        gates = {name: gate.g.astype(np.float64) for name, gate in self.gates.items()}
        loss = self._learn(weights, gates, cross_entropy)
        return {"objective": loss, "validation_loss": cross_entropy, "validation_error": error}

    def figures(self):
        """Those of all searchers with alphas; the entropy of each decision in [0, 1]; and what a search may collapse
        to: in which share of the edges and decisions nothing at all leads, or would skipping be derived."""
        entropies = {one.name: self._entropy(one.name) for one in self.space.decisions}
        ranked = [self._ranked(one) for one in self.space.decisions]
        return {
            **super().figures(),
            "entropies": entropies,
            "none_share": float(np.mean([options[0] == NONE for options in ranked])),
            "skip_share": float(np.mean([next(one for one in options if one != NONE) in SKIPS for options in ranked])),
        }

    def _ranked(self, decision):
        """Its options, the most probable one first."""
        return [decision.options[i] for i in np.argsort(-self._probabilities[decision.name], kind="stable")]

    def _differentiate(self, evaluate):
        return evaluate.differentiate({decision.name: decision.options for decision in self.space.decisions})

    def _learn(self, weights, gates, cross_entropy):
        """Update the alphas by the gradients for the gates, at the weights that these had; returns the loss."""
        loss, gradients = self.gradient(weights, gates, cross_entropy)
        self._move(gradients)
        return loss

    def _set_gates(self, weights):
        for name, values in weights.items():
            self.gates[name].d = values


def _log_softmax(alphas):
    shifted = alphas - alphas.max()
    return shifted - np.log(np.exp(shifted).sum())
