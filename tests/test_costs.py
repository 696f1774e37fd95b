"""Costs of architectures, by enumeration."""

import hashlib
import json
from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest

from nnas import costs as costs_module
from nnas.costs import Costs, Term, extremes, groups, load_costs
from nnas.errors import NnasError
from nnas.files import write_json
from nnas.objectives import constraint
from nnas.space import Decision, Site, Space

SHAPE = (1, 2, 2)

# d has two sites, one of them nested; c is nested in b, which is nested in a; e and f stand alone.
NESTED = Space(
    "nested",
    (
        Decision("a", ("a0", "a1", "a2"), (Site(SHAPE),)),
        Decision("b", ("b0", "b1"), (Site(SHAPE, (("a", "a1"),)),)),
        Decision("c", ("c0", "c1", "c2"), (Site(SHAPE, (("a", "a1"), ("b", "b0"))), Site(SHAPE, (("a", "a2"),)))),
        Decision("d", ("d0", "d1"), (Site(SHAPE), Site(SHAPE, (("a", "a0"),)))),
        Decision("e", ("e0", "e1", "e2"), (Site(SHAPE),)),
        Decision("f", ("f0",), (Site(SHAPE),)),
    ),
)


@cache
def architectures(space):
    """All architectures of a space, each once."""
    found = {}
    for options in product(*(decision.options for decision in space.decisions)):
        given = dict(zip((decision.name for decision in space.decisions), options, strict=True))
        choices = space.complete(lambda decision, given=given: given[decision.name])
        found[tuple(choices.items())] = choices
    return list(found.values())


def random_costs(space, random, factor=1.0, unit="ms"):
    """A fixed term and one or two for every option at every site, with what is around it."""
    terms = [Term((), random.uniform(0.1, 1), "stem")]
    for decision in space.decisions:
        for site in decision.sites:
            for option in decision.options:
                when = site.when + ((decision.name, option),)
                terms += [Term(when, random.uniform(0, 1), str(when)) for _ in range(random.integers(1, 3))]
    return Costs(unit, tuple(terms), factor)


def random_probabilities(space, random):
    return {
        decision.name: dict(zip(decision.options, random.dirichlet(np.ones(len(decision.options))), strict=True))
        for decision in space.decisions
    }


def held_by_hand(costs, choices):
    return costs.factor * sum(term.cost for term in costs.terms if set(term.when) <= set(choices.items()))


@pytest.mark.parametrize("seed", range(5))
def test_cost_is_the_sum_of_the_terms_that_hold(seed):
    random = np.random.default_rng(seed)
    costs = random_costs(NESTED, random, factor=random.uniform(0.5, 2))
    for choices in architectures(NESTED):
        assert costs.cost(choices) == pytest.approx(held_by_hand(costs, choices), rel=1e-12)
        assert costs.cost(choices) == pytest.approx(
            costs.factor * Costs(costs.unit, costs.terms).cost(choices), rel=1e-12
        )


@pytest.mark.parametrize("seed", range(5))
def test_expected_cost_is_the_mean_over_all_assignments(seed):
    random = np.random.default_rng(seed)
    costs = random_costs(NESTED, random, factor=1.3)
    probabilities = random_probabilities(NESTED, random)
    mean = 0
    for options in product(*(decision.options for decision in NESTED.decisions)):
        given = dict(zip((decision.name for decision in NESTED.decisions), options, strict=True))
        weight = prod(probabilities[name][option] for name, option in given.items())
        mean += weight * costs.cost(NESTED.complete(lambda decision, given=given: given[decision.name]))
    assert costs.expected(probabilities) == pytest.approx(mean, rel=1e-9)


def test_a_decision_counts_once_in_a_term():
    """Cells of one type share their decisions, so that a term may meet a decision twice on its way inward."""
    costs = Costs("ms", (Term((("a", "x"), ("a", "x")), 2.0, "twice"),))
    assert costs.cost({"a": "x"}) == 2
    assert costs.expected({"a": {"x": 0.5, "y": 0.5}}) == pytest.approx(1.0)
    assert costs.gradient({"a": {"x": 0.5, "y": 0.5}}) == {"a": {"x": 2.0, "y": 0.0}}


@pytest.mark.parametrize("seed", range(5))
def test_gradient_of_the_expected_cost_equals_full_enumeration(seed):
    """The expected cost is linear in each probability: its derivative is what one more of it adds."""
    random = np.random.default_rng(seed)
    costs = random_costs(NESTED, random, factor=1.3)
    probabilities = random_probabilities(NESTED, random)
    assignments = list(product(*(decision.options for decision in NESTED.decisions)))
    names = [decision.name for decision in NESTED.decisions]
    exact = {decision.name: dict.fromkeys(decision.options, 0.0) for decision in NESTED.decisions}
    for options in assignments:
        given = dict(zip(names, options, strict=True))
        cost = costs.cost(NESTED.complete(lambda decision, given=given: given[decision.name]))
        for name, option in given.items():
            exact[name][option] += cost * prod(probabilities[other][given[other]] for other in names if other != name)
    gradient = costs.gradient(probabilities)
    for name in names:
        # Enumeration counts what does not depend on a decision for each of its options; a softmax cannot see that.
        ours, theirs = (np.array(list(one[name].values())) for one in (gradient, exact))
        np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-9, atol=1e-12)
        for option in probabilities[name]:
            moved = {**probabilities, name: {**probabilities[name], option: probabilities[name][option] + 1}}
            assert gradient[name][option] == pytest.approx(costs.expected(moved) - costs.expected(probabilities))
    assert max(gradient["c"].values()) > 0, "a nested decision"


def test_expected_cost_of_certain_probabilities_is_the_cost(random):
    costs = random_costs(NESTED, random)
    for choices in architectures(NESTED):
        certain = {
            decision.name: {option: float(choices.get(decision.name) == option) for option in decision.options}
            for decision in NESTED.decisions
        }
        assert costs.expected(certain) == pytest.approx(costs.cost(choices))


@pytest.mark.parametrize("seed", range(5))
def test_extremes_are_those_of_all_architectures(seed):
    random = np.random.default_rng(seed)
    costs = random_costs(NESTED, random, factor=random.uniform(0.5, 2))
    every = [costs.cost(choices) for choices in architectures(NESTED)]
    assert extremes(NESTED, costs) == pytest.approx((min(every), max(every)), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_groups_cut_the_space_where_costs_add_up(seed):
    random = np.random.default_rng(seed)
    tables = [random_costs(NESTED, random, factor=2.0), random_costs(NESTED, random, unit="KiB")]
    parts = groups(NESTED, tables)
    names = [{name for choices, _ in part.assignments for name in choices} for part in parts]
    assert sorted(map(sorted, names)) == [[], ["a", "b", "c", "d"], ["e"], ["f"]]
    # Every architecture is one assignment of each group, and its costs are their sums.
    rebuilt = {}
    for picked in product(*(part.assignments for part in parts)):
        choices = {name: option for own, _ in picked for name, option in own.items()}
        assert NESTED.check(choices) == choices or set(NESTED.check(choices)) == set(choices)
        total = np.sum([cost for _, cost in picked], axis=0)
        np.testing.assert_allclose(total, [costs.cost(choices) for costs in tables], rtol=1e-12)
        rebuilt[frozenset(choices.items())] = True
    assert len(rebuilt) == len(architectures(NESTED)) == prod(len(part.assignments) for part in parts)


def test_a_term_over_several_decisions_joins_them(random):
    costs = random_costs(NESTED, random)
    joined = Costs("ms", (*costs.terms, Term((("e", "e1"), ("f", "f0")), 5.0, "both")))
    names = [{name for choices, _ in part.assignments for name in choices} for part in groups(NESTED, [joined])]
    assert {"e", "f"} in names
    every = [joined.cost(choices) for choices in architectures(NESTED)]
    assert extremes(NESTED, joined) == pytest.approx((min(every), max(every)))


def test_a_group_that_cannot_be_listed_is_an_error(monkeypatch, random):
    monkeypatch.setattr(costs_module, "LARGEST_GROUP", 35)
    with pytest.raises(NnasError, match=r"a, b, c, d of nested depend on each other in 36 ways; at most 35"):
        groups(NESTED, [random_costs(NESTED, random)])
    monkeypatch.setattr(costs_module, "LARGEST_GROUP", 36)
    assert len(groups(NESTED, [random_costs(NESTED, random)])) == 4


def test_a_large_group_is_refused_before_it_is_listed():
    inner = [Decision(f"d{i}", tuple("abcdefg"), (Site(SHAPE, (("top", "x"),)),)) for i in range(21)]
    space = Space("large", (Decision("top", ("x", "y"), (Site(SHAPE),)), *inner))
    with pytest.raises(NnasError, match="nest fewer decisions"):
        groups(space, [Costs("ms", (Term((), 1.0, "stem"),))])


def test_round_trip_of_a_costs_file(tmp_path, random):
    costs = Costs("ms", random_costs(NESTED, random).terms, 1.23456789, 0.0123, {"device": {"processor": "x"}})
    other = Costs("MACs", (Term((), 3.0, "stem"),))
    write_json(tmp_path / "costs.json", {"latency": costs.to_json(), "macs": other.to_json()})
    loaded = load_costs(tmp_path / "costs.json")
    assert loaded == {"latency": costs, "macs": other}
    assert list(loaded) == ["latency", "macs"]
    for choices in architectures(NESTED):
        assert loaded["latency"].cost(choices) == costs.cost(choices)


def damaged(change):
    content = {
        "unit": "ms",
        "factor": 1.1,
        "error": 0.01,
        "description": None,
        "terms": [{"when": {}, "cost": 1.0, "label": "stem"}, {"when": {"e": "e1"}, "cost": 0.5, "label": "e = e1"}],
    }
    change(content)
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"latency": {**content, "digest": digest}}


def test_the_content_that_is_damaged_here_is_right_before(tmp_path):
    (tmp_path / "costs.json").write_text(json.dumps(damaged(lambda c: None)))
    assert load_costs(tmp_path / "costs.json")["latency"].cost({"e": "e1"}) == pytest.approx(1.65)


def test_a_term_that_was_removed_is_no_cost_of_zero(tmp_path):
    content = damaged(lambda c: None)
    content["latency"]["terms"].pop()
    (tmp_path / "costs.json").write_text(json.dumps(content))
    with pytest.raises(NnasError, match="costs.json: its costs are not those that were written"):
        load_costs(tmp_path / "costs.json")


@pytest.mark.parametrize(
    "content",
    [
        [],
        3,
        {"latency": []},
        {"latency": None},
        damaged(lambda c: c.pop("terms")),
        damaged(lambda c: c.pop("factor")),
        damaged(lambda c: c.pop("unit")),
        damaged(lambda c: c.update(unit=7)),
        damaged(lambda c: c.update(description="here")),
        damaged(lambda c: c.update(factor=0)),
        damaged(lambda c: c.update(factor=-1)),
        damaged(lambda c: c.update(factor="fast")),
        damaged(lambda c: c.update(factor=float("inf"))),
        damaged(lambda c: c.update(factor=float("nan"))),
        damaged(lambda c: c.update(error=float("nan"))),
        damaged(lambda c: c["terms"][0].pop("cost")),
        damaged(lambda c: c["terms"][0].update(cost=None)),
        damaged(lambda c: c["terms"][0].update(cost=-0.1)),
        damaged(lambda c: c["terms"][0].update(cost=float("nan"))),
        damaged(lambda c: c["terms"][0].update(cost=float("inf"))),
        damaged(lambda c: c["terms"][0].update(cost=float("nan"), label=None)),
        damaged(lambda c: c["terms"][0].update(when=[["e", "e1"]])),
    ],
)
def test_a_damaged_costs_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "costs.json").write_text(json.dumps(content))
    with pytest.raises(NnasError, match="costs.json"):
        load_costs(tmp_path / "costs.json")


def test_a_half_written_costs_file_is_refused(tmp_path, random):
    text = json.dumps({"latency": random_costs(NESTED, random).to_json()})
    for length in range(0, len(text), len(text) // 10):
        (tmp_path / "costs.json").write_text(text[:length])
        with pytest.raises(NnasError, match="costs.json"):
            load_costs(tmp_path / "costs.json")


@pytest.mark.parametrize("when", [{"elsewhere": "x"}, {"e": "no option of it"}])
def test_costs_of_another_space_are_refused(when):
    """An option that no architecture has would be a cost that silently never counts."""
    costs = Costs("ms", (Term((), 1.0, "stem"), Term(tuple(when.items()), 2.0, "foreign")))
    with pytest.raises(NnasError, match="nested"):
        constraint(NESTED, "latency", costs, 2.0, None, 1.0)
