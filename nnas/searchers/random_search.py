"""Random search with the shared weights (Li and Talwalkar: Random Search and Reproducibility for NAS, 2019)."""

from nnas.errors import check_positive_integer
from nnas.objectives import random_within
from nnas.searchers.base import Searcher


class RandomSearch(Searcher):
    """Draws architectures within the bounds and keeps that of the largest reward; the yardstick of other searchers.

    samples: architectures an update.
    """

    def __init__(self, space, constraints, objective, communicator, seed, samples=10):
        super().__init__(space, constraints, objective, communicator, seed)
        self._samples = check_positive_integer("searcher.samples", samples)
        self._best, self._best_reward = self.sample(), None

    def sample(self):
        """Choices drawn uniformly from those within the bounds, of paths to train as well as to judge."""
        return random_within(self.space, self.constraints, self.generator)

    def step(self, evaluate):
        """Judge some architectures; evaluate: as in base.Searcher. Returns figures for the record."""
        sampled = [self.sample() for _ in range(self._samples)]
        accuracies, rewards = self.accuracies(evaluate, sampled), []
        for choices, accuracy in zip(sampled, accuracies, strict=True):
            rewards.append(self.reward(choices, accuracy))
            if self._best_reward is None or rewards[-1] > self._best_reward:
                self._best, self._best_reward = choices, rewards[-1]
        return {
            "reward": sum(rewards) / self._samples,
            "validation_error": 1 - sum(accuracies) / self._samples,
        }

    def best(self):
        return self._best

    def state(self):
        return {"best": self._best, "reward": self._best_reward, "generator": self.generator.bit_generator.state}

    def restore(self, state):
        self._best, self._best_reward = state["best"], state["reward"]
        self.generator.bit_generator.state = state["generator"]
