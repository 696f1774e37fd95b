"""The deciders agree: the same network, whichever way it is built."""

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np
import pytest
import tiny
from conftest import NETWORKS, Nested, fixed_logits, small_mobilenet

from estimators.base import Part
from estimators.macs import MACs
from nnas.classifier import Classification, ClassifierGraph
from nnas.deciders import Costing, Fixed, Listing, MaskedMixture, Mixture, Sampled, listed
from nnas.errors import NnasError
from nnas.layers import EVALUATION, SHIPPED, TRAINING
from nnas.pricing import price
from nnas.updates import parameter_arrays


@pytest.mark.parametrize("make", NETWORKS)
def test_sampled_equals_fixed_in_outputs_and_parameters(make, random):
    network = make()
    space = listed(network)
    images = random.normal(size=(4, *network.input_shape)).astype(np.float32)
    labels = random.integers(network.classes, size=(4, 1))
    with nn.parameter_scope("", {}):
        decide = Sampled()
        graph = ClassifierGraph(network, decide, TRAINING, Classification(), 4)
        parameters = nn.get_parameters(grad_only=False)
        touched = decide.parameters(graph.loss)
    solver = S.Sgd(0.1)
    solver.set_parameters({name: p for name, p in parameters.items() if p.need_grad})
    for _ in range(20):
        choices = space.sample(random)
        decide.select(choices)
        arrays = parameter_arrays(parameters)
        solver.zero_grad()
        graph.forward(images, labels)
        graph.loss.backward(clear_buffer=True)
        got = {name for name, p in parameters.items() if p.need_grad and not p.grad.zeroing}
        expected, alone = fixed_logits(network, choices, TRAINING, images, arrays)
        np.testing.assert_array_equal(graph.outputs.logits.d, expected)
        assert set(touched(choices)) == set(alone)
        assert got == {name for name, p in alone.items() if p.need_grad}


@pytest.mark.parametrize("make", NETWORKS)
def test_cost_terms_equal_the_cost_of_the_network_built_alone(make, random):
    network = make()
    space = listed(network)
    estimator = MACs()
    costs = price(network, space, estimator)
    seen = set()
    for _ in range(20):
        choices = space.sample(random)
        with nn.parameter_scope("", {}):
            x = nn.Variable((1, *network.input_shape))
            logits = network(x, Fixed(choices), SHIPPED).logits
        (alone,) = estimator.costs([Part((logits,), (x,), "alone")])
        assert costs.cost(choices) == alone > 0
        seen.add(alone)
    assert len(seen) > 3


def test_costing_prices_a_function_shared_by_two_decisions_once():
    def network(x, decide, mode):
        x = F.relu(x)
        a = decide("a", {"one": F.relu, "two": lambda x: F.relu(F.relu(x))}, x)
        b = decide("b", {"one": F.relu}, x)
        return F.add2(F.add2(a, b), x)

    x = nn.Variable((1, 2))
    costing = Costing("shared", x)
    costing.finish(network(x, costing, SHIPPED))
    assert [part.when for part in costing.parts] == [(), (("a", "one"),), (("a", "two"),), (("b", "one"),), ()]
    head = costing.parts[-1]
    assert set(head.inputs) >= {costing.parts[0].outputs[0]} and len(head.inputs) == 3


class Recorder(nn.function.PythonFunction):
    """The identity, which notes its forward and backward passes in `calls`."""

    def __init__(self, option, calls):
        super().__init__()
        self.option, self.calls = option, calls

    name = property(lambda self: self.__class__.__name__)

    def min_outputs(self):
        return 1

    def grad_depends_output_data(self, i, o):
        return False

    def grad_depends_input_data(self, i, j):
        return False

    def setup_impl(self, inputs, outputs):
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs, outputs):
        self.calls.append(self.option)
        outputs[0].data.copy_from(inputs[0].data)

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        self.calls.append(f"{self.option} backward")
        inputs[0].g = outputs[0].g + (inputs[0].g if accum[0] else 0)


def test_sampled_computes_the_selected_path_only(random):
    calls = []
    decide = Sampled()
    y = decide("d", {option: Recorder(option, calls) for option in "abc"}, nn.Variable((2, 2)))
    for option in "bca":
        decide.select({"d": option})
        y.forward()
    assert calls == ["b", "c", "a"]


def test_mixture_computes_and_differentiates_the_selected_options_only(random):
    """One-hot weights and a mask: value and gradients are right for what is selected, and the rest is not touched."""
    calls, scales, values = [], {"a": 2, "b": 3, "c": 5}, random.normal(size=(2, 2)).astype(np.float32)
    weights = nn.Variable.from_numpy_array(np.array([0, 1, 0], np.float32)).apply(need_grad=True)
    x = nn.Variable.from_numpy_array(values).apply(need_grad=True)
    decide = MaskedMixture({"d": weights})
    candidates = {option: Recorder(option, calls) for option in "abc"}
    y = F.sum(decide("d", {o: lambda x, o=o, f=f: scales[o] * f(x) for o, f in candidates.items()}, x))
    for options, called in (("bc", "bc"), ("ab", "ab"), ("b", "b"), ("abc", "abc")):
        decide.select({"d": list(options), "elsewhere": ["z"]})
        calls.clear()
        for one in (weights, x):
            one.grad.zero()
        y.forward(clear_no_need_grad=True)
        y.backward(clear_buffer=True)
        assert y.d == pytest.approx(3 * values.sum(), rel=1e-5)
        expected = [scales[option] * values.sum() * (option in options) for option in "abc"]
        np.testing.assert_allclose(weights.g, expected, rtol=1e-5)
        np.testing.assert_allclose(x.g, 3, rtol=1e-6)
        assert sorted(calls) == sorted([*called, *(f"{option} backward" for option in called)])


@pytest.mark.parametrize("mixture", [Mixture, MaskedMixture])
@pytest.mark.parametrize("make", NETWORKS)
def test_mixture_with_one_hot_weights_is_the_chosen_network(make, mixture, random):
    network = make()
    space = listed(network)
    images = random.normal(size=(2, *network.input_shape)).astype(np.float32)
    choices = space.sample(random)
    weights = {
        decision.name: nn.Variable.from_numpy_array(
            np.array([float(choices.get(decision.name) == option) for option in decision.options], np.float32)
        )
        for decision in space.decisions
    }
    with nn.parameter_scope("", {}):
        logits = network(nn.Variable.from_numpy_array(images), mixture(weights), EVALUATION).logits
        arrays = parameter_arrays(nn.get_parameters(grad_only=False))
    logits.forward()
    np.testing.assert_allclose(logits.d, fixed_logits(network, choices, EVALUATION, images, arrays)[0], atol=1e-6)


@pytest.mark.usefixtures("kernels")
def test_mixture_sums_by_weight(random):
    x = nn.Variable.from_numpy_array(random.normal(size=(2, 3, 4, 4)))
    weights = nn.Variable.from_numpy_array(np.array([0.25, 0.5, 0.25]))
    y = Mixture({"d": weights}, tiny.kernels)(
        "d", {"one": lambda x: x, "two": lambda x: 2 * x, "zero": lambda x: 0 * x}, x
    )
    y.forward()
    np.testing.assert_allclose(y.d, 1.25 * x.d, rtol=1e-6)


def test_options_of_different_shapes_are_refused():
    with pytest.raises(NnasError, match="decision d: its options must return one shape"):
        Listing()("d", {"same": lambda x: x, "flat": lambda x: F.reshape(x, (1, -1))}, nn.Variable((1, 2, 2)))


def test_a_missing_choice_is_named():
    with pytest.raises(NnasError, match="stage1_block1=None"):
        small_mobilenet()(nn.Variable((1, 1, 8, 8)), Fixed({}), SHIPPED)


def test_expected_cost_equals_full_enumeration(random):
    network = Nested()
    space = listed(network)
    costs = price(network, space, MACs())
    probabilities = {
        decision.name: dict(zip(decision.options, random.dirichlet(np.ones(len(decision.options))), strict=True))
        for decision in space.decisions
    }
    total = 0
    for operator, p in probabilities["operator"].items():
        for inner, q in probabilities["inner"].items():
            for last, r in probabilities["last"].items():
                total += p * q * r * costs.cost(space.check({"operator": operator, "inner": inner, "last": last}))
    assert costs.expected(probabilities) == pytest.approx(total)
