"""A new device from a few measured networks: problems whose answer is known."""

import numpy as np
import pytest

from estimators import EstimatorError
from estimators.adaptation import adapt, posterior_costs, reaching

LAYERS, OPTIONS = 8, 4
PARTS = 1 + LAYERS * OPTIONS


@pytest.fixture
def random():
    return np.random.default_rng(0)


def networks(random, number):
    """Counts of random networks: one part that all have, and one option a layer."""
    chosen = random.integers(OPTIONS, size=(number, LAYERS))
    counts = np.zeros((number, PARTS))
    counts[:, 0] = 1
    for layer in range(LAYERS):
        counts[np.arange(number), 1 + layer * OPTIONS + chosen[:, layer]] = 1
    return counts


def relative_error(counts, costs, expected):
    return np.sqrt(np.mean((counts @ costs / (counts @ expected) - 1) ** 2))


def test_a_combination_of_sources_is_recovered_from_ten(random):
    """33 costs from 10 sums: only what the sources say makes that possible."""
    sources = random.uniform(0.1, 1, (3, PARTS))
    expected = 5 * sources[0] + 0.5 * sources[2]
    counts, others = networks(random, 10), networks(random, 500)
    adaptation = adapt(counts, counts @ expected, sources)
    alone = posterior_costs(counts, counts @ expected, (), ())
    assert relative_error(others, adaptation.costs, expected) < 0.01
    assert relative_error(others, alone, expected) > 0.05
    assert adaptation.error < 0.01


def test_neither_the_unit_nor_the_speed_of_a_source_matters(random):
    sources = random.uniform(0.1, 1, (2, PARTS))
    counts = networks(random, 10)
    latencies = counts @ (sources[0] + sources[1] ** 2)
    adaptation = adapt(counts, latencies, sources)
    scaled = adapt(counts, 1000 * latencies, sources * [[7.0], [0.01]])
    np.testing.assert_allclose(scaled.costs, 1000 * adaptation.costs, rtol=1e-6)
    assert scaled.error == pytest.approx(adaptation.error, rel=1e-6)


def test_many_networks_outweigh_the_sources(random):
    sources, expected = random.uniform(0.1, 1, (2, PARTS)), random.uniform(0.1, 1, PARTS)
    others = networks(random, 500)
    errors = []
    for number in (10, 200):
        counts = networks(random, number)
        errors.append(relative_error(others, posterior_costs(counts, counts @ expected, sources, ()), expected))
    assert errors[0] > 0.05 > 0.005 > errors[1]


def test_what_is_in_one_group_deviates_together(random):
    """Two options of all layers take three times as long as the only source says: ten networks tell, if it is known
    which parts are alike."""
    source = random.uniform(0.1, 1, PARTS)
    option = np.array([-1] + list(range(OPTIONS)) * LAYERS)
    expected = source * np.where(option >= 2, 3, 1)
    counts, others = networks(random, 10), networks(random, 500)
    grouped, alone = (
        relative_error(others, posterior_costs(counts, counts @ expected, [source], groupings), expected)
        for groupings in ([option], ())
    )
    assert grouped < 0.1 and grouped < alone / 2


def test_the_error_is_that_of_networks_left_out(random):
    """A device that no source is like: its ten networks are fitted well, and others are not."""
    sources, expected = random.uniform(0.1, 1, (3, PARTS)), random.uniform(0.1, 1, PARTS)
    counts, others = networks(random, 10), networks(random, 500)
    adaptation = adapt(counts, counts @ expected, sources)
    true = relative_error(others, adaptation.costs, expected)
    assert relative_error(counts, adaptation.costs, expected) < 0.5 * true
    assert 0.7 * true < adaptation.error < 1.8 * true


def test_all_costs_are_positive_where_the_sources_are(random):
    source = random.uniform(0.1, 1, PARTS)
    expected = source.copy()
    expected[1::OPTIONS] = 1e-6
    counts = networks(random, 100)
    costs = posterior_costs(counts, counts @ expected, [source], ())
    assert (costs > 0).all()
    # What those cost too much, the others cost less.
    assert relative_error(networks(random, 500), costs, expected) < 0.01


def bad(**changes):
    arguments = {"counts": np.eye(5), "latencies": np.ones(5), "sources": np.ones((2, 5)), "groupings": [range(5)]}
    return arguments | changes


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": np.eye(5)[:3], "latencies": np.ones(3)}, "4 measured networks at least.*there are 3"),
        ({"counts": np.ones((501, 5)), "latencies": np.ones(501)}, "500 at most, and there are 501"),
        ({"latencies": np.ones(4)}, "have to match"),
        ({"counts": np.ones((5, 6))}, "have to match"),
        ({"groupings": [range(4)]}, "have to match"),
        ({"latencies": [1, 2, 3, 4, 0]}, "positive latencies"),
        ({"latencies": [1, 2, 3, 4, float("nan")]}, "positive latencies"),
        ({"sources": [[1, 1, 1, 1, -1]]}, "cost 0 or more"),
        ({"sources": np.zeros((1, 5))}, "cost 0 or more"),
    ],
)
def test_bad_input_is_one_line(changes, says):
    adapt(**bad())
    with pytest.raises(EstimatorError, match=says) as caught:
        adapt(**bad(**changes))
    assert "\n" not in str(caught.value)


def test_what_reaches_the_output():
    """Nodes 0 to 3; the operators of 0-1, 0-2, 1-2, 0-3, 1-3, 2-3."""
    edges = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
    cases = {
        "111111": "111111",
        "111110": "100110",  # nothing leaves node 2, so that 0-2 and 1-2 are for nothing
        "111100": "000100",
        "110011": "111111",  # a "none" reaches the output too, it passes nothing on
        "011001": "011001",  # nothing enters node 1, and 1-2 still reaches
    }
    carries = np.array([[one == "1" for one in text] for text in cases])
    found = reaching(edges, carries, 3) & carries
    expected = np.array([[one == "1" for one in text] for text in cases.values()]) & carries
    assert (found == expected).all()
    # A "none" counts as reaching where what it leads to reaches.
    assert reaching(edges, carries[3:4], 3).all()
    assert (reaching(edges, carries[1:2], 3) == [[True, False, False, True, True, True]]).all()
    order = [5, 0, 3, 1, 4, 2]
    shuffled = reaching([edges[edge] for edge in order], carries[:, order], 3)
    assert (shuffled == reaching(edges, carries, 3)[:, order]).all()
