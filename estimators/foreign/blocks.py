"""Layers as tables of others name them, built as they ship here, so that they get the signatures of our spaces."""

import re
from dataclasses import dataclass
from functools import lru_cache

import nnabla as nn
import nnabla.functions as F

from estimators.base import EstimatorError, Part
from estimators.signature import signature

LARGEST = 2**16  # of any axis
SQUEEZE_RATIO, SQUEEZE_DIVISOR = 4, 8
OPS = ("inverted_residual", "convolution", "classifier", "affine", "global_average_pooling")


def _hard_sigmoid(x):
    return F.mul_scalar(F.relu6(F.add_scalar(x, 3)), 1 / 6)


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "swish": F.swish,
    "hard_swish": lambda x: F.mul2(x, _hard_sigmoid(x)),
}


@dataclass(frozen=True)
class Layer:
    """A layer of one input and one output, batch normalization folded into biased convolutions.

    op: one of OPS; a classifier is global average pooling and an affine map. input, output: (C, H, W), or (C,) behind
    an affine map; the one is taken for the other where it has to be. middle: channels of the depthwise convolution of
    an inverted residual. pointwise: whether a 1x1 convolution leads to it; None: where the middle has more channels
    than the input. groups: of the 1x1 convolutions, shuffled behind the first (Wu et al., 2019). squeeze: squeeze and
    excitation behind the depthwise convolution (Howard et al., 2019). shortcut: None: where shapes allow.
    Raises EstimatorError for what is no layer.
    """

    op: str
    input: tuple
    output: tuple
    kernel: int = 1
    stride: int = 1
    middle: int = None
    pointwise: bool = None
    groups: int = 1
    squeeze: bool = False
    activation: str = "relu6"
    shortcut: bool = None

    def __post_init__(self):
        if self.op not in OPS:
            raise EstimatorError(f"op {self.op!r} is not known; there are {', '.join(OPS)}")
        if self.activation not in ACTIVATIONS:
            raise EstimatorError(f"activation {self.activation!r} is not known; there are {', '.join(ACTIVATIONS)}")
        flat = self.op in ("classifier", "affine")
        self._set(input=self.input if len(self.input) == 3 else (*self.input, 1, 1))
        self._set(output=self.output[:1] if flat and self.output[1:] == (1, 1) else self.output)
        if self.op == "global_average_pooling":
            self._set(output=(*self.output[:1], 1, 1))
        if len(self.output) != (1 if flat else 3):
            raise EstimatorError(f"the output {show_shape(self.output)} is none of {self.op}")
        middle = self.input[0] if self.middle is None else self.middle
        numbers = (*self.input, *self.output, self.kernel, self.stride, self.groups, middle)
        if not all(type(number) is int and 1 <= number <= LARGEST for number in numbers):
            raise EstimatorError(f"one of its sizes is no whole number from 1 to {LARGEST}")
        if self.kernel % 2 == 0:
            raise EstimatorError(f"kernel {self.kernel} is even, and padding is the same on all sides here")
        if self.op == "inverted_residual":
            pointwise = middle > self.input[0] if self.pointwise is None else self.pointwise
            if not pointwise and middle != self.input[0]:
                raise EstimatorError("without an expansion the middle has the channels of the input")
            fits = self.stride == 1 and self.input == self.output
            shortcut = fits if self.shortcut is None else self.shortcut
            if shortcut and not fits:
                raise EstimatorError("a shortcut needs stride 1 and an output of the input's shape")
            self._set(middle=middle, pointwise=pointwise, shortcut=shortcut)

    def _set(self, **values):
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def part(self, batch=1):
        """The Part that it is. Raises EstimatorError where its shapes and attributes do not go together."""
        x = nn.Variable((batch, *self.input))
        try:
            with nn.auto_forward(False):
                y = _BUILD[self.op](self, x)
        except RuntimeError as error:
            raise EstimatorError("it cannot be built with these sizes") from error
        if y.shape[1:] != self.output:
            raise EstimatorError(f"its output would be {show_shape(y.shape[1:])}, not {show_shape(self.output)}")
        return Part((y,), (x,), self.op)

    def signature(self, batch=1, dtype="float32"):
        """Its signature, as estimators.signature has it. Raises EstimatorError."""
        return _signature(self, batch, dtype)


@lru_cache(maxsize=4096)
def _signature(layer, batch, dtype):
    return signature(layer.part(batch), dtype)


def show_shape(shape):
    """(C, H, W) as HxWxC."""
    return "x".join(map(str, (*shape[1:], shape[0])))


def read_shape(text):
    """HxWxC, or C alone, as (C, H, W) or (C,). Raises EstimatorError."""
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5}x[1-9]\d{0,5})?", text):
        raise EstimatorError(f"the shape {text[:40]!r} is neither HxWxC nor C")
    *image, channels = map(int, text.split("x"))
    return (channels, *image)


def recognized(text, batch=1, dtype="float32"):
    """The Layer that has a signature, or None."""
    shapes = {name: tuple(map(int, sizes.split(","))) for name, sizes in re.findall(r"\b([xpv]\d+)\(([\d,]+)\)", text)}
    functions = re.findall(r"(v\d+)\([\d,]+\)=(\w+)\(", text)
    if "x0" not in shapes or "x1" in shapes or not functions:
        return None
    guess = _guess([name for _, name in functions], shapes, text)
    if guess is None:
        return None
    try:
        layer = Layer(input=shapes["x0"][1:], output=shapes[functions[-1][0]][1:], **guess)
        return layer if layer.signature(batch, dtype) == text else None
    except EstimatorError:
        return None


def _guess(functions, shapes, text):
    """What the signature of a layer says about its attributes; that it is this layer is not said."""
    if functions == ["GlobalAveragePooling"]:
        return {"op": "global_average_pooling"}
    if functions[-1] == "Affine":
        return {"op": "affine" if len(functions) == 1 else "classifier"}
    stride = max(map(int, re.findall(r"stride=\[(\d+)", text)), default=1)
    weights = [shapes[name] for name in re.findall(r"(?:Depthwise)?Convolution\([^;]*?, (p\d+)\(", text)]
    if "DepthwiseConvolution" in functions:
        place = functions.index("DepthwiseConvolution")
        found = next(shape for shape in weights if len(shape) == 3)
        return {
            "op": "inverted_residual",
            "kernel": found[1],
            "stride": stride,
            "middle": found[0],
            "pointwise": functions[0] == "Convolution",
            "groups": max(map(int, re.findall(r"group=(\d+)", text)), default=1),
            "squeeze": "GlobalAveragePooling" in functions,
            "activation": _activation(functions[place + 1 :]),
            "shortcut": functions[-1] == "Add2",
        }
    if functions[0] == "Convolution" and functions.count("Convolution") == 1:
        activation = _activation(functions[1:])
        return {"op": "convolution", "kernel": weights[0][2], "stride": stride, "activation": activation}
    return None


def _activation(following):
    """The name of the activation that the next functions are."""
    names = {"ReLU": "relu", "ReLU6": "relu6", "Swish": "swish", "AddScalar": "hard_swish"}
    return names.get(following[0] if following else "", "none")


def _convolution(layer, x):
    return ACTIVATIONS[layer.activation](_convolved(x, layer.output[0], layer.kernel, layer.stride))


def _inverted_residual(layer, x):
    activation = ACTIVATIONS[layer.activation]
    y = x
    if layer.pointwise:
        y = activation(_convolved(y, layer.middle, 1, group=layer.groups))
        if layer.groups > 1:
            y = _shuffled(y, layer.groups)
    weight, bias = nn.Variable((layer.middle, layer.kernel, layer.kernel)), nn.Variable((layer.middle,))
    y = activation(F.depthwise_convolution(y, weight, bias, **_window(layer.kernel, layer.stride)))
    if layer.squeeze:
        y = F.mul2(y, _excitation(y))
    y = _convolved(y, layer.output[0], 1, group=layer.groups)
    return y + x if layer.shortcut else y


def _excitation(y):
    channels = y.shape[1]
    wanted = channels // SQUEEZE_RATIO
    reduced = max(SQUEEZE_DIVISOR, (wanted + SQUEEZE_DIVISOR // 2) // SQUEEZE_DIVISOR * SQUEEZE_DIVISOR)
    if reduced < 0.9 * wanted:
        reduced += SQUEEZE_DIVISOR
    return _hard_sigmoid(_convolved(F.relu(_convolved(F.global_average_pooling(y), reduced, 1)), channels, 1))


def _shuffled(y, groups):
    batch, channels, *image = y.shape
    y = F.transpose(F.reshape(y, (batch, groups, channels // groups, *image)), (0, 2, 1, 3, 4))
    return F.reshape(y, (batch, channels, *image))


def _classifier(layer, x):
    return _affine(layer, F.global_average_pooling(x))


def _affine(layer, x):
    inputs = x.size // x.shape[0]
    return F.affine(x, nn.Variable((inputs, layer.output[0])), nn.Variable((layer.output[0],)))


def _global_average_pooling(layer, x):
    return F.global_average_pooling(x)


def _convolved(x, maps, kernel, stride=1, group=1):
    weight = nn.Variable((maps, x.shape[1] // group, kernel, kernel))
    return F.convolution(x, weight, nn.Variable((maps,)), group=group, **_window(kernel, stride))


def _window(kernel, stride):
    return {"pad": (kernel // 2,) * 2, "stride": (stride,) * 2, "dilation": (1, 1)}


_BUILD = {
    "inverted_residual": _inverted_residual,
    "convolution": _convolution,
    "classifier": _classifier,
    "affine": _affine,
    "global_average_pooling": _global_average_pooling,
}
