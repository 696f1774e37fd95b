"""ProxylessNAS with REINFORCE (Cai, Zhu, Han: ProxylessNAS, ICLR 2019, section 3.3 and appendix)."""

import nnabla as nn
import numpy as np

from nnas.errors import check_number, check_positive_integer
from nnas.objectives import most_probable
from nnas.searchers.base import Searcher
from nnas.updates import built_solver, restore_solver, solver_state


class Reinforce(Searcher):
    """Learns a probability of every option from rewards of sampled architectures.

    samples: architectures an update. baseline_decay: beta of b <- beta mean(R) + (1 - beta) b, applied after the use
    of b. start_from_first: whether b starts at the first mean reward (the default) instead of 0, with which the first
    update would have no baseline. make_solver: a function to a nnabla solver for the alphas, Adam with betas
    (0, 0.999) in the paper.
    """

    def __init__(
        self,
        space,
        constraints,
        objective,
        make_solver,
        communicator,
        seed,
        samples=10,
        baseline_decay=0.9,
        start_from_first=True,
    ):
        super().__init__(space, constraints, objective, communicator, seed)
        self._samples = check_positive_integer("searcher.samples", samples)
        self._decay = check_number("searcher.baseline_decay", baseline_decay, 0, 1)
        self.baseline = None if start_from_first else 0.0
        self._alphas = {}
        for decision in space.decisions:
            self._alphas[decision.name] = nn.Variable((len(decision.options),), need_grad=True)
            self._alphas[decision.name].d = 0
        self._solver = built_solver(make_solver)
        self._solver.set_parameters(self._alphas)
        self._take_log_probabilities()

    def sample(self):
        """Choices drawn from the present probabilities, each decision with a draw of its own."""
        return self.space.complete(
            lambda decision: decision.options[
                self.generator.choice(len(decision.options), p=self._probabilities[decision.name])
            ]
        )

    def step(self, evaluate):
        """Make one update; evaluate: choices -> accuracy in [0, 1]. Returns figures for the record."""
        sampled = [self.sample() for _ in range(self._samples)]
        accuracies = [evaluate(choices) for choices in sampled]
        rewards = [self.reward(*pair) for pair in zip(sampled, accuracies, strict=True)]
        self._update(sampled, rewards)
        return {
            "reward": float(np.mean(rewards)),
            "validation_error": 1 - float(np.mean(accuracies)),
        }

    def best(self):
        """The most probable choices that keep the bounds."""
        return most_probable(self.space, self._named(self._log_probabilities), self.constraints)

    def figures(self):
        """What tells where the search stands: expected costs, and the mean entropy of the decisions in [0, 1]."""
        named = self._named(self._probabilities)
        entropies = [
            float(-(p * self._log_probabilities[name]).sum() / np.log(len(p)))
            for name, p in self._probabilities.items()
            if len(p) > 1
        ]
        return {
            "baseline": self.baseline,
            "entropy": float(np.mean(entropies)) if entropies else 0.0,
            "expected_cost": {one.name: one.costs.expected(named) for one in self.constraints},
        }

    def gradient(self, sampled, rewards, baseline):
        """{decision: array}: the mean over samples of (R - b) (p - onehot), the gradient of the negative expected
        reward; a decision that a sample did not reach gets nothing from it."""
        gradient = {}
        for decision in self.space.decisions:
            probabilities = self._probabilities[decision.name]
            total = np.zeros_like(probabilities)
            for choices, reward in zip(sampled, rewards, strict=True):
                if decision.name in choices:
                    onehot = np.zeros_like(probabilities)
                    onehot[decision.options.index(choices[decision.name])] = 1
                    total += (reward - baseline) * (probabilities - onehot)
            gradient[decision.name] = total / len(sampled)
        return gradient

    def state(self):
        return {
            "alphas": {name: alpha.d.copy() for name, alpha in self._alphas.items()},
            "baseline": self.baseline,
            "solver": solver_state(self._solver),
            "generator": self.generator.bit_generator.state,
        }

    def restore(self, state):
        for name, alpha in self._alphas.items():
            alpha.d = state["alphas"][name]
        self.baseline = state["baseline"]
        restore_solver(self._solver, state["solver"])
        self.generator.bit_generator.state = state["generator"]
        self._take_log_probabilities()

    def _update(self, sampled, rewards):
        mean = float(np.mean(rewards))
        if self.baseline is None:
            self.baseline = mean
        for name, gradient in self.gradient(sampled, rewards, self.baseline).items():
            self._alphas[name].g = gradient
        self.communicator.average([alpha.grad for alpha in self._alphas.values()])
        self._solver.update()
        self._take_log_probabilities()
        self.baseline = self._decay * mean + (1 - self._decay) * self.baseline

    def _take_log_probabilities(self):
        # Kept as arrays: to read a nnabla variable takes longer than to draw from it.
        self._log_probabilities = {
            name: _log_softmax(alpha.d.astype(np.float64)) for name, alpha in self._alphas.items()
        }
        self._probabilities = {
            name: np.exp(logs) / np.exp(logs).sum() for name, logs in self._log_probabilities.items()
        }

    def _named(self, arrays):
        return {
            decision.name: dict(zip(decision.options, arrays[decision.name].tolist(), strict=True))
            for decision in self.space.decisions
        }


def _log_softmax(alphas):
    shifted = alphas - alphas.max()
    return shifted - np.log(np.exp(shifted).sum())
