"""Layers in nnabla's functional style. The mode tells what differs between uses of one network."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import nnabla as nn
import nnabla.functions as F
import numpy as np
from nnabla.initializer import ConstantInitializer, NormalInitializer
from nnabla.parameter import get_parameter_or_create

import nnas.quick_imports  # noqa: F401, for its effect
from nnas.kernels import Normalization

BATCH_NORMALIZATION_EPSILON = 1e-5
RUNNING_DECAY = 0.97  # small batches at the end of a short training would make 0.9 noisy
ACTIVATIONS = {None: lambda x: x, "relu": F.relu, "relu6": F.relu6, "swish": F.swish}


class Outputs(NamedTuple):
    """What a network returns. logits: (N, classes), the main output. auxiliary: the logits of an auxiliary head, or
    {name: logits} of a network with several outputs, or None."""

    logits: nn.Variable
    auxiliary: nn.Variable | dict = None

    @property
    def others(self):
        """{name: logits} of all outputs but the main one."""
        if self.auxiliary is None:
            return {}
        return self.auxiliary if isinstance(self.auxiliary, dict) else {"auxiliary": self.auxiliary}


@dataclass(frozen=True)
class Mode:
    """The use of a network.

    statistics: of batch normalization: 'batch' (and the running ones follow), 'running', 'scratch' (of the batch,
    nothing kept) or 'folded' (no batch normalization: it is part of the convolution before it).
    training: whether dropout, drop path and auxiliary heads are there. affine: scale and shift after normalizing.
    kernels: the module of fast functions that kernels.loading.load returns, or None for nnabla's own.
    synchronized: nnabla's communicator of the processes over whose samples the statistics 'batch' are taken, which
    exists on GPUs alone; None: those of this process.
    progress: a nnabla variable without axes, the share of the training that is done, which what depends on it (drop
    path) reads at every step; None: it is as at the end.
    """

    statistics: str
    training: bool = False
    affine: bool = True
    kernels: object = None
    synchronized: object = None
    progress: object = None


TRAINING = Mode("batch", training=True)
SAMPLED_EVALUATION = Mode("scratch")
EVALUATION = Mode("running")
SHIPPED = Mode("folded")


def conv_bn(x, outmaps, kernel, mode, name, stride=1, activation=None, initial_scale=1, shortcut=None):
    """Convolution ('same' padding for odd kernels), batch normalization, activation; x: (N, C, H, W).

    initial_scale: of the batch normalization (gamma) before training. shortcut: is added at the end.
    """
    with nn.parameter_scope(name):
        weight = _weight((outmaps, x.shape[1], kernel, kernel), kernel * kernel * outmaps)
        return _convolved(x, weight, outmaps, stride, mode, activation, initial_scale=initial_scale, shortcut=shortcut)


def depthwise_conv_bn(x, kernel, mode, name, stride=1, activation=None):
    """Depthwise convolution, batch normalization, activation; x: (N, C, H, W)."""
    maps = x.shape[1]
    with nn.parameter_scope(name):
        weight = _weight((maps, kernel, kernel), kernel * kernel)
        return _convolved(x, weight, maps, stride, mode, activation)


def separable_conv_bn(x, outmaps, kernel, mode, name, stride=1, dilation=1):
    """ReLU, depthwise convolution ('same' padding), 1x1 convolution, batch normalization; x: (N, C, H, W).

    Two of these are a separable convolution of DARTS, one with a dilation a dilated one (Liu et al., 2019).
    """
    maps = x.shape[1]
    with nn.parameter_scope(name):
        with nn.parameter_scope("depthwise"):
            weight = _weight((maps, kernel, kernel), kernel * kernel)
        window = _window(kernel, stride, dilation)
        if mode.kernels is not None:
            y = mode.kernels.convolution(x, weight, group=maps, rectified=True, **window)
        else:
            y = F.depthwise_convolution(F.relu(x), weight, **window)
        return conv_bn(y, outmaps, 1, mode, "pointwise")


def relu(x, mode):
    return F.relu(x) if mode.kernels is None else mode.kernels.activate(x, "relu")


def relu_conv_bn(x, outmaps, kernel, mode, name, stride=1):
    """ReLU, convolution, batch normalization; x: (N, C, H, W)."""
    return conv_bn(relu(x, mode), outmaps, kernel, mode, name, stride)


def factorized_reduction(x, outmaps, mode, name):
    """Half the height and width, rounded up: ReLU, and two 1x1 convolutions of stride 2 that see other pixels, each to
    half of the maps (Liu et al.: DARTS, 2019). x: (N, C, H, W)."""
    x = relu(x, mode)
    # Where a size is odd a row of zeros follows, so that both convolutions return one shape.
    ends = [size % 2 for size in x.shape[2:]]
    shifted = F.pad(x, (0, ends[0], 0, ends[1])) if any(ends) else x
    shifted = F.slice(shifted, (0, 0, 1, 1), shifted.shape)
    with nn.parameter_scope(name):
        first = conv_bn(x, outmaps // 2, 1, mode, "even", stride=2)
        second = conv_bn(shifted, outmaps - outmaps // 2, 1, mode, "odd", stride=2)
    return F.concatenate(first, second, axis=1)


def batch_normalization(x, mode, name):
    """Of something else than a convolution, which it cannot be folded into; x: (N, C, H, W)."""
    with nn.parameter_scope(name):
        norm = _normalization(x.shape[1], replace(mode, statistics=_unfolded(mode)), 1)
    if mode.kernels is not None:
        return mode.kernels.batch_normalization(x, norm)
    return _normalized(x, norm, mode)


def zeros(x, stride=1):
    """Zeros in the shape of (N, C, H, W) after a stride."""
    return F.constant(0, (*x.shape[:2], *(-(-size // stride) for size in x.shape[2:])))


def scaled(x, weight):
    """x times a weight of shape (1,)."""
    # A product of matrices: to multiply by what is broadcast takes nnabla several times as long on a CPU.
    return F.reshape(F.affine(F.reshape(weight, (1, 1)), F.reshape(x, (1, x.size))), x.shape)


def weighted_sum(xs, weights, kernels):
    """The sum of variables of one shape, each times its own weight, of shape (1,); kernels: as in Mode."""
    if kernels is not None:
        return kernels.weighted_sum(xs, F.concatenate(*weights, axis=0))
    return F.add_n(*(scaled(x, weight) for x, weight in zip(xs, weights, strict=True)))


def drop_path(x, rate, mode):
    """x of some samples as a whole, the others 0, divided by the share that is left; x: (N, C, H, W).

    rate: of the samples that are dropped at the end of training; it grows linearly (Larsson et al.: FractalNet, 2017;
    Zoph et al., 2018)."""
    if not mode.training or rate == 0:
        return x
    ones = (1,) * len(x.shape)
    present = nn.Variable.from_numpy_array(np.array(1.0)) if mode.progress is None else mode.progress
    present.persistent = True
    dropped = F.reshape(F.mul_scalar(present, rate), ones)
    drawn = F.rand(0, 1, (x.shape[0], *ones[1:]))
    kept = F.greater_equal(drawn, F.broadcast(dropped, drawn.shape))
    return F.mul2(x, F.div2(kept, F.broadcast(F.r_sub_scalar(dropped, 1), drawn.shape)))


def max_pooling(x, kernel, mode, stride=1):
    """'Same' padding for odd kernels; x: (N, C, H, W)."""
    return (mode.kernels or F).max_pooling(x, (kernel,) * 2, (stride,) * 2, pad=(kernel // 2,) * 2)


def average_pooling(x, kernel, mode, stride=1):
    """Averages of what is inside the image, with 'same' padding for odd kernels; x: (N, C, H, W)."""
    sizes = (kernel,) * 2, (stride,) * 2
    return (mode.kernels or F).average_pooling(x, *sizes, pad=(kernel // 2,) * 2, including_pad=False)


def global_average_pooling(x):
    """(N, C, H, W) to (N, C, 1, 1)."""
    return F.global_average_pooling(x)


def dropout(x, rate, mode):
    return F.dropout(x, rate) if mode.training and rate > 0 else x


def affine(x, outmaps, name):
    """Fully connected layer over all axes but the first: (N, ...) to (N, outmaps)."""
    inputs = int(np.prod(x.shape[1:]))
    with nn.parameter_scope(name):
        weight = get_parameter_or_create("W", (inputs, outmaps), NormalInitializer(sqrt(1 / inputs)))
        return F.affine(x, weight, get_parameter_or_create("b", (outmaps,), ConstantInitializer(0)))


def inverted_residual(x, outmaps, expansion, kernel, stride, mode, name):
    """Expansion by a 1x1, depthwise and projecting convolution, with a shortcut where shapes allow (MobileNetV2).

    With a shortcut the scale of the last normalization starts at 0 (Goyal et al., 2017): in a supernet an operator
    that has hardly been trained then leaves its input as it is, instead of adding noise to it.
    """
    has_shortcut = stride == 1 and x.shape[1] == outmaps
    with nn.parameter_scope(name):
        y = conv_bn(x, x.shape[1] * expansion, 1, mode, "expand", activation="relu6") if expansion > 1 else x
        y = depthwise_conv_bn(y, kernel, mode, "depthwise", stride, activation="relu6")
        if has_shortcut:
            return conv_bn(y, outmaps, 1, mode, "project", initial_scale=0, shortcut=x)
        return conv_bn(y, outmaps, 1, mode, "project")


def fold(parameters):
    """Arrays of a network with batch normalization -> arrays of the same network in the mode SHIPPED.

    parameters: {name: float32 array}. A convolution and its batch normalization are known by their common scope:
    W -> W s and b = beta - mean s with s = gamma / sqrt(variance + epsilon) for each output map.
    """
    folded = dict(parameters)
    for name in parameters:
        scope, _, last = name.rpartition("/")
        if last != "mean" or not {f"{scope}/variance", f"{scope}/W"} <= folded.keys():
            continue  # also the batch normalization of layers that are not of this module, which stays
        mean, variance = folded.pop(f"{scope}/mean"), folded.pop(f"{scope}/variance")
        gamma = folded.pop(f"{scope}/gamma", np.ones_like(mean))
        beta = folded.pop(f"{scope}/beta", np.zeros_like(mean))
        weight = folded[f"{scope}/W"]
        scale = gamma / np.sqrt(variance + np.float32(BATCH_NORMALIZATION_EPSILON))
        folded[f"{scope}/W"] = weight * scale.reshape((-1,) + (1,) * (weight.ndim - 1))
        folded[f"{scope}/b"] = (beta - mean * scale).reshape(-1)
    return folded


def with_affine(arrays):
    """Arrays of a network without scale and shift after normalizing, with those that change nothing: 1 and 0.

    Arrays that have any are returned as they are: what they lack is missing."""
    if any(name.rpartition("/")[2] in ("gamma", "beta") for name in arrays):
        return arrays
    found = dict(arrays)
    for name, array in arrays.items():
        scope, _, last = name.rpartition("/")
        if last == "mean":
            found[f"{scope}/gamma"], found[f"{scope}/beta"] = np.ones_like(array), np.zeros_like(array)
    return found


def is_decayed(name):
    """Whether weight decay applies to the parameter: to weights, neither to biases nor to batch normalization."""
    return name.rpartition("/")[2] == "W"


def _convolved(x, weight, maps, stride, mode, activation, initial_scale=1, shortcut=None):
    """A convolution, depthwise if the weight is of three axes, and what belongs to it, in nnabla's current scope."""
    is_depthwise = len(weight.shape) == 3
    window = _window(weight.shape[-1], stride)
    if mode.statistics == "folded":
        # Small and not zero, so that a network that is only measured does not compute on zeros.
        norm, bias = None, get_parameter_or_create("b", (maps,), NormalInitializer(0.1))
    else:
        norm, bias = _normalization(maps, mode, initial_scale), None
    if mode.kernels is not None:
        group = x.shape[1] if is_depthwise else 1
        return mode.kernels.convolution(
            x, weight, bias, group=group, normalization=norm, activation=activation, shortcut=shortcut, **window
        )
    y = (F.depthwise_convolution if is_depthwise else F.convolution)(x, weight, bias, **window)
    if norm is not None:
        y = _normalized(y, norm, mode)
    y = ACTIVATIONS[activation](y)
    return y if shortcut is None else y + shortcut


def _normalized(x, norm, mode):
    operands = x, norm.beta, norm.gamma, norm.mean, norm.variance
    settings = {"decay_rate": norm.decay, "eps": norm.epsilon, "batch_stat": norm.statistics != "running"}
    # Only of weight steps, in which all processes compute the same path.
    if norm.statistics == "batch" and mode.synchronized is not None:
        return F.sync_batch_normalization(*operands, mode.synchronized, **settings)
    return F.batch_normalization(*operands, **settings)


def _unfolded(mode):
    return "running" if mode.statistics == "folded" else mode.statistics


def _window(kernel, stride, dilation=1):
    return {"pad": (dilation * (kernel // 2),) * 2, "stride": (stride,) * 2, "dilation": (dilation,) * 2}


def _weight(shape, fan_out):
    return get_parameter_or_create("W", shape, NormalInitializer(sqrt(2 / fan_out)))


def _normalization(maps, mode, initial_scale):
    shape = (1, maps, 1, 1)
    gamma = beta = None
    if mode.affine:
        gamma = get_parameter_or_create("gamma", shape, ConstantInitializer(initial_scale))
        beta = get_parameter_or_create("beta", shape, ConstantInitializer(0))
    if mode.statistics == "scratch":
        mean, variance = nn.Variable(shape), nn.Variable(shape)
    else:
        mean = get_parameter_or_create("mean", shape, ConstantInitializer(0), need_grad=False)
        variance = get_parameter_or_create("variance", shape, ConstantInitializer(1), need_grad=False)
    return Normalization(mode.statistics, gamma, beta, mean, variance, RUNNING_DECAY, BATCH_NORMALIZATION_EPSILON)
