"""What a search makes large or small, from accuracy and cost, and the architectures that keep within bounds."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from inspect import isabstract
from math import ceil, floor, log, log10, prod

import numpy as np

from nnas.costs import Costs, extremes, groups
from nnas.errors import NnasError, check_number

BINS = 4000
TRIES = 1000


@dataclass(frozen=True)
class Constraint:
    """cost(architecture) <= bound, in the unit of `costs`. weight: in the objective; None: the objective's own."""

    name: str
    costs: Costs
    bound: float
    weight: float = None


def constraint(space, name, costs, bound, fraction, weight):
    """Check a bound against what the space can reach; return (Constraint, warning or None).

    bound: in the unit of costs, or None to take `fraction` of the dearest architecture's cost.
    """
    for term in costs.terms:
        for decision, option in term.when:
            if option not in space.decision(decision).options:
                raise NnasError(
                    f"the {name} costs name {decision}={option!r}, which the space {space.name} does not have"
                )
    smallest, largest = extremes(space, costs)
    if bound is None:
        bound = check_number(f"constraints.{name}.fraction", fraction, 0, open_below=True) * largest
    bound = check_number(f"constraints.{name}.bound", bound, 0, open_below=True)
    if weight is not None:
        weight = check_number(f"constraints.{name}.weight", weight, 0)
    if bound < smallest:
        raise NnasError(
            f"the {name} bound of {bound:.4g} {costs.unit} is below the smallest network of {space.name}: "
            f"the smallest possible value is {_rounded_up(smallest)} {costs.unit}, that of the largest {largest:.4g}"
        )
    warning = None
    if bound >= largest:
        warning = (
            f"the {name} bound of {bound:.4g} {costs.unit} is no bound: the largest network of {space.name} is "
            f"predicted at {largest:.4g} {costs.unit}"
        )
    return Constraint(name, costs, bound, weight), warning


def _rounded_up(value, digits=4):
    scale = 10.0 ** (digits - 1 - floor(log10(value)))
    return f"{ceil(value * scale) / scale:.{digits}g}"


class Objective:
    """What the accuracy and the costs of architectures come to.

    weight: of the constraints that have none of their own; what it does is the subclass's affair. lowest: the least
    share of its bounds that the derived architecture costs, where there is such an architecture.
    """

    lowest = 0.0

    def __init__(self, weight):
        self._weight = check_number("objective.weight", weight, 0)

    def check(self, space, constraints):
        """Raise NnasError if this objective has no meaning for these constraints."""

    @classmethod
    def names(cls):
        """Of the objectives of this kind, as `objective=` takes them."""
        own = [] if isabstract(cls) else [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()]
        return own + [name for other in cls.__subclasses__() for name in other.names()]

    def _weights(self, constraints):
        return [(one, self._weight if one.weight is None else one.weight) for one in constraints]


class Reward(Objective, ABC):
    """An objective to be made large, for searchers that sample architectures."""

    @abstractmethod
    def __call__(self, accuracy, costs, constraints):
        """The reward of an architecture; costs: {constraint: its cost}."""


class RewardMin(Reward):
    """accuracy x product over the constraints of min(1, bound / cost) ** weight: no gain from being below a bound."""

    def __init__(self, weight=0.1):
        super().__init__(weight)

    def __call__(self, accuracy, costs, constraints):
        return accuracy * prod(
            (one.bound / max(costs[one.name], one.bound)) ** weight for one, weight in self._weights(constraints)
        )


class MnasnetSoft(Reward):
    """accuracy x product of (cost / bound) ** -weight, a gain below and a loss above (Tan et al.: MnasNet, 2019)."""

    def __init__(self, weight=0.07):
        super().__init__(weight)

    def __call__(self, accuracy, costs, constraints):
        return accuracy * prod((one.bound / costs[one.name]) ** weight for one, weight in self._weights(constraints))


class MnasnetHard(RewardMin):
    """MnasNet's hard form, with exponent 0 below a bound and -1 above it: RewardMin of weight 1."""

    def __init__(self, weight=1.0):
        super().__init__(weight)


class Absolute(Reward):
    """accuracy - sum of weight |cost / bound - 1|: aims at the bounds from both sides (Bender et al.: TuNAS, 2020).

    weight: minus the beta of the paper, which has -0.10. lowest: what is derived keeps the bounds, and costs at least
    this share of them if any architecture does.
    """

    def __init__(self, weight=0.1, lowest=0.97):
        super().__init__(weight)
        self.lowest = check_number("objective.lowest", lowest, 0, 1)

    def __call__(self, accuracy, costs, constraints):
        return accuracy - sum(
            weight * abs(costs[one.name] / one.bound - 1) for one, weight in self._weights(constraints)
        )


class Loss(Objective, ABC):
    """An objective to be made small, for searchers that differentiate the expected costs."""

    @abstractmethod
    def __call__(self, cross_entropy, expected, constraints):
        """Return (loss, d loss / d cross entropy, {constraint: d loss / d expected cost}).

        expected: {constraint: expected cost}."""


class LinearPenalty(Loss):
    """cross entropy + sum of weight (expected cost - bound) / bound (Cai, Zhu, Han: ProxylessNAS, 2019)."""

    def __init__(self, weight=0.1):
        super().__init__(weight)

    def __call__(self, cross_entropy, expected, constraints):
        slopes = {one.name: weight / one.bound for one, weight in self._weights(constraints)}
        excess = sum(slopes[one.name] * (expected[one.name] - one.bound) for one in constraints)
        return cross_entropy + excess, 1.0, slopes


class AbsolutePenalty(Loss):
    """cross entropy + sum of weight |expected cost / bound - 1|: aims at the bounds from both sides, as Absolute does.

    lowest: as of Absolute.
    """

    def __init__(self, weight=1.0, lowest=0.97):
        super().__init__(weight)
        self.lowest = check_number("objective.lowest", lowest, 0, 1)

    def __call__(self, cross_entropy, expected, constraints):
        excess = {one.name: expected[one.name] / one.bound - 1 for one in constraints}
        weights = self._weights(constraints)
        slopes = {one.name: weight * float(np.sign(excess[one.name])) / one.bound for one, weight in weights}
        return cross_entropy + sum(weight * abs(excess[one.name]) for one, weight in weights), 1.0, slopes


class LogProduct(Loss):
    """scale x cross entropy x product of (log expected cost / log bound) ** weight (ProxylessNAS, 2019).

    It depends on the unit, ms for latencies, and has no meaning where a cost is 1 or less.
    """

    def __init__(self, scale=1.0, weight=0.6):
        super().__init__(weight)
        self._scale = check_number("objective.scale", scale, 0, open_below=True)

    def check(self, space, constraints):
        for one in constraints:
            smallest = min(one.bound, extremes(space, one.costs)[0])
            if smallest <= 1:
                raise NnasError(
                    f"objective=log_product takes logarithms of costs, which must be above 1 {one.costs.unit}: the "
                    f"{one.name} bound is {one.bound:.4g} and the smallest of bound and networks {smallest:.4g} "
                    f"{one.costs.unit}; take objective=linear_penalty"
                )

    def __call__(self, cross_entropy, expected, constraints):
        weights = self._weights(constraints)
        factor = self._scale * prod((log(expected[one.name]) / log(one.bound)) ** weight for one, weight in weights)
        loss = factor * cross_entropy
        slopes = {one.name: loss * weight / (expected[one.name] * log(expected[one.name])) for one, weight in weights}
        return loss, factor, slopes


def most_probable(space, log_probabilities, constraints, lowest=0.0):
    """The most probable choices whose costs keep all bounds.

    log_probabilities: {decision: {option: number}}. lowest: costs below this share of a bound are taken only where
    nothing lies between it and the bounds. Of a node the edges with the largest log probabilities stay, as far as the
    bounds let them (DARTS' discretization where they do not bind); NONE does not count.
    """

    def gain(choices):
        return sum(log_probabilities[name][option] for name, option in choices.items())

    return best_within(space, gain, constraints, lowest)


def random_within(space, constraints, generator):
    """Choices drawn uniformly from those within the bounds.

    Where hardly any of the space are, the last resort is not quite uniform: the most probable within the bounds by
    random log probabilities."""
    for _ in range(TRIES):
        choices = space.sample(generator)
        if all(one.costs.cost(choices) <= one.bound for one in constraints):
            return choices
    noise = {
        decision.name: dict(zip(decision.options, generator.gumbel(size=len(decision.options)), strict=True))
        for decision in space.decisions
    }
    return most_probable(space, noise, constraints)


def best_within(space, gain, constraints, lowest=0.0):
    """The choices of the largest gain whose costs keep all bounds.

    gain: a function of the choices of a group of decisions that depend on each other (a node, say); gains add up over
    the groups. lowest: as in most_probable. Solved group by group as a knapsack over costs in bins of a 4000th of a
    bound; the bounds themselves are kept exactly. With one constraint a solution is found whenever there is one; with
    several, a space that has hardly any may raise NnasError.
    """
    parts = [_Ways.of(part, gain) for part in groups(space, [one.costs for one in constraints])]
    if not lowest:
        parts = [part.without_dominated() for part in parts]
    bounds = np.array([one.bound for one in constraints])
    # What the groups that are still to come need at least.
    least = np.array([part.costs.min(axis=0) for part in parts])
    still = np.concatenate([np.cumsum(least[::-1], axis=0)[::-1][1:], np.zeros((1, len(bounds)))])
    total, spent, trail = np.zeros(1), np.zeros((1, len(bounds))), []
    for part, needed in zip(parts, still, strict=True):
        total = (total[:, None] + part.gains).ravel()
        spent = (spent[:, None] + part.costs).reshape(len(total), len(bounds))
        kept = np.flatnonzero((spent + needed <= bounds * (1 + 1e-12)).all(axis=1))
        if not len(kept):
            raise NnasError(
                "no architecture was found that keeps all bounds: "
                + ", ".join(f"{one.name} {one.bound:.4g} {one.costs.unit}" for one in constraints)
            )
        # Of equal bins the most probable stays, and of those the cheapest.
        kept = kept[np.lexsort((*spent[kept].T, -total[kept]))]
        bins = np.floor(spent[kept] / bounds * BINS).astype(np.int64)
        kept = kept[np.sort(np.unique(bins, axis=0, return_index=True)[1])]
        trail.append((kept, len(part.gains)))
        total, spent = total[kept], spent[kept]
    near = np.flatnonzero((spent >= lowest * bounds).all(axis=1))
    places = near if len(near) else np.arange(len(total))
    place = int(places[np.lexsort((spent[places].sum(axis=1), -total[places]))[0]])
    choices = {}
    for part, (kept, options) in zip(reversed(parts), reversed(trail), strict=True):
        place, option = divmod(int(kept[place]), options)
        choices.update(part.choices[option])
    return space.check(choices)


@dataclass(frozen=True)
class _Ways:
    """The ways to choose a group. choices: a list; gains: (ways,); costs: (ways, constraints)."""

    choices: list
    gains: np.ndarray
    costs: np.ndarray

    @classmethod
    def of(cls, group, gain):
        choices = [choices for choices, _ in group.assignments]
        costs = np.array([costs for _, costs in group.assignments], np.float64)
        costs = costs.reshape(len(choices), len(group.assignments[0][1]))
        return cls(choices, np.array([gain(each) for each in choices], np.float64), costs)

    def without_dominated(self):
        """Without those that cost as much as another at least, of every kind, and gain no more: a node has hundreds of
        ways, of which some tens are left."""
        kept = []
        for i in np.lexsort((*self.costs.T[::-1], -self.gains)):  # the largest gain first, of equal ones the cheapest
            if not kept or not (self.costs[kept] <= self.costs[i]).all(axis=1).any():
                kept.append(i)
        kept.sort()
        return _Ways([self.choices[i] for i in kept], self.gains[kept], self.costs[kept])
