"""Random search: what it draws and what it keeps."""

import numpy as np
import pytest
from test_costs import NESTED, architectures, random_costs

from nnas.communicator import Alone
from nnas.costs import extremes
from nnas.errors import NnasError
from nnas.objectives import Constraint, RewardMin
from nnas.searchers.random_search import RandomSearch


def searching(bound, costs, seed=0, **changes):
    return RandomSearch(NESTED, [Constraint("latency", costs, bound)], RewardMin(), Alone(), seed, **changes)


def test_draws_are_uniform_within_the_bound(random):
    """As those of the space, given that they keep the bound."""
    costs = random_costs(NESTED, random)
    bound = np.median([costs.cost(choices) for choices in architectures(NESTED)])
    searcher = searching(bound, costs)
    drawn = [tuple(searcher.sample().items()) for _ in range(2000)]
    assert all(costs.cost(dict(one)) <= bound for one in drawn)
    weights = {}
    for choices in architectures(NESTED):
        if costs.cost(choices) <= bound:
            weights[tuple(choices.items())] = np.prod([1 / len(NESTED.decision(name).options) for name in choices])
    total = sum(weights.values())
    assert set(drawn) == set(weights)
    for one, weight in weights.items():
        p = weight / total
        assert abs(drawn.count(one) / 2000 - p) < 4.5 * np.sqrt(p * (1 - p) / 2000)


def test_a_bound_that_hardly_any_keeps_still_gives_draws(random, monkeypatch):
    monkeypatch.setattr("nnas.objectives.TRIES", 1)
    costs = random_costs(NESTED, random)
    smallest, largest = extremes(NESTED, costs)
    assert costs.cost(searching(smallest, costs).sample()) == pytest.approx(smallest)
    roomy = searching(0.5 * (smallest + largest), costs)
    assert len({tuple(roomy.sample().items()) for _ in range(50)}) > 5


def test_it_keeps_the_best_it_has_seen(random):
    costs = random_costs(NESTED, random)
    searcher = searching(extremes(NESTED, costs)[1], costs, samples=4)
    seen = {}

    def evaluate(choices):
        accuracy = random.uniform(0, 1)
        seen[accuracy] = choices
        return accuracy

    for number in range(1, 6):
        figures = searcher.step(evaluate)
        assert len(seen) == 4 * number
        assert searcher.best() == seen[max(seen)]
        last = list(seen)[-4:]
        assert figures == {
            "reward": pytest.approx(np.mean(last)),
            "validation_error": pytest.approx(1 - np.mean(last)),
        }


def test_before_a_step_there_is_an_architecture_within_the_bound(random):
    costs = random_costs(NESTED, random)
    bound = extremes(NESTED, costs)[0] * 1.2
    assert costs.cost(searching(bound, costs).best()) <= bound


@pytest.mark.parametrize("samples", [0, 2.5, "ten"])
def test_wrong_values_are_named(samples, random):
    with pytest.raises(NnasError, match=r"searcher\.samples="):
        searching(100.0, random_costs(NESTED, random), samples=samples)
