"""nnabla functions for training on the CPU, made of the compiled kernels."""

import ctypes
from bisect import bisect_left, insort
from math import prod

import nnabla as nn
import numba
import numpy as np
from nnabla.function import PythonFunction
from threadpoolctl import threadpool_limits

from nnas.kernels import Normalization, depthwise_convolution, matrix_convolution, mixing, normalization, pooling

_CONTEXT = nn.Context(["cpu:float"], "CpuCachedArray", "0")
_FLOAT = np.dtype(np.float32)  # twice as quick to hand on as np.float32
_STATISTICS = {
    None: normalization.NONE,
    "running": normalization.RUNNING,
    "batch": normalization.BATCH,
    "scratch": normalization.SCRATCH,
}
_ACTIVATIONS = {
    None: normalization.IDENTITY,
    "relu": normalization.RELU,
    "relu6": normalization.RELU6,
    "swish": normalization.SWISH,
}
_EMPTY2, _EMPTY3, _EMPTY4 = (np.empty((0,) * axes, np.float32) for axes in (2, 3, 4))
_PLAIN = ((1, 1), (0, 0), (1, 1), (1, 1))  # kernel, pad, stride and dilation of a 1x1 convolution
_views = {}


def _view(array, shape, write_only=False):
    """A nnabla array's memory as a numpy array, without a copy.

    The views of an address are kept, since to make one takes longer than to look it up."""
    address = array.data_ptr(_FLOAT, _CONTEXT, write_only)
    view = _views.get((address, shape))
    if view is None:
        if len(_views) > 20_000:
            _views.clear()
        memory = (ctypes.c_float * prod(shape)).from_address(address)
        view = _views[address, shape] = np.ctypeslib.as_array(memory).reshape(shape)
    return view


class _Buffers:
    """Memory for what a function keeps from its forward to its backward pass, handed from one function to the next."""

    def __init__(self):
        self._free = []  # (size, number, array), sorted
        self._made = 0

    def take(self, shape):
        size = prod(shape)
        at = bisect_left(self._free, (size, -1))
        if at < len(self._free) and self._free[at][0] <= 2 * size:
            return _Buffer(self._free.pop(at), shape)
        self._made += 1
        return _Buffer((size, self._made, np.empty(size, np.float32)), shape)

    def give_back(self, buffer):
        insort(self._free, buffer.entry)


class _Buffer:
    def __init__(self, entry, shape):
        self.entry = entry
        self.array = entry[2][: prod(shape)].reshape(shape)


_buffers = _Buffers()


def use_threads(threads):
    """Compute on so many threads. The numbers computed do not depend on it."""
    numba.set_num_threads(threads)
    threadpool_limits(1, user_api="blas")  # matrix products run side by side, each on one thread


def threads():
    return numba.get_num_threads()


def convolution(
    x,
    weight,
    bias=None,
    pad=(0, 0),
    stride=(1, 1),
    dilation=(1, 1),
    group=1,
    normalization=None,
    activation=None,
    shortcut=None,
    rectified=False,
):
    """activation(normalization(x * weight)) + shortcut, as one function; rectified: of relu(x), if depthwise.

    x: (N, C, H, W). weight: (maps, C / group, kh, kw), or (C, kh, kw) for a depthwise convolution with group C. bias:
    (maps,), only without normalization. normalization: Normalization. activation: None, 'relu', 'relu6' or 'swish'.
    shortcut: of the output's shape.
    """
    window = tuple(weight.shape[-2:]), tuple(pad), tuple(stride), tuple(dilation)
    _geometry(x.shape[2:], window)  # raises here what nnabla would wrap
    if rectified and not x.shape[1] == weight.shape[0] == group:
        raise ValueError("rectified: only depthwise convolutions take relu(x)")
    inputs = {"x": x, "weight": weight, "beta": bias}
    return _called(inputs, normalization, activation, shortcut, window=window, groups=group, rectified=rectified)


def batch_normalization(x, normalization, activation=None, shortcut=None):
    """activation(normalization(x)) + shortcut, as one function; x: (N, C, H, W)."""
    return _called({"x": x}, normalization, activation, shortcut)


def activate(x, activation):
    """x: (N, C, H, W); activation: 'relu', 'relu6' or 'swish'."""
    return _called({"x": x}, None, activation, None)


def max_pooling(x, kernel, stride, pad=(0, 0)):
    """x: (N, C, H, W)."""
    return _pooled(x, kernel, stride, pad, averages=False)


def average_pooling(x, kernel, stride, pad=(0, 0), including_pad=True):
    """x: (N, C, H, W). including_pad: whether the zeros around are counted in an average."""
    return _pooled(x, kernel, stride, pad, averages=True, counts_pad=including_pad)


def weighted_sum(xs, weights):
    """The sum of variables of one shape, each times its own of the weights, (len(xs),)."""
    return WeightedSum()(weights, *xs)


def _pooled(x, kernel, stride, pad, **kind):
    window = tuple(kernel), tuple(pad), tuple(stride), (1, 1)
    _geometry(x.shape[2:], window)
    return Pooling(window, **kind)(x)


def _called(inputs, normalization, activation, shortcut, **convolution):
    if normalization is not None:
        inputs |= {"gamma": normalization.gamma, "beta": normalization.beta}
    inputs = {name: value for name, value in (inputs | {"shortcut": shortcut}).items() if value is not None}
    return Normalized(list(inputs), normalization, activation, **convolution)(*inputs.values())


def _geometry(size, window):
    """What the kernels take: kernel, size of the output, pad, stride and dilation, each of height and width."""
    kernel, pad, stride, dilation = window
    out = tuple(
        (length + 2 * p - d * (k - 1) - 1) // s + 1
        for length, k, p, s, d in zip(size, kernel, pad, stride, dilation, strict=True)
    )
    if min(out) < 1:
        raise ValueError(f"a window of {kernel} (pad {pad}, dilation {dilation}) on images of {tuple(size)}")
    return (*kernel, *out, *pad, *stride, *dilation)


class _KernelFunction(PythonFunction):
    """A function of one output, whose gradient does not need it."""

    def min_outputs(self):
        return 1

    def grad_depends_output_data(self, i, o):
        return False


class Normalized(_KernelFunction):
    """Convolution (where a window is given), batch normalization and activation, plus a shortcut, as one function.

    Inputs: x (N, C, H, W), then the weight, the scale and shift of the normalization or only a bias, and the
    shortcut, as far as they are given. The running statistics are not inputs in the graph: nnabla spends more time
    on an input than the computation takes in small networks.
    """

    def __init__(self, names, norm, activation, window=None, groups=1, rectified=False):
        super().__init__()
        self._at = {name: position for position, name in enumerate(names)}
        self._window, self._groups, self._rectified = window, groups, rectified
        self._norm = norm or Normalization(None)
        self._statistics, self._activation = _STATISTICS[self._norm.statistics], _ACTIVATIONS[activation]
        self._is_linear = (self._statistics, self._activation) == (normalization.NONE, normalization.IDENTITY)
        computes_again = self._statistics in (normalization.RUNNING, normalization.SCRATCH)
        self._keeps = window is not None and not self._is_linear and not computes_again
        self._is_depthwise, self._buffer = False, None

    @property
    def name(self):
        return "FastNormalized"

    def grad_depends_input_data(self, i, j):
        return True

    def setup_impl(self, inputs, outputs):
        self._shape = inputs[0].shape
        samples, channels = self._shape[:2]
        maps = channels
        size = self._shape[2:]
        if self._window is not None:
            weight = inputs[self._at["weight"]].shape
            maps = weight[0]
            self._geometry = _geometry(size, self._window)
            size = self._geometry[2:4]
            if self._window == _PLAIN:
                # To such a convolution an image is one long row, which is quicker to copy.
                self._shape = (samples, channels, 1, prod(size))
                self._geometry = _geometry(self._shape[2:], self._window)
            self._is_depthwise = self._groups == channels == maps
            self._weight_shape = (maps, prod(weight[1:]))
        self._maps = maps
        self._lines = (samples, maps, prod(size))
        self._kept_lines = (maps, samples, prod(size))
        outputs[0].reset_shape((samples, maps, *size), True)
        self._kept = np.empty((4, maps), np.float32)
        self._ones, self._zeros = np.ones(maps, np.float32), np.zeros(maps, np.float32)

    def forward_impl(self, inputs, outputs):
        mean = variance = self._zeros
        if self._statistics in (normalization.BATCH, normalization.RUNNING):
            mean = _view(self._norm.mean.data, (self._maps,))
            variance = _view(self._norm.variance.data, (self._maps,))
        gamma = self._data(inputs, "gamma", (self._maps,), self._ones)
        beta = self._data(inputs, "beta", (self._maps,), self._zeros)
        arguments = (
            (self._statistics, gamma, beta, mean, variance, self._norm.decay, self._norm.epsilon),
            self._activation,
            self._data(inputs, "shortcut", self._lines, _EMPTY3),
            _view(outputs[0].data, self._lines, True),
            self._kept,
        )
        if self._is_depthwise:
            y = self._take_buffer().array if self._keeps else _EMPTY3
            depthwise_convolution.forward(*self._operands(inputs), self._geometry, self._rectified, y, *arguments)
        else:
            normalization.forward(self._multiplied(inputs), self._window is None, *arguments)
            if not self._keeps:
                self._release()

    def backward_impl(self, inputs, outputs, wanted, accumulated):
        dz = _view(outputs[0].grad, self._lines)
        at = self._at
        if "shortcut" in at and wanted[at["shortcut"]]:
            dshortcut = self._gradient(inputs, "shortcut", self._lines, accumulated)
            normalization.pass_on(dz, dshortcut, accumulated[at["shortcut"]])
        if not any(wanted[position] for name, position in at.items() if name != "shortcut"):
            self._release()
            return
        through = self._statistics, self._activation, self._kept, dz
        sums = np.empty((2, self._maps), np.float32)
        if self._window is None:
            y = _view(inputs[0].data, self._lines)
            is_direct = wanted[0] and not accumulated[0]
            dx = _view(inputs[0].grad, self._lines, True) if is_direct else np.empty(self._lines, np.float32)
            normalization.backward(y, True, *through, dx, *sums)
            if wanted[0] and accumulated[0]:
                normalization.pass_on(dx, self._gradient(inputs, "x", self._lines, accumulated), True)
        else:
            self._convolve_back(inputs, through, sums, wanted, accumulated)
        for name, gradient in zip(("gamma", "beta"), sums, strict=True):
            if name in at and wanted[at[name]]:
                target = self._gradient(inputs, name, (self._maps,), accumulated)
                np.add(gradient, target if accumulated[at[name]] else 0, out=target)
        self._release()

    def _convolve_back(self, inputs, through, sums, wanted, accumulated):
        operands = self._operands(inputs)
        gradients = (
            self._gradient(inputs, "x", self._shape, accumulated) if wanted[0] else _EMPTY4,
            self._gradient(inputs, "weight", self._weight_shape, accumulated) if wanted[1] else _EMPTY2,
        )
        flags = wanted[0], accumulated[0], wanted[1], accumulated[1]
        if self._is_depthwise:
            y = self._buffer.array if self._buffer else _EMPTY3
            depthwise_convolution.backward(
                *operands, self._geometry, self._rectified, y, *through, *sums, *gradients, flags
            )
            return
        if self._is_linear:
            y = self._take_buffer().array  # the numbers do not matter to a linear function's gradient
        else:
            y = self._buffer.array if self._buffer else self._multiplied(inputs)
        normalization.backward(y, False, *through, y, *sums)
        matrix_convolution.backward(*operands, y, *gradients, self._geometry, self._groups, flags)

    def _multiplied(self, inputs):
        """What is normalized, where it is not of a depthwise convolution."""
        if self._window is None:
            return _view(inputs[0].data, self._lines)
        y = self._take_buffer().array
        matrix_convolution.forward(*self._operands(inputs), y, self._geometry, self._groups)
        return y

    def _operands(self, inputs):
        return _view(inputs[0].data, self._shape), _view(inputs[1].data, self._weight_shape)

    def _take_buffer(self):
        if self._buffer is None:
            self._buffer = _buffers.take(self._kept_lines)
        return self._buffer

    def _data(self, inputs, name, shape, otherwise):
        return _view(inputs[self._at[name]].data, shape) if name in self._at else otherwise

    def _gradient(self, inputs, name, shape, accumulated):
        position = self._at[name]
        return _view(inputs[position].grad, shape, not accumulated[position])

    def _release(self):
        if self._buffer is not None:
            _buffers.give_back(self._buffer)
            self._buffer = None


class Pooling(_KernelFunction):
    """Maximum or average pooling; window: kernel, pad, stride and dilation, each of height and width."""

    def __init__(self, window, averages, counts_pad=True):
        super().__init__()
        self._window, self._flags = window, (averages, counts_pad)

    @property
    def name(self):
        return "FastPooling"

    def grad_depends_input_data(self, i, j):
        return not self._flags[0]

    def setup_impl(self, inputs, outputs):
        samples, channels, *size = inputs[0].shape
        self._sizes = tuple(size), _geometry(size, self._window)
        out = self._sizes[1][2:4]
        self._from, self._to = (samples * channels, prod(size)), (samples * channels, prod(out))
        outputs[0].reset_shape((samples, channels, *out), True)

    def forward_impl(self, inputs, outputs):
        x, y = _view(inputs[0].data, self._from), _view(outputs[0].data, self._to, True)
        pooling.forward(x, y, *self._sizes, *self._flags)

    def backward_impl(self, inputs, outputs, wanted, accumulated):
        if wanted[0]:
            dx = _view(inputs[0].grad, self._from, not accumulated[0])
            # An average needs the shape of x only.
            x = dx if self._flags[0] else _view(inputs[0].data, self._from)
            pooling.backward(x, _view(outputs[0].grad, self._to), dx, *self._sizes, *self._flags, accumulated[0])


class WeightedSum(_KernelFunction):
    """Inputs: the weights (n,), then n variables of one shape."""

    @property
    def name(self):
        return "FastWeightedSum"

    def grad_depends_input_data(self, i, j):
        return (i == 0) != (j == 0)  # that of the weights needs the others, and that of the others the weights

    def setup_impl(self, inputs, outputs):
        self._weights = (len(inputs) - 1,)
        self._numbers = (prod(inputs[1].shape),)
        outputs[0].reset_shape(inputs[1].shape, True)

    def forward_impl(self, inputs, outputs):
        weights, y = _view(inputs[0].data, self._weights), _view(outputs[0].data, self._numbers, True)
        for number, x in enumerate(inputs[1:]):
            mixing.add(_view(x.data, self._numbers), weights[number], y, number > 0)

    def backward_impl(self, inputs, outputs, wanted, accumulated):
        weights, dy = _view(inputs[0].data, self._weights), _view(outputs[0].grad, self._numbers)
        if wanted[0]:
            dweights = _view(inputs[0].grad, self._weights, not accumulated[0])
            products = [mixing.product(_view(x.data, self._numbers), dy) for x in inputs[1:]]
            np.add(products, dweights if accumulated[0] else 0, out=dweights, casting="same_kind")
        for number, x in enumerate(inputs[1:]):
            if wanted[number + 1]:
                adds = accumulated[number + 1]
                mixing.add(dy, weights[number], _view(x.grad, self._numbers, not adds), adds)


def run_all():
    """Run every kernel once, so that it is compiled, or fails here and not later."""
    x = nn.Variable((2, 4, 3, 3), need_grad=True)
    y = x
    x.d = 1
    with nn.context_scope(_CONTEXT), nn.auto_forward(False):
        maps = [nn.Variable((4,), need_grad=True) for _ in range(4)]
        norm = Normalization("batch", *maps)
        for variable in maps:
            variable.d = 1
        y = weighted_sum([x, x, x, x], maps[0])
        for shape, group in (((4, 4, 3, 3), 1), ((4, 3, 3), 4)):
            weight = nn.Variable(shape, need_grad=True)
            weight.d = 1
            y = convolution(y, weight, None, (1, 1), group=group, normalization=norm, activation="relu6", shortcut=y)
        y = max_pooling(batch_normalization(y, norm), (2, 2), (1, 1))
        y.forward()
        y.backward(clear_buffer=True)
