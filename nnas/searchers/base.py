"""What the search loop asks of a searcher."""

from abc import ABC, abstractmethod

from nnas.randomness import generator


class Searcher(ABC):
    """An algorithm that chooses architectures of a space under constraints.

    space: nnas.space.Space. constraints: a list of nnas.objectives.Constraint. objective: a function from (accuracy,
    {constraint: cost}, constraints) to a reward. generator: the only source of its draws, to be saved with its state.
    """

    def __init__(self, space, constraints, objective, communicator, seed):
        self.space = space
        self.constraints = constraints
        self.objective = objective
        self.communicator = communicator
        self.generator = generator(seed, "searcher")

    def costs(self, choices):
        """{constraint: predicted cost} of an architecture."""
        return {one.name: one.costs.cost(choices) for one in self.constraints}

    def reward(self, choices, accuracy):
        return self.objective(accuracy, self.costs(choices), self.constraints)

    @abstractmethod
    def sample(self):
        """Choices of the path whose weights are trained next."""

    @abstractmethod
    def step(self, evaluate):
        """Make one update; evaluate: choices -> accuracy in [0, 1] with the shared weights.

        Returns figures for the epoch's record, among them reward and validation_error."""

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
