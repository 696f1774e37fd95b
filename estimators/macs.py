"""Multiply-adds, counted from shapes."""

import difflib
from math import prod

from estimators.base import Estimator, EstimatorError
from estimators.graph import functions_of


def _weights_per_output(function):
    """Convolution: every output element sums over all axes of the weights but the first.

    Weights are (O, I / group, *kernel), or (channels x multiplier, *kernel) of a depthwise one, so that groups
    are counted right.
    """
    return prod(function.outputs[0].shape) * prod(function.inputs[1].shape[1:])


def _affine(function):
    """Weights are (inputs, *outputs), with as many inputs as the data have behind base_axis."""
    return prod(function.outputs[0].shape) * function.inputs[1].shape[0]


def _weights_per_input(function):
    """Transposed convolution: every input element meets all weights of its channel.

    Weights are (I, O / group, *kernel), or (channels, *kernel) of a depthwise one.
    """
    return prod(function.inputs[0].shape) * prod(function.inputs[1].shape[1:])


# Functions without a multiply-add are listed one by one: what nobody has thought about must not count as free.
FREE = (
    "BatchNormalization",
    "ReLU",
    "ReLU6",
    "LeakyReLU",
    "PReLU",
    "ELU",
    "Swish",
    "Sigmoid",
    "HardSigmoid",
    "Tanh",
    "HardTanh",
    "Softmax",
    "LogSoftmax",
    "Add2",
    "AddN",
    "AddScalar",
    "Sub2",
    "Mul2",
    "MulN",
    "MulScalar",
    "BcAdd2",
    "MaximumScalar",
    "MinimumScalar",
    "AveragePooling",
    "MaxPooling",
    "SumPooling",
    "GlobalAveragePooling",
    "Mean",
    "Sum",
    "Interpolate",
    "Reshape",
    "Concatenate",
    "Split",
    "Stack",
    "Slice",
    "Pad",
    "Shift",
    "Transpose",
    "Broadcast",
    "Identity",
    "Dropout",
    "Sink",
    "Unlink",
    "Constant",
)

# A rule gets the nnabla Function and returns its MACs.
RULES = {
    "Convolution": _weights_per_output,
    "DepthwiseConvolution": _weights_per_output,
    "Deconvolution": _weights_per_input,
    "DepthwiseDeconvolution": _weights_per_input,
    "Affine": _affine,
} | dict.fromkeys(FREE, lambda function: 0)


class MACs(Estimator):
    """Multiply-adds of a graph as it stands, so of its whole batch.

    One MAC is one multiplication with the addition that goes with it, in a convolution, a transposed one or
    an affine map; FLOPs are commonly twice that. Biases, batch normalization, activations, pooling, and
    element-wise and shape operations count nothing. Convolutions count their padding too.
    rules: {function type: rule(function) -> MACs} that complement or replace RULES.
    """

    unit = "MACs"

    def __init__(self, rules=None):
        self.rules = RULES | (rules or {})

    def description(self):
        """See Estimator."""
        return {"estimator": "macs", "unit": self.unit, "device": None, "batch": self.batch}

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator. Raises EstimatorError for a function that has no rule."""
        return [float(sum(self._count(function, part) for function in functions_of(part))) for part in parts]

    def _count(self, function, part):
        type_name = function.info.type_name
        if type_name not in self.rules:
            nearest = difflib.get_close_matches(type_name, self.rules, n=1)
            hint = f" (the nearest that has one is {nearest[0]!r})" if nearest else ""
            raise EstimatorError(
                f"part {part.label!r}: there is no rule for the MACs of the function {type_name!r}{hint}; "
                "add one to RULES in estimators/macs.py, or give MACs(rules={...}) one"
            )
        return self.rules[type_name](function)
