"""Small parts for the tests of estimators."""

import nnabla as nn
import nnabla.functions as F
import numpy as np

from estimators import Part, yardstick
from estimators.base import Network


def quick(monkeypatch, latency, **settings):
    """A function that makes latency estimators of two rounds, on a device that passes for an undisturbed one.

    latency, settings: what it takes where nothing else is asked for."""
    monkeypatch.setattr(yardstick, "REFERENCE_SECONDS", 0.05)

    def make(estimator=latency, **options):
        return estimator(**{**settings, "rounds": 2} | options)

    return make


def factor(estimator, wholes, sums):
    """(factor, error) of whole networks, each of one part that costs its sum."""
    networks = [Network(whole, (place,)) for place, whole in enumerate(wholes)]
    costs, factor, error = estimator.calibrated("space", wholes, sums, networks)
    assert costs == sums
    return factor, error


def parameter(*shape):
    variable = nn.Variable(shape, need_grad=True)
    variable.d = np.random.default_rng(sum(shape)).standard_normal(shape)
    return variable


def convolution(channels=4, kernel=3, size=6, batch=1, label="convolution"):
    """A convolution with a ReLU6, `channels` in and out."""
    x = nn.Variable((batch, channels, size, size))
    weights = parameter(channels, channels, kernel, kernel)
    y = F.relu6(F.convolution(x, weights, parameter(channels), pad=(kernel // 2,) * 2))
    return Part((y,), (x,), label)


def inverted_residual(channels=4, expansion=3, kernel=3, size=6, label="inverted_residual"):
    """An inverted residual block as it ships, batch normalization folded."""
    x = nn.Variable((1, channels, size, size))
    inner = channels * expansion
    h = F.relu6(F.convolution(x, parameter(inner, channels, 1, 1), parameter(inner)))
    h = F.depthwise_convolution(h, parameter(inner, kernel, kernel), parameter(inner), pad=(kernel // 2,) * 2)
    h = F.convolution(F.relu6(h), parameter(channels, inner, 1, 1), parameter(channels))
    return Part((x + h,), (x,), label)


def identity(label="identity"):
    x = nn.Variable((1, 4, 6, 6))
    return Part((x,), (x,), label)


def foreign():
    """A part with a function that nnabla cannot make again."""

    class Mystery(nn.function.PythonFunction):
        name = "Mystery"

        def min_outputs(self):
            return 1

        def grad_depends_input_data(self, i, o):
            return False

        def grad_depends_output_data(self, i, o):
            return False

        def setup_impl(self, inputs, outputs):
            outputs[0].reset_shape(inputs[0].shape, True)

        def forward_impl(self, inputs, outputs):
            outputs[0].data.copy_from(inputs[0].data)

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            pass

    x = nn.Variable((1, 4))
    return Part((Mystery()(x),), (x,), "mystery")
