"""From what a searcher has learnt to an architecture."""

from functools import cache
from itertools import product

import nnabla as nn
import numpy as np
import pytest
from conftest import Cells, small_mobilenet
from test_reinforce import reinforce, with_alphas

from estimators.macs import MACs
from nnas.costs import extremes
from nnas.deciders import Mixture, listed
from nnas.errors import NnasError
from nnas.finalizers import Argmax, Divnas, Random, activations, information
from nnas.layers import SAMPLED_EVALUATION
from nnas.objectives import Constraint
from nnas.pricing import price
from nnas.searchers.random_search import RandomSearch
from nnas.updates import parameter_arrays


class Images:
    """A fixed split."""

    def __init__(self, count, shape):
        self._images = np.random.default_rng(5).normal(size=(count, *shape)).astype(np.float32)

    def __len__(self):
        return len(self._images)

    def draw(self, indices, generator):
        return self._images[indices], np.zeros((len(indices), 1))


class Cell(Cells):
    """Nodes with three inputs, so that there is a choice among many subsets."""

    nodes = 2


@cache
def searched():
    """(network, its space, costs, the weights of a supernet, a split)."""
    network = Cell()
    space = listed(network)
    with nn.parameter_scope("", {}):
        ones = {one.name: nn.Variable.from_numpy_array(np.ones(len(one.options))) for one in space.decisions}
        network(nn.Variable((2, *network.input_shape)), Mixture(ones), SAMPLED_EVALUATION)
        arrays = parameter_arrays(nn.get_parameters(grad_only=False))
    return network, space, price(network, space, MACs()), arrays, Images(12, network.input_shape)


def searcher_of(random, bound=None):
    _, space, costs, _, _ = searched()
    bound = extremes(space, costs)[1] if bound is None else bound
    alphas = {one.name: random.normal(size=len(one.options)) for one in space.decisions}
    return with_alphas(reinforce(space, [Constraint("macs", costs, bound, 1.0)]), alphas)


def chosen(finalizer, searcher):
    network, _, _, arrays, split = searched()
    return finalizer(searcher, network, arrays, split)


def test_argmax_is_the_searchers_own(random):
    searcher = searcher_of(random)
    assert chosen(Argmax(), searcher) == searcher.best()


@pytest.mark.parametrize("finalizer", [Argmax(), Random(), Divnas(samples=6), Divnas(samples=6, ranked=True)])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_bounds_are_kept(finalizer, share, random):
    _, space, costs, _, _ = searched()
    smallest, largest = extremes(space, costs)
    bound = smallest + share * (largest - smallest)
    for _ in range(3):
        choices = chosen(finalizer, searcher_of(random, bound))
        assert space.check(choices) == choices and costs.cost(choices) <= bound


def test_random_draws_anew(random):
    searcher = searcher_of(random)
    assert len({tuple(chosen(Random(), searcher).items()) for _ in range(10)}) > 5


def test_activations_are_what_each_option_returns(random):
    network, space, _, arrays, split = searched()
    found = activations(searcher_of(random), network, arrays, split, 6)
    assert {node: len(operators) for node, operators in found.items()} == {"node1": 6, "node2": 9}
    assert all(len(cells) == 2 and cells[0].shape == (6, 4 * 36) for cells in found["node2"].values())
    # Both cells' skips return their input, and it is the same for all edges from it.
    np.testing.assert_array_equal(found["node1"]["node1_from0", "skip"][0], found["node2"]["node2_from0", "skip"][0])
    np.testing.assert_array_equal(found["node1"]["node1_from1", "skip"][0], found["node1"]["node1_from0", "skip"][1])


def kernel_by_formula(cells, sigma):
    """cells: for each cell a list of (samples, numbers)."""
    count = len(cells[0])
    kernel = np.zeros((count, count))
    for i, j in product(range(count), repeat=2):
        kernel[i, j] = np.mean(
            [
                np.exp(-(np.linalg.norm(cell[i][n] - cell[j][n]) ** 2) / (2 * sigma**2))
                for cell in cells
                for n in range(len(cell[0]))
            ]
        )
    return kernel


def test_divnas_takes_the_subset_that_tells_most(random):
    network, space, _, arrays, split = searched()
    sigma = 9.0
    searcher = searcher_of(random)
    found = activations(searcher, network, arrays, split, 6)
    choices = chosen(Divnas(samples=6, sigma=sigma), searcher)
    for node in space.nodes:
        operators = list(found[node.name])
        kernel = kernel_by_formula([list(cell) for cell in zip(*found[node.name].values(), strict=True)], sigma)
        amounts = {}
        for one, other in product(range(len(operators)), repeat=2):
            if operators[one][0] < operators[other][0]:
                left = [i for i in range(len(operators)) if i not in (one, other)]
                logs = [
                    np.linalg.slogdet(kernel[np.ix_(places, places)] + 1e-6 * np.eye(len(places)))[1]
                    for places in ([one, other], left, range(len(operators)))
                ]
                amounts[one, other] = 0.5 * (logs[0] + logs[1] - logs[2])
        taken = tuple(operators.index((edge, choices[edge])) for edge in node.edges if edge in choices)
        assert amounts[taken] == pytest.approx(max(amounts.values()), abs=1e-6)
        assert max(amounts.values()) > min(amounts.values()) + 1e-3


def test_information_by_closed_form():
    """Of two groups that do not know of each other and in which c is the similarity: 1/2 log of 1 / (1 - c^2)."""
    c = 0.6
    kernel = np.array([[1, c, 0, 0], [c, 1, 0, 0], [0, 0, 1, c], [0, 0, c, 1]])
    assert information(kernel, [0, 1]) == pytest.approx(0, abs=1e-5)
    assert information(kernel, [2, 0]) == pytest.approx(-np.log(1 - c**2), abs=1e-4)
    assert information(kernel, [0]) == pytest.approx(-0.5 * np.log(1 - c**2), abs=1e-4)
    assert np.isfinite(information(np.ones((4, 4)), [0, 1]))


def test_ranked_takes_of_the_more_probable_half_only(random):
    """The rest is not considered, neither to be kept nor to be told about."""
    _, space, _, _, _ = searched()
    for _ in range(5):
        searcher = searcher_of(random)
        choices = chosen(Divnas(samples=6, ranked=True), searcher)
        for node in space.nodes:
            weights = {
                (edge, option): weight
                for edge in node.edges
                for option, weight in zip(space.decision(edge).options, searcher.probabilities[edge], strict=True)
                if option != "none"
            }
            ranks = sorted(weights, key=weights.get, reverse=True)
            count = max(2, len(weights) // 2)
            while len({edge for edge, _ in ranks[:count]}) < 2:
                count += 1
            assert all((edge, choices[edge]) in ranks[:count] for edge in node.edges if edge in choices)


def test_divnas_repeats(random):
    searcher = searcher_of(random)
    assert chosen(Divnas(samples=6), searcher) == chosen(Divnas(samples=6), searcher)


def test_divnas_needs_cells_and_probabilities():
    _, space, costs, _, _ = searched()
    plain = listed(small_mobilenet())
    constraint = Constraint("macs", costs, 1e9, 1.0)
    objective, alone = reinforce(plain, []).objective, reinforce(plain, []).communicator
    for searcher in (reinforce(plain, []), RandomSearch(space, [constraint], objective, alone, 0)):
        with pytest.raises(NnasError, match="take finalizer=argmax"):
            Divnas().check(searcher)
        Argmax().check(searcher)
        Random().check(searcher)
    Divnas().check(reinforce(space, [constraint]))


@pytest.mark.parametrize("changes", [{"samples": 0}, {"sigma": 0}, {"sigma": "wide"}, {"ranked": "yes"}])
def test_wrong_values_are_named(changes):
    with pytest.raises(NnasError, match=f"finalizer.{next(iter(changes))}="):
        Divnas(**changes)
