"""The latency of a graph as the sum over its functions, and that of whole networks."""

import nnabla as nn
import nnabla.functions as F
import pytest
from small_parts import convolution, factor, foreign, identity, inverted_residual, parameter, quick

from estimators import EstimatorError, Latency, LatencyByGraph, Live, MissingCost, Part
from estimators import table as tables
from estimators.graph import GraphCopy


@pytest.fixture
def here(tmp_path, monkeypatch):
    return quick(monkeypatch, LatencyByGraph, device="cpu", folder=tmp_path)


@pytest.fixture
def copies(monkeypatch):
    """The functions of every copy that is made to be measured."""
    made = []
    real = GraphCopy.__init__

    def init(self, part, *rest):
        made.append([output.parent.info.type_name for output in part.outputs])
        real(self, part, *rest)

    monkeypatch.setattr(GraphCopy, "__init__", init)
    return made


def test_a_graph_costs_what_its_functions_cost(here):
    latency = here()
    (cost,) = latency.costs([inverted_residual()])
    measured = [entry.measurement().median for entry in latency.table.entries.values()]
    # Three convolutions, two activations and a sum; one activation is there twice.
    assert sorted(entry.label for entry in latency.table.entries.values()) == [
        f"inverted_residual: {name}" for name in ("Add2", "Convolution", "Convolution", "DepthwiseConvolution", "ReLU6")
    ]
    activation = next(one.measurement().median for one in latency.table.entries.values() if "ReLU6" in one.label)
    assert cost == pytest.approx(sum(measured) + activation)


def test_nothing_is_measured_twice_in_any_run(here, copies):
    first = here().costs([convolution(label="a"), inverted_residual(), identity()])
    assert sorted(copies) == sorted([["Convolution"]] * 3 + [["ReLU6"]] * 2 + [["DepthwiseConvolution"], ["Add2"]])
    assert first[2] == 0.0
    copies.clear()
    assert here().costs([convolution(label="b"), inverted_residual(), identity()]) == first
    assert not copies


def test_modules_and_functions_share_the_table(here, copies):
    """A module of one function is that function."""
    x = nn.Variable((1, 4, 6, 6))
    part = Part((F.relu6(x),), (x,), "relu6")
    by_module = here(Latency).costs([part])
    copies.clear()
    assert here().costs([part]) == by_module and not copies
    assert here().path == here(Latency).path


def test_a_function_may_read_one_variable_twice_or_give_two_results(here):
    x = nn.Variable((1, 4, 6, 6))
    first, second = F.split(x * x, axis=2)[:2]
    part = Part((first + second,), (x,), "part")
    assert here().costs([part])[0] > 0


def test_weights_stay_weights(here):
    latency = here()
    latency.costs([convolution()])
    (text,) = (text for text in latency.table.entries if "Convolution" in text)
    assert "Convolution(x0(1,4,6,6), p0(4,4,3,3), p1(4);" in text


def test_what_a_device_cannot_run_is_named(here):
    with pytest.raises(MissingCost, match="mystery: Mystery.*Mystery"):
        here().costs([foreign()])


def test_the_factor_is_kept_apart_from_that_of_modules(here):
    networks, sums = [inverted_residual()], [1.0]
    factor(here(Latency), networks, sums)
    factor(here(), networks, [2.0])
    kept = tables.read(here().path).calibration
    assert set(kept) == {"space", "space, by graph"}
    assert factor(here(Latency), networks, sums)[0] == kept["space"].factor


def test_what_a_given_table_lacks_says_which_estimator_measures_it(here, tmp_path):
    latency = here()
    latency.costs([convolution()])
    path = latency.path.rename(tmp_path / "given.json")
    with pytest.raises(MissingCost, match="DepthwiseConvolution.*space=mine device=cpu estimator=latency_by_graph"):
        here(table=path).costs([inverted_residual()], space_name="mine")


def test_live_measures_whole_networks_and_keeps_nothing(here, copies):
    live = here(Live)
    small, large = live.costs([convolution(4, size=6), convolution(32, size=24)])
    assert 0 < small < large / 3 and len(copies) == 2
    live.costs([convolution(4, size=6)])
    assert len(copies) == 3 and not live.table.entries and not live.path.exists()
    assert factor(live, [], []) == (1.0, 0.0)
    assert live.description()["estimator"] == "live"


def test_live_has_no_costs_for_a_search(here, copies):
    module = Part(convolution().outputs, (), "block1 = e3", when=(("block1", "e3"),))
    with pytest.raises(EstimatorError, match="'block1 = e3'.*estimator=latency or estimator=latency_by_graph"):
        here(Live).costs([convolution(), module])
    assert not copies


def test_inputs_of_a_network_may_be_named(here, copies):
    x, weights = nn.Variable((1, 4)), parameter(4, 3)
    latency = here(Latency)
    assert latency.measure(F.affine(x, weights), "network", inputs=(x,)).median > 0
