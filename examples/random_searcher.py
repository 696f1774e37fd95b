"""A searcher of one's own: random search with the shared weights.

From this folder: nnas proxyless --config-dir=conf searcher=random
"""

from nnas.objectives import most_probable
from nnas.searchers.base import Searcher


class RandomSearch(Searcher):
    """Keeps the architecture of the largest reward among those that keep the bounds (Li and Talwalkar, 2019)."""

    def __init__(self, space, constraints, objective, communicator, seed, samples=10):
        super().__init__(space, constraints, objective, communicator, seed)
        self._samples = samples
        self._best_reward = None
        # Until one is drawn that keeps the bounds: any that does.
        uniform = {decision.name: dict.fromkeys(decision.options, 0.0) for decision in space.decisions}
        self._best = most_probable(space, uniform, constraints)

    def sample(self):
        return self.space.sample(self.generator)

    def step(self, evaluate):
        total = wrong = 0
        for _ in range(self._samples):
            choices = self.sample()
            accuracy = evaluate(choices)
            reward = self.reward(choices, accuracy)
            total, wrong = total + reward, wrong + 1 - accuracy
            within = all(one.costs.cost(choices) <= one.bound for one in self.constraints)
            if within and (self._best_reward is None or reward > self._best_reward):
                self._best, self._best_reward = choices, reward
        return {"reward": total / self._samples, "validation_error": wrong / self._samples}

    def best(self):
        return self._best

    def state(self):
        return {"best": self._best, "reward": self._best_reward, "generator": self.generator.bit_generator.state}

    def restore(self, state):
        self._best, self._best_reward = state["best"], state["reward"]
        self.generator.bit_generator.state = state["generator"]
