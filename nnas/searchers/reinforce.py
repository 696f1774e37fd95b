"""ProxylessNAS with REINFORCE (Cai, Zhu, Han: ProxylessNAS, ICLR 2019, section 3.3 and appendix)."""

import numpy as np

from nnas.errors import NnasError, check_number, check_positive_integer, nearest
from nnas.objectives import most_probable
from nnas.searchers.base import AlphaSearcher
from nnas.space import NONE

BASELINES = ("moving_average", "leave_one_out")


class Reinforce(AlphaSearcher):
    """Learns a probability of every option from rewards of sampled architectures.

    samples: architectures an update. baseline: what is subtracted from a reward: 'moving_average', the paper's b, or
    'leave_one_out', the mean reward of the other samples of the update (Kool, van Hoof, Welling, 2019).
    baseline_decay: beta of b <- beta mean(R) + (1 - beta) b, applied after the use of b. start_from_first: whether b
    starts at the first mean reward (the default) instead of 0, with which the first update would have no baseline.
    make_solver: a function to a nnabla solver for the alphas, Adam with betas (0, 0.999) in the paper.
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
        baseline="moving_average",
        baseline_decay=0.9,
        start_from_first=True,
    ):
        super().__init__(space, constraints, objective, make_solver, communicator, seed)
        if baseline not in BASELINES:
            raise NnasError(
                f"searcher.baseline={baseline!r}: possible are {', '.join(BASELINES)}{nearest(baseline, BASELINES)}"
            )
        self._leaves_one_out = baseline == "leave_one_out"
        self._samples = check_positive_integer("searcher.samples", samples, least=2 if self._leaves_one_out else 1)
        self._decay = check_number("searcher.baseline_decay", baseline_decay, 0, 1)
        self.baseline = None if start_from_first or self._leaves_one_out else 0.0

    def step(self, evaluate):
        """Make one update; evaluate: as in base.Searcher. Returns figures for the record."""
        sampled = [self.sample() for _ in range(self._samples)]
        accuracies = self.accuracies(evaluate, sampled)
        rewards = [self.reward(*pair) for pair in zip(sampled, accuracies, strict=True)]
        self._update(sampled, rewards)
        return {
            "reward": float(np.mean(rewards)),
            "validation_error": 1 - float(np.mean(accuracies)),
        }

    def figures(self):
        """Those of all searchers with alphas, and the baseline."""
        return {"baseline": self.baseline, **super().figures()}

    def gradient(self, sampled, rewards, baseline):
        """{decision: array}: the mean over samples of (R - b) (p - onehot), the gradient of the negative expected
        reward; a decision that a sample did not reach gets nothing from it. baseline: a number, or one a sample.

        Of a node p is the probability given that the cell is legal, and an edge that was dropped counts as NONE: the
        logarithm of the probability of a legal cell is a sum of alphas minus the logarithm of what makes it one."""
        advantages = np.asarray(rewards) - baseline
        marginals = self.space.marginals(self._probabilities)
        gradient = {}
        for decision in self.space.decisions:
            counts_dropped = decision.name in self.space.node_of and NONE in decision.options
            probabilities = (marginals if counts_dropped else self._probabilities)[decision.name]
            total = np.zeros_like(probabilities)
            for choices, advantage in zip(sampled, advantages, strict=True):
                option = choices.get(decision.name, NONE if counts_dropped else None)
                if option is not None:
                    onehot = np.zeros_like(probabilities)
                    onehot[decision.options.index(option)] = 1
                    total += advantage * (probabilities - onehot)
            gradient[decision.name] = total / len(sampled)
        return gradient

    def best(self):
        """The most probable choices that keep the bounds; of a node the edges that are least probably dropped."""
        logs = self._named(self._log_probabilities)
        for edge in self.space.node_of:
            dropped = logs[edge].get(NONE, 0.0)
            logs[edge] = {option: value - dropped for option, value in logs[edge].items()}
        return most_probable(self.space, logs, self.constraints, self.objective.lowest)

    def state(self):
        return {**super().state(), "baseline": self.baseline}

    def restore(self, state):
        super().restore(state)
        self.baseline = state["baseline"]

    def _update(self, sampled, rewards):
        mean = float(np.mean(rewards))
        if self._leaves_one_out:
            others = (sum(rewards) - np.asarray(rewards)) / (len(rewards) - 1)
            self._move(self.gradient(sampled, rewards, others))
            self.baseline = mean  # for the record: the mean of those that were used
            return
        if self.baseline is None:
            self.baseline = mean
        self._move(self.gradient(sampled, rewards, self.baseline))
        self.baseline = self._decay * mean + (1 - self._decay) * self.baseline
