"""A searcher of one's own: regularized evolution with the shared weights.

From this folder: nnas proxyless --config-dir=conf searcher=evolution
"""

from nnas.objectives import most_probable
from nnas.searchers.base import Searcher


class Evolution(Searcher):
    """Mutates the best of a few and lets the oldest die (Real et al.: Regularized Evolution, 2019).

    population: architectures that live at a time. contestants: of which the best becomes a parent. children: an update.
    """

    def __init__(self, space, constraints, objective, communicator, seed, population=20, contestants=5, children=10):
        super().__init__(space, constraints, objective, communicator, seed)
        self._population, self._contestants, self._children = population, contestants, children
        self._alive = []  # [choices, reward], the oldest first

    def sample(self):
        """A child of the best of some that are drawn; a random architecture while there are too few."""
        if len(self._alive) < self._population:
            return self.space.sample(self.generator)
        drawn = self.generator.choice(len(self._alive), self._contestants, replace=False)
        parent, _ = max((self._alive[i] for i in drawn), key=lambda one: one[1])
        changed = list(parent)[self.generator.integers(len(parent))]

        def option(decision):
            # Drawn too is what the parent has no choice for, since it was not reached there.
            drawn = decision.name == changed or decision.name not in parent
            return self.generator.choice(decision.options).item() if drawn else parent[decision.name]

        return self.space.complete(option, lambda node: [edge for edge in node.edges if edge in parent])

    def step(self, evaluate):
        children = [self.sample() for _ in range(self._children)]
        judged = list(zip(children, self.accuracies(evaluate, children), strict=True))
        born = [[choices, self.reward(choices, accuracy)] for choices, accuracy in judged]
        self._alive = (self._alive + born)[-self._population :]
        return {
            "reward": sum(reward for _, reward in born) / len(born),
            "validation_error": 1 - sum(accuracy for _, accuracy in judged) / len(judged),
        }

    def best(self):
        """The best of those alive within the bounds; any architecture within them where there is none."""
        within = [one for one in self._alive if all(c.costs.cost(one[0]) <= c.bound for c in self.constraints)]
        if within:
            return max(within, key=lambda one: one[1])[0]
        return most_probable(
            self.space, {one.name: dict.fromkeys(one.options, 0.0) for one in self.space.decisions}, self.constraints
        )

    def state(self):
        return {"alive": self._alive, "generator": self.generator.bit_generator.state}

    def restore(self, state):
        self._alive = list(state["alive"])
        self.generator.bit_generator.state = state["generator"]
