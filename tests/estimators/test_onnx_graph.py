"""ONNX models give nnabla's outputs, function by function, and ONNX Runtime is a device."""

import importlib
import json

import nnabla as nn
import nnabla.functions as F
import numpy as np
import pytest
from small_parts import convolution, foreign, identity, inverted_residual, parameter, quick

from estimators import EstimatorError, Latency, LatencyByGraph, MissingCost, Part
from estimators import device as devices
from estimators.onnx_graph import RULES, OnnxCopy, needed, onnx_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def positive(*shape):
    variable = nn.Variable(shape)
    variable.d = np.random.default_rng(sum(shape)).uniform(0.5, 2, shape)
    return variable


def normalization(x, beta=True, gamma=True):
    shape = (1, x.shape[1], 1, 1)
    scale, shift = parameter(*shape) if gamma else None, parameter(*shape) if beta else None
    return F.batch_normalization(x, shift, scale, parameter(*shape), positive(*shape), eps=0.1, batch_stat=False)


# {function type: what uses it, of x (2, 4, 8, 9)}.
USES = {
    "Convolution": [
        lambda x: F.convolution(x, parameter(6, 4, 3, 3), parameter(6), pad=(1, 0), stride=(2, 1), dilation=(1, 2)),
        lambda x: F.convolution(x, parameter(6, 2, 1, 3), group=2),
    ],
    "DepthwiseConvolution": [
        lambda x: F.depthwise_convolution(x, parameter(4, 3, 3), parameter(4), pad=(1, 1), stride=(2, 2)),
        lambda x: F.depthwise_convolution(x, parameter(8, 5, 3), pad=(4, 2), dilation=(2, 2), multiplier=2),
    ],
    "Deconvolution": [
        lambda x: F.deconvolution(x, parameter(4, 3, 3, 2), parameter(6), pad=(1, 0), stride=(2, 2), group=2),
        lambda x: F.deconvolution(x, parameter(4, 3, 3, 3), stride=(2, 2), output_padding=(1, 1)),
    ],
    "Affine": [
        lambda x: F.affine(x, parameter(288, 5), parameter(5)),
        lambda x: F.affine(x, parameter(9, 5), base_axis=3),
        lambda x: F.affine(x, parameter(72, 2, 3), parameter(2, 3), base_axis=2),
    ],
    "BatchNormalization": [
        normalization,
        lambda x: normalization(x, beta=False),
        lambda x: normalization(x, gamma=False),
        lambda x: normalization(x, beta=False, gamma=False),
    ],
    "MaxPooling": [lambda x: F.max_pooling(x - 9, (3, 3), (1, 2), pad=(1, 1))],
    "AveragePooling": [
        lambda x: F.average_pooling(x, (3, 3), (1, 2), pad=(1, 1), including_pad=False),
        lambda x: F.average_pooling(x, (3, 3), (2, 2), pad=(1, 1), including_pad=True),
    ],
    "SumPooling": [lambda x: F.sum_pooling(x, (3, 2), (1, 2), pad=(1, 1))],
    "GlobalAveragePooling": [F.global_average_pooling],
    "ReLU": [F.relu],
    "ReLU6": [lambda x: F.relu6(5 * x)],
    "LeakyReLU": [lambda x: F.leaky_relu(x, 0.3)],
    "ELU": [lambda x: F.elu(x, 0.7)],
    "Swish": [F.swish],
    "Sigmoid": [F.sigmoid],
    "HardSigmoid": [lambda x: F.hard_sigmoid(3 * x)],
    "Tanh": [F.tanh],
    "HardTanh": [F.hard_tanh],
    "Softmax": [F.softmax, lambda x: F.softmax(x, axis=1)],
    "LogSoftmax": [lambda x: F.log_softmax(x, axis=2)],
    "Add2": [lambda x: x + parameter(1, 4, 1, 1), lambda x: x + x],
    "BcAdd2": [lambda x: F.bc_add2(x, F.tanh(x))],
    "AddN": [lambda x: F.add_n(x, F.relu(x), parameter(2, 4, 8, 9))],
    "Sub2": [lambda x: parameter(2, 4, 8, 9) - x],
    "Mul2": [lambda x: x * F.sigmoid(F.global_average_pooling(x))],
    "Div2": [lambda x: x / positive(2, 4, 8, 9)],
    "AddScalar": [lambda x: x + 2.5],
    "MulScalar": [lambda x: x * -0.5, lambda x: 0 * x],
    "PowScalar": [lambda x: x**2],
    "RSubScalar": [lambda x: 1 - x],
    "RDivScalar": [lambda x: 2 / (x**2 + 1)],
    "MaximumScalar": [lambda x: F.maximum_scalar(x, 0.1)],
    "MinimumScalar": [lambda x: F.minimum_scalar(x, 0.1)],
    "Mean": [lambda x: F.mean(x, axis=(1, 3)), lambda x: F.mean(x, axis=2, keepdims=True), F.mean],
    "Sum": [lambda x: F.sum(x, axis=1), lambda x: F.sum(x, axis=(0, 2), keepdims=True)],
    "Reshape": [lambda x: F.reshape(x, (4, -1))],
    "Concatenate": [lambda x: F.concatenate(x, F.relu(x), axis=2)],
    "Slice": [
        lambda x: F.slice(x, (0, 1, 2, 1), (2, 3, 8, 9), (1, 1, 3, 2)),
        lambda x: F.slice(x, (0, -2, 0, 0), (2, 4, 8, 9)),
        lambda x: x[:, :, 1:, :-2],
    ],
    "Split": [lambda x: F.split(x, axis=1)[2], lambda x: F.add_n(*F.split(x, axis=3))],
    "Stack": [lambda x: F.stack(x, F.relu(x), axis=1)],
    "Pad": [lambda x: F.pad(x, (1, 2, 0, 3)), lambda x: F.pad(x, (0, 0, 1, 0, 0, 0, 2, 1), constant_value=-3)],
    "Transpose": [lambda x: F.transpose(x, (0, 2, 3, 1))],
    "Broadcast": [lambda x: F.broadcast(F.global_average_pooling(x), x.shape)],
    "Identity": [F.identity],
}


def runs(model, inputs):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {name: x.d.astype(np.float32) for name, x in inputs.items()})


def data(random, *shape):
    x = nn.Variable(shape)
    x.d = random.standard_normal(shape)
    return x


def assert_equal_outputs(y, x):
    y.forward()
    (got,) = runs(onnx_model("part", {"x": x}, {"y": y}), {"x": x})
    assert got.shape == y.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, y.d, atol=1e-4, rtol=1e-4)
    assert y.size == 1 or np.ptp(y.d) > 0 or y.parent.info.type_name == "MulScalar"


@pytest.mark.parametrize("name", USES)
def test_every_function_gives_nnablas_outputs(name, random):
    for use in USES[name]:
        x = data(random, 2, 4, 8, 9)
        y = use(x)
        assert name in [name for name in types(y)]
        assert_equal_outputs(y, x)


def types(y):
    found = []
    y.visit(lambda function: found.append(function.info.type_name))
    return found


def test_every_rule_is_tested():
    assert USES.keys() == RULES.keys()


@pytest.mark.parametrize(
    "use, says",
    [
        (lambda x: F.convolution(x, parameter(6, 3, 3, 9), channel_last=True), "Convolution.*channel_last=True"),
        (lambda x: F.max_pooling(x, (3, 3), (2, 2), ignore_border=False), "MaxPooling.*ignore_border=False"),
        (lambda x: F.batch_normalization(x, *(parameter(1, 4, 1, 1) for _ in range(4))), "BatchNorm.*batch_stat=True"),
        (lambda x: F.pad(x, (1, 1), mode="reflect"), "Pad.*reflect"),
        (lambda x: F.slice(x, (0, 0, 0, 8), (2, 4, 8, 0), (1, 1, 1, -1)), "Slice.*step"),
    ],
)
def test_what_has_no_form_is_refused(use, says, random):
    x = data(random, 2, 4, 8, 9)
    with pytest.raises(EstimatorError, match=f"'part'.*{says}"):
        onnx_model("part", {"x": x}, {"y": use(x)})


def test_an_unknown_function_is_named():
    part = foreign()
    with pytest.raises(EstimatorError, match="'Mystery' in ONNX.*onnx_graph.py"):
        onnx_model("part", {"x": part.inputs[0]}, {"y": part.outputs[0]})


def test_several_inputs_and_outputs_and_an_identity(random):
    a, b = data(random, 2, 3), data(random, 2, 3)
    outputs = {"sum": a + b, "same": a, "rest": F.relu(a - b)}
    got = runs(onnx_model("part", {"a": a, "b": b}, outputs), {"a": a, "b": b})
    nn.forward_all([outputs["sum"], outputs["rest"]])
    for one, variable in zip(got, outputs.values(), strict=True):
        np.testing.assert_allclose(one, variable.d, atol=1e-6)


def test_weights_have_the_names_of_the_parameters(random):
    x, weight, bias = data(random, 1, 4), parameter(4, 3), parameter(3)
    y = F.affine(F.affine(x, weight, bias), parameter(3, 2))
    model = onnx.load_from_string(onnx_model("part", {"x": x}, {"y": y}, {"a/W": weight, "a/b": bias}))
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    np.testing.assert_array_equal(arrays["a/W"], weight.d.astype(np.float32))
    np.testing.assert_array_equal(arrays["a/b"], bias.d.astype(np.float32))
    assert len([array for array in arrays.values() if array.dtype == np.float32]) == 3


# The device


@pytest.fixture
def here(tmp_path, monkeypatch):
    return quick(monkeypatch, Latency, device="onnxruntime", folder=tmp_path)


def test_the_device_is_told_apart(here):
    device = devices.find("onnxruntime")
    assert device.fingerprint["onnxruntime"] == onnxruntime.__version__ and device.fingerprint["threads"] == 1
    assert device.fingerprint["processor"] == devices.find("cpu").fingerprint["processor"]
    assert device.on_cpu and devices.find("cpu").on_cpu
    assert here().path != here(device="cpu").path


@pytest.mark.parametrize("estimator", [Latency, LatencyByGraph])
def test_parts_are_measured_in_onnx_runtime(here, estimator, monkeypatch):
    passes = []
    real = OnnxCopy.forward
    monkeypatch.setattr(OnnxCopy, "forward", lambda copy: (passes.append(copy), real(copy)))
    latency = here(estimator)
    small, large, none = latency.costs([convolution(4, size=6), convolution(64, size=32), identity()])
    assert 0 < small < large / 3 and none == 0.0
    assert len(set(passes)) == len(latency.table.entries)
    passes.clear()
    assert here(estimator).costs([convolution(4, size=6)]) == [small] and not passes
    content = json.loads(latency.path.read_text())
    assert content["device"]["backend"] == "onnxruntime"


def test_a_copy_gives_nnablas_outputs():
    part = inverted_residual()
    copy = OnnxCopy(part, devices.find("cpu").context)
    copy.forward()
    inputs = devices.GraphCopy(part, devices.find("cpu").context)
    inputs.forward()
    np.testing.assert_allclose(copy.results()[0], inputs.outputs[0].d, atol=1e-4)


def test_a_whole_network_needs_its_inputs(here):
    """Without them all would be constant, and computed before it is measured."""
    part = inverted_residual()
    assert here().measure(part.outputs, "network", inputs=part.inputs).median > 0
    with pytest.raises(MissingCost, match="network.*no inputs"):
        here().measure(part.outputs, "network")


def test_what_it_cannot_run_is_named(here):
    x = nn.Variable((1, 4))
    with pytest.raises(MissingCost, match="rounded.*'Round' in ONNX"):
        here().costs([Part((F.round(x),), (x,), "rounded")])


def test_without_the_packages_the_command_that_installs_them_is_said(monkeypatch):
    def missing(name, *rest):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(EstimatorError, match=r"onnx .*pip install 'nnas\[onnx\]'"):
        needed("onnx")
    with pytest.raises(EstimatorError, match=r"onnx .*pip install 'nnas\[onnx\]'"):
        devices.find("onnxruntime")
