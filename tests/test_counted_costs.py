"""Counted costs of a space against those of its networks built alone."""

from functools import partial

import nnabla.functions as F
import pytest
from conftest import NETWORKS, small_mobilenet

from estimators.base import Part
from estimators.memory import Memory
from estimators.parameters import Parameters
from nnas.deciders import listed
from nnas.export import shipped_network
from nnas.layers import Outputs, affine, conv_bn, global_average_pooling
from nnas.pricing import price


class Around:
    """A decision whose input and a value before it are needed long after it, and one that may be skipped."""

    name = "around"
    input_shape = (2, 8, 8)
    classes = 3

    def __call__(self, x, decide, mode):
        early = conv_bn(x, 6, 3, mode, "early", activation="relu")
        x = conv_bn(early, 6, 1, mode, "stem")
        y = decide("first", self._candidates("first", mode), x)
        y = decide("second", {**self._candidates("second", mode), "skip": lambda x: x}, y)
        x = F.concatenate(x, y, early, axis=1)
        return Outputs(affine(global_average_pooling(F.relu(x)), self.classes, "classifier"))

    def _candidates(self, name, mode):
        def wide(x, maps):
            y = conv_bn(x, maps, 1, mode, f"{name}/{maps}/a", activation="relu")
            return conv_bn(y, 6, 3, mode, f"{name}/{maps}/b")

        return {f"w{maps}": lambda x, maps=maps: wide(x, maps) for maps in (2, 20, 40)}


class Repeated:
    """One decision at two sites, which share their weights."""

    name = "repeated"
    input_shape = (4, 6, 6)
    classes = 3

    def __call__(self, x, decide, mode):
        candidates = {f"k{k}": partial(conv_bn, outmaps=4, kernel=k, mode=mode, name=f"k{k}") for k in (1, 3)}
        for _ in range(2):
            x = decide("operator", candidates, x)
        return Outputs(affine(global_average_pooling(x), self.classes, "classifier"))


def alone(network, choices):
    x, outputs, _ = shipped_network(network, choices, 1)
    return Part(tuple(outputs.values()), (x,), "alone")


@pytest.mark.parametrize("make", [*NETWORKS, Repeated])
def test_parameters_add_up(make, random):
    network = make()
    space = listed(network)
    costs = price(network, space, Parameters())
    for _ in range(10):
        choices = space.sample(random)
        assert costs.cost(choices) == Parameters().costs([alone(network, choices)])[0] > 0


@pytest.mark.parametrize("make", [*NETWORKS, Around, Repeated])
def test_memory_is_bounded_from_above_and_hardly_more(make, random):
    network = make()
    space = listed(network)
    costs = price(network, space, Memory())
    assert costs.factor == 1 and costs.unit == "bytes"
    ratios = []
    for _ in range(30):
        choices = space.sample(random)
        ratios.append(costs.cost(choices) / Memory().exact(alone(network, choices))["total"])
    assert 1 <= min(ratios) <= max(ratios) < 1.8
    assert min(ratios) == pytest.approx(1)


def test_the_bound_of_a_peak_counts_what_is_kept_around_a_decision(random):
    """Without what is held for later, the widest candidates would be priced too low."""
    network = Around()
    costs = price(network, listed(network), Memory())
    choices = {"first": "w40", "second": "w2"}
    # early, the decision's input, and the wide maps before and behind their activation.
    peak = 4 * 64 * (6 + 6 + 40 + 40)
    exact = Memory().exact(alone(network, choices))
    assert exact["peak_of_activations"] == peak and costs.cost(choices) >= exact["total"]


def test_a_search_over_a_small_mobilenet_may_be_bounded_by_memory():
    network = small_mobilenet()
    costs = price(network, listed(network), Memory())
    assert costs.description["bounds"].startswith("from above") and costs.error < 0.5
