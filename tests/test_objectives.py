"""Rewards, bounds, and the most probable architecture within them."""

from functools import cache

import numpy as np
import pytest
from test_costs import NESTED, SHAPE, architectures, random_costs, random_probabilities

from nnas.costs import Costs, Term, extremes
from nnas.errors import NnasError
from nnas.objectives import (
    BINS,
    Absolute,
    Constraint,
    LinearPenalty,
    LogProduct,
    Loss,
    MnasnetHard,
    MnasnetSoft,
    Reward,
    RewardMin,
    constraint,
    most_probable,
)
from nnas.space import Decision, Site, Space

FLAT = Space(
    "flat",
    tuple(Decision(f"d{i}", ("x", "y", "z"), (Site(SHAPE),)) for i in range(5))
    + (Decision("inner", ("u", "v"), (Site(SHAPE, (("d0", "y"),)),)),),
)
SPACES = [NESTED, FLAT]


def one(space, costs, bound, name="latency"):
    return Constraint(name, costs, bound, 1.0)


def logarithms(probabilities):
    return {name: {option: np.log(p) for option, p in options.items()} for name, options in probabilities.items()}


def log_probability(log_probabilities, choices):
    return sum(log_probabilities[name][option] for name, option in choices.items())


@cache
def all_costs(space, costs):
    return np.array([costs.cost(choices) for choices in architectures(space)])


def brute_force(space, log_probabilities, constraints, tightened=0.0):
    """The largest log probability within bounds that are `tightened` by a relative amount, or None."""
    within = np.ones(len(architectures(space)), bool)
    for one in constraints:
        within &= all_costs(space, one.costs) <= one.bound * (1 + 1e-12 - tightened)
    kept = np.flatnonzero(within)
    return max((log_probability(log_probabilities, architectures(space)[i]) for i in kept), default=None)


def test_reward_by_formula():
    costs = Costs("ms", (Term((), 1.0, "all"),))
    constraints = [Constraint("latency", costs, 2.0, 0.5), Constraint("macs", costs, 100.0, 1.5)]
    reward = RewardMin()
    assert reward(0.8, {"latency": 1.0, "macs": 50.0}, constraints) == pytest.approx(0.8)
    assert reward(0.8, {"latency": 2.0, "macs": 100.0}, constraints) == pytest.approx(0.8)
    assert reward(0.8, {"latency": 8.0, "macs": 100.0}, constraints) == pytest.approx(0.8 * (2 / 8) ** 0.5)
    assert reward(0.8, {"latency": 1.0, "macs": 400.0}, constraints) == pytest.approx(0.8 * (1 / 4) ** 1.5)
    assert reward(0.5, {"latency": 3.0, "macs": 300.0}, constraints) == pytest.approx(0.5 * (2 / 3) ** 0.5 / 3**1.5)
    assert reward(0.7, {}, []) == 0.7
    assert reward(0.7, {"latency": 0.0}, constraints[:1]) == pytest.approx(0.7)


# By the papers, with T the bound: reward(accuracy, cost / T, weight).
REWARDS = {
    RewardMin: lambda accuracy, ratio, weight: accuracy * min(1, 1 / ratio) ** weight,
    MnasnetSoft: lambda accuracy, ratio, weight: accuracy * ratio**-weight,
    MnasnetHard: lambda accuracy, ratio, weight: accuracy * (ratio**-weight if ratio > 1 else 1),
    Absolute: lambda accuracy, ratio, weight: accuracy - weight * abs(ratio - 1),
}


@pytest.mark.parametrize("objective", REWARDS)
def test_rewards_by_formula_in_any_unit(objective, random):
    for _ in range(20):
        accuracy, cost, bound, weight = random.uniform(0.01, 1, 4)
        rewards = [
            objective()(accuracy, {"x": cost * scale}, [Constraint("x", None, bound * scale, weight)])
            for scale in (1, 1000, 1e-6)
        ]
        np.testing.assert_allclose(rewards, REWARDS[objective](accuracy, cost / bound, weight), rtol=1e-12)


@pytest.mark.parametrize("ratio", [0.25, 4.0])
def test_rewards_with_the_weights_of_the_papers(ratio):
    def of(objective):
        return objective()(0.8, {"x": 3 * ratio}, [Constraint("x", None, 3.0)])

    assert of(MnasnetSoft) == pytest.approx(0.8 * ratio**-0.07)
    assert of(MnasnetHard) == pytest.approx(0.8 * (ratio**-1 if ratio > 1 else 1))
    assert of(RewardMin) == pytest.approx(0.8 * min(1, 1 / ratio) ** 0.1)
    assert of(lambda: Absolute(weight=0.1)) == pytest.approx(0.8 - 0.1 * abs(ratio - 1))


def test_several_constraints_count_together():
    constraints = [Constraint("x", None, 2.0, 0.5), Constraint("y", None, 10.0)]
    costs = {"x": 4.0, "y": 30.0}
    assert MnasnetSoft(weight=0.2)(0.8, costs, constraints) == pytest.approx(0.8 * 2**-0.5 * 3**-0.2)
    assert MnasnetHard()(0.8, costs, constraints) == pytest.approx(0.8 * 2**-0.5 / 3)
    assert Absolute(weight=0.2)(0.8, costs, constraints) == pytest.approx(0.8 - 0.5 * 1 - 0.2 * 2)


LOSSES = {
    LinearPenalty: (
        lambda: LinearPenalty(weight=0.3),
        lambda ce, x, y: ce + 0.5 * (x - 2) / 2 + 0.3 * (y - 10) / 10,
    ),
    LogProduct: (
        lambda: LogProduct(scale=0.7, weight=0.3),
        lambda ce, x, y: 0.7 * ce * (np.log(x) / np.log(2)) ** 0.5 * (np.log(y) / np.log(10)) ** 0.3,
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_by_formula_and_finite_difference(loss, random):
    make, formula = LOSSES[loss]
    constraints = [Constraint("x", None, 2.0, 0.5), Constraint("y", None, 10.0)]
    for _ in range(10):
        given = random.uniform((0.1, 1.1, 1.1), (3, 5, 30))
        value, factor, slopes = make()(given[0], dict(zip("xy", given[1:], strict=True)), constraints)
        assert value == pytest.approx(formula(*given))
        for step, derivative in zip(1e-6 * np.eye(3), (factor, slopes["x"], slopes["y"]), strict=True):
            difference = (formula(*(given + step)) - formula(*(given - step))) / 2e-6
            assert derivative == pytest.approx(difference, rel=1e-6)


@pytest.mark.parametrize("bound, cheapest", [(1.0, 2.0), (0.5, 2.0), (3.0, 1.0), (3.0, 0.2)])
def test_logarithms_of_costs_below_one_are_refused(bound, cheapest):
    space = Space("pair", (Decision("d", ("x", "y"), (Site(SHAPE),)),))
    costs = Costs("ms", (Term((("d", "x"),), cheapest, ""), Term((("d", "y"),), 9.0, "")))
    with pytest.raises(NnasError, match=r"the latency bound is .* ms; take objective=linear_penalty") as caught:
        LogProduct().check(space, [one(space, costs, bound)])
    assert f"{bound:.4g}" in str(caught.value) and "\n" not in str(caught.value)
    LogProduct().check(space, [one(space, Costs("ms", (Term((), 1.0, ""), *costs.terms)), 1.1)])
    LinearPenalty().check(space, [one(space, costs, bound)])


@pytest.mark.parametrize("make", [*REWARDS, *LOSSES])
@pytest.mark.parametrize("weight", [-0.1, "much", float("nan"), True])
def test_wrong_weights_of_objectives_are_named(make, weight):
    with pytest.raises(NnasError, match=r"objective\.weight="):
        make(weight=weight)


def test_objectives_are_known_by_name():
    assert {"reward_min", "mnasnet_soft", "mnasnet_hard", "absolute"} <= set(Reward.names())
    assert {"linear_penalty", "log_product"} <= set(Loss.names())


def whole_costs(space, random):
    """Costs in whole ms, of which no two different sums share a bin."""
    terms = random_costs(space, random).terms
    return Costs("ms", tuple(Term(term.when, float(random.integers(0, 40)), term.label) for term in terms))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
@pytest.mark.parametrize("seed", range(4))
def test_the_most_probable_of_those_near_the_bound(space, seed):
    """With costs in whole numbers no bin holds two different sums. Where nothing is near, what keeps the bound."""
    random = np.random.default_rng(seed)
    costs, logs = whole_costs(space, random), logarithms(random_probabilities(space, random))
    every = all_costs(space, costs)
    found = {True: 0, False: 0}
    for bound in {*every, *(every + 0.5)} - {0.0}:
        choices = most_probable(space, logs, [one(space, costs, bound)], lowest=0.99)
        near = np.flatnonzero((every <= bound) & (every >= 0.99 * bound))
        allowed = near if len(near) else np.flatnonzero(every <= bound)
        if not len(allowed):
            continue
        best = max(log_probability(logs, architectures(space)[i]) for i in allowed)
        assert log_probability(logs, choices) == pytest.approx(best, rel=1e-9)
        found[bool(len(near))] += 1
    assert found[True] > 3


def test_a_bound_below_the_smallest_network_names_the_smallest_value(random):
    costs = random_costs(NESTED, random)
    smallest, _ = extremes(NESTED, costs)
    with pytest.raises(NnasError) as caught:
        constraint(NESTED, "latency", costs, smallest * 0.99, None, 1.0)
    text = str(caught.value)
    named = float(text.split("smallest possible value is ")[1].split()[0])
    assert smallest <= named <= smallest * 1.001 and f"{smallest * 0.99:.4g} ms" in text
    assert "\n" not in text


def test_the_named_smallest_value_can_be_typed_in(random):
    """Someone who takes the number of the error as the bound must get a search."""
    for _ in range(20):
        costs = random_costs(NESTED, random)
        with pytest.raises(NnasError) as caught:
            constraint(NESTED, "latency", costs, 1e-3, None, 1.0)
        named = float(str(caught.value).split("smallest possible value is ")[1].split()[0])
        constraint(NESTED, "latency", costs, named, None, 1.0)


def test_a_bound_above_the_largest_network_warns(random):
    costs = random_costs(NESTED, random)
    _, largest = extremes(NESTED, costs)
    made, warning = constraint(NESTED, "latency", costs, largest * 1.01, None, 1.0)
    assert made.bound == largest * 1.01
    assert f"{largest:.4g} ms" in warning and "no bound" in warning
    assert constraint(NESTED, "latency", costs, largest * 0.99, None, 1.0)[1] is None


def test_a_bound_as_a_fraction_of_the_largest(random):
    costs = random_costs(NESTED, random)
    _, largest = extremes(NESTED, costs)
    made, warning = constraint(NESTED, "latency", costs, None, 0.9, 0.3)
    assert (made.name, made.costs, made.weight, warning) == ("latency", costs, 0.3, None)
    assert made.bound == pytest.approx(0.9 * largest)
    assert constraint(NESTED, "latency", costs, 0.8 * largest, 0.9, 1.0)[0].bound == 0.8 * largest


@pytest.mark.parametrize(
    "bound, fraction, weight, named",
    [
        ("2ms", None, 1.0, "bound"),
        (-1, None, 1.0, "bound"),
        (0, None, 1.0, "bound"),
        (float("nan"), None, 1.0, "bound"),
        (True, None, 1.0, "bound"),
        (None, None, 1.0, "fraction"),
        (None, 0, 1.0, "fraction"),
        (None, "half", 1.0, "fraction"),
        (2.0, None, -1, "weight"),
        (2.0, None, "much", "weight"),
    ],
)
def test_wrong_bounds_and_weights_are_named(bound, fraction, weight, named):
    costs = Costs("ms", (Term((), 1.0, "all"),))
    with pytest.raises(NnasError, match=rf"constraints\.latency\.{named}="):
        constraint(NESTED, "latency", costs, bound, fraction, weight)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
@pytest.mark.parametrize("seed", range(6))
def test_most_probable_equals_brute_force_where_bins_are_exact(space, seed):
    """With costs that are multiples of a 500th of the bound no two different sums share a bin."""
    random = np.random.default_rng(seed)
    costs = whole_costs(space, random)
    logs = logarithms(random_probabilities(space, random))
    smallest, largest = extremes(space, costs)
    for bound in {smallest, smallest + 1, (smallest + largest) // 2, largest - 1, largest, largest + 10} - {0.0}:
        constraints = [one(space, costs, bound)]
        choices = most_probable(space, logs, constraints)
        assert costs.cost(choices) <= bound
        assert log_probability(logs, choices) == pytest.approx(brute_force(space, logs, constraints), rel=1e-9)
        assert space.check(choices) == choices


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_most_probable_is_within_bounds_and_as_probable_as_bins_allow(space, number, seed):
    random = np.random.default_rng([seed, number])
    tables = [random_costs(space, random, random.uniform(0.5, 2), unit) for unit in ("ms", "KiB")[:number]]
    logs = logarithms(random_probabilities(space, random))
    parts = len(space.decisions) + 1
    for _ in range(6):
        # Bounds that at least one architecture keeps, with some room where there are two of them.
        reached = architectures(space)[random.integers(len(architectures(space)))]
        room = 1.0 if number == 1 else 1.02
        constraints = [one(space, table, table.cost(reached) * room, table.unit) for table in tables]
        choices = most_probable(space, logs, constraints)
        assert space.check(choices) == choices
        for each in constraints:
            assert each.costs.cost(choices) <= each.bound * (1 + 1e-11)
        found = log_probability(logs, choices)
        assert found <= brute_force(space, logs, constraints) + 1e-9
        nearly = brute_force(space, logs, constraints, tightened=parts / BINS)
        assert nearly is None or found >= nearly - 1e-9


def test_without_constraints_the_most_probable_of_all(random):
    for space in SPACES:
        logs = logarithms(random_probabilities(space, random))
        found = log_probability(logs, most_probable(space, logs, []))
        assert found == pytest.approx(brute_force(space, logs, []))


@pytest.mark.parametrize("seed", range(10))
def test_the_smallest_bound_that_is_possible_is_kept(seed):
    random = np.random.default_rng(seed)
    for space in SPACES:
        costs = random_costs(space, random, factor=random.uniform(0.3, 3))
        smallest, _ = extremes(space, costs)
        made, _ = constraint(space, "latency", costs, smallest, None, 1.0)
        choices = most_probable(space, logarithms(random_probabilities(space, random)), [made])
        assert costs.cost(choices) == pytest.approx(smallest, rel=1e-11)


def test_a_bound_finer_than_a_bin_is_kept(random):
    """Options that differ by a millionth: what is slightly too dear must not displace what still fits."""
    terms = [
        Term(((decision.name, option),), 1 + 1e-6 * number, "")
        for decision in FLAT.decisions[:5]
        for number, option in enumerate(decision.options)
    ]
    costs = Costs("ms", tuple(terms))
    logs = {d.name: {option: float(i) for i, option in enumerate(d.options)} for d in FLAT.decisions}
    for steps in range(11):
        choices = most_probable(FLAT, logs, [one(FLAT, costs, 5 + 1e-6 * steps)])
        assert costs.cost(choices) <= 5 + 1.001e-6 * steps


def test_a_search_that_is_certain_still_has_a_best(random):
    """Probabilities of exactly 0 have the logarithm minus infinity."""
    costs = random_costs(FLAT, random)
    logs = {
        decision.name: {option: 0.0 if i == 0 else -np.inf for i, option in enumerate(decision.options)}
        for decision in FLAT.decisions
    }
    smallest, largest = extremes(FLAT, costs)
    assert most_probable(FLAT, logs, [one(FLAT, costs, largest)]) == {f"d{i}": "x" for i in range(5)}
    # Here no architecture of positive probability keeps the bound, but there is one that keeps it.
    assert costs.cost(most_probable(FLAT, logs, [one(FLAT, costs, smallest)])) == pytest.approx(smallest)


def test_bounds_that_exclude_each_other_are_an_error():
    space = Space("pair", (Decision("d", ("x", "y"), (Site(SHAPE),)),))
    terms = [
        Costs(unit, (Term((("d", fast),), 1.0, ""), Term((("d", slow),), 2.0, "")))
        for unit, fast, slow in (("ms", "x", "y"), ("KiB", "y", "x"))
    ]
    constraints = [one(space, costs, 1.5, costs.unit) for costs in terms]
    with pytest.raises(NnasError, match=r"keeps all bounds: ms 1.5 ms, KiB 1.5 KiB"):
        most_probable(space, {"d": {"x": 0.0, "y": 0.0}}, constraints)


def test_a_large_space_takes_a_moment(random):
    """21 decisions of 7 options under one bound, as in the space for CIFAR-10."""
    space = Space("large", tuple(Decision(f"d{i}", tuple("abcdefg"), (Site(SHAPE),)) for i in range(21)))
    costs = random_costs(space, random)
    smallest, largest = extremes(space, costs)
    logs = logarithms(random_probabilities(space, random))
    made, _ = constraint(space, "latency", costs, 0.5 * (smallest + largest), None, 1.0)
    choices = most_probable(space, logs, [made])
    assert costs.cost(choices) <= made.bound * (1 + 1e-11)
    # No change of one decision, nor of two, is more probable and still within the bound.
    best = log_probability(logs, choices)
    for decision in space.decisions:
        for option in decision.options:
            other = {**choices, decision.name: option}
            if costs.cost(other) <= made.bound * (1 - 21 / BINS):
                assert log_probability(logs, other) <= best + 1e-9
