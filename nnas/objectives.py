"""Rewards from accuracy and cost, and the architectures that keep within bounds."""

from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

from nnas.costs import Costs, extremes, groups
from nnas.errors import NnasError, check_number

BINS = 4000


@dataclass(frozen=True)
class Constraint:
    """cost(architecture) <= bound, in the unit of `costs`. weight: of its factor in the reward."""

    name: str
    costs: Costs
    bound: float
    weight: float


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


class RewardMin:
    """accuracy x product over the constraints of min(1, bound / cost) ** weight: no gain from being below a bound."""

    def __call__(self, accuracy, costs, constraints):
        """costs: {constraint: cost} of the architecture."""
        reward = accuracy
        for one in constraints:
            reward *= (one.bound / max(costs[one.name], one.bound)) ** one.weight
        return reward


def most_probable(space, log_probabilities, constraints):
    """The most probable choices whose costs keep all bounds.

    log_probabilities: {decision: {option: number}}. Solved group by group as a knapsack over costs in bins of a
    4000th of a bound; the bounds themselves are kept exactly. With one constraint a solution is found whenever there
    is one; with several, a space that has hardly any may raise NnasError.
    """
    parts = groups(space, [one.costs for one in constraints])
    bounds = np.array([one.bound for one in constraints])
    costs = [
        np.array([cost for _, cost in part.assignments]).reshape(len(part.assignments), len(bounds)) for part in parts
    ]
    gains = [
        np.array(
            [
                sum(log_probabilities[name][option] for name, option in choices.items())
                for choices, _ in part.assignments
            ]
        )
        for part in parts
    ]
    # What the groups that are still to come need at least.
    least = np.array([cost.min(axis=0) for cost in costs])
    still = np.concatenate([np.cumsum(least[::-1], axis=0)[::-1][1:], np.zeros((1, len(bounds)))])
    total, spent, trail = np.zeros(1), np.zeros((1, len(bounds))), []
    for cost, gain, needed in zip(costs, gains, still, strict=True):
        total = (total[:, None] + gain).ravel()
        spent = (spent[:, None] + cost).reshape(len(total), len(bounds))
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
        trail.append((kept, len(gain)))
        total, spent = total[kept], spent[kept]
    place = int(np.lexsort((spent.sum(axis=1), -total))[0])
    choices = {}
    for part, (kept, options) in zip(reversed(parts), reversed(trail), strict=True):
        place, option = divmod(int(kept[place]), options)
        choices.update(part.assignments[option][0])
    return space.check(choices)
