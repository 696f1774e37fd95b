"""Layers that tables of others name have the signatures of the blocks of our spaces, and are found again from them."""

import re

import nnabla as nn
import pytest
from small_parts import convolution

from estimators import EstimatorError, Part
from estimators.foreign import Layer
from estimators.foreign.blocks import read_shape, recognized, show_shape
from estimators.signature import signature
from nnas.layers import SHIPPED, affine, conv_bn, global_average_pooling, inverted_residual


def of_space(build, source, batch=1):
    """The signature of what a function of our layers builds, as a space ships it."""
    x = nn.Variable((batch, *source))
    return signature(Part((build(x),), (x,), "part"))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [16, 24])
@pytest.mark.parametrize("expansion", [1, 3, 6])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_an_inverted_residual_is_that_of_our_layers(stride, channels, expansion, kernel):
    size = 9 if stride == 1 else 5
    layer = Layer("inverted_residual", (16, 9, 9), (channels, size, size), kernel, stride, 16 * expansion)
    ours = of_space(lambda x: inverted_residual(x, channels, expansion, kernel, stride, SHIPPED, "b"), (16, 9, 9), 2)
    assert layer.signature(batch=2) == ours
    assert recognized(ours, batch=2) == layer
    assert recognized(ours, batch=1) is None


@pytest.mark.parametrize(
    ("layer", "build"),
    [
        (
            Layer("convolution", (3, 9, 9), (8, 5, 5), 3, 2),
            lambda x: conv_bn(x, 8, 3, SHIPPED, "c", 2, activation="relu6"),
        ),
        (
            Layer("convolution", (3, 9, 9), (8, 9, 9), 1, 1, activation="relu"),
            lambda x: conv_bn(x, 8, 1, SHIPPED, "c", activation="relu"),
        ),
        (
            Layer("convolution", (3, 9, 9), (8, 9, 9), 5, activation="swish"),
            lambda x: conv_bn(x, 8, 5, SHIPPED, "c", activation="swish"),
        ),
        (
            Layer("convolution", (3, 9, 9), (8, 9, 9), activation="none"),
            lambda x: conv_bn(x, 8, 1, SHIPPED, "c"),
        ),
        (Layer("classifier", (3, 9, 9), (8,)), lambda x: affine(global_average_pooling(x), 8, "a")),
        (Layer("affine", (3, 1, 1), (8,)), lambda x: affine(x, 8, "a")),
        (Layer("global_average_pooling", (3, 9, 9), (3, 1, 1)), global_average_pooling),
    ],
)
def test_fixed_parts_are_those_of_our_layers(layer, build):
    ours = of_space(build, layer.input)
    assert layer.signature() == ours
    assert recognized(ours) == layer


@pytest.mark.parametrize(
    "layer",
    [
        Layer("inverted_residual", (16, 9, 9), (16, 9, 9), 5, 1, 48, squeeze=True, activation="hard_swish"),
        Layer("inverted_residual", (16, 9, 9), (24, 5, 5), 3, 2, 96, squeeze=True, activation="relu"),
        Layer("inverted_residual", (16, 9, 9), (24, 5, 5), 5, 2, 16, pointwise=True, groups=2),
        Layer("inverted_residual", (16, 9, 9), (16, 9, 9), 3, 1, 16, shortcut=False),
        Layer("convolution", (3, 9, 9), (8, 9, 9), activation="hard_swish"),
    ],
)
def test_what_our_layers_have_not_has_a_signature_of_its_own(layer):
    assert recognized(layer.signature()) == layer
    plain = Layer(layer.op, layer.input, layer.output, layer.kernel, layer.stride, layer.middle)
    assert layer.signature() != plain.signature()


@pytest.mark.parametrize(("channels", "reduced"), [(64, 16), (72, 24), (120, 32), (240, 64), (480, 120), (960, 240)])
def test_squeeze_and_excitation_has_the_widths_of_mobilenet_v3(channels, reduced):
    layer = Layer("inverted_residual", (channels, 7, 7), (40, 7, 7), 5, 1, channels, squeeze=True)
    weights = re.findall(r"p\d+\((\d+),(\d+),1,1\)", layer.signature())
    assert weights[:2] == [(str(reduced), str(channels)), (str(channels), str(reduced))]


def test_groups_are_shuffled_behind_the_first_convolution():
    layer = Layer("inverted_residual", (4, 3, 3), (4, 3, 3), 3, 1, 4, pointwise=True, groups=2)
    y = layer.part().outputs[0]
    functions = []
    while y.parent is not None:
        functions.append(y.parent)
        y = y.parent.inputs[0]
    kinds = [function.info.type_name for function in reversed(functions)]
    assert kinds[:5] == ["Convolution", "ReLU6", "Reshape", "Transpose", "Reshape"]
    # Channel c of the shuffled ones is channel c // 2 of group c % 2.
    shuffle = functions[-5].outputs[0], functions[-2].outputs[0]
    shuffle[1].d = [[[[channel] * 3] * 3 for channel in range(4)]]
    for function in (functions[-3], functions[-4], functions[-5]):
        function.forward(function.inputs, function.outputs)
    assert shuffle[0].d[0, :, 0, 0].tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"op": "mystery"}, "op 'mystery' is not known; there are inverted_residual"),
        ({"activation": "mish"}, "activation 'mish'"),
        ({"kernel": 0}, "whole number from 1"),
        ({"middle": 0}, "whole number from 1"),
        ({"input": (16, 2**17, 9)}, "65536"),
        ({"middle": 48, "pointwise": False}, "without an expansion"),
        ({"shortcut": True}, "a shortcut needs"),
        ({"output": (24,)}, "none of inverted_residual"),
        ({"output": (24, 9, 9)}, "output would be 5x5x24, not 9x9x24"),
        ({"groups": 3, "middle": 48}, "cannot be built"),
    ],
)
def test_what_is_no_layer_is_an_error(settings, says):
    given = {"op": "inverted_residual", "input": (16, 9, 9), "output": (24, 5, 5), "kernel": 3, "stride": 2}
    with pytest.raises(EstimatorError, match=says) as caught:
        Layer(**given | settings).signature()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "float32: a",
        signature(convolution()).replace("ReLU6", "Tanh"),
        signature(convolution()).replace("group=1", "group=2"),
        Layer("affine", (3, 1, 1), (8,)).signature().replace("p1(8)", "p1(9)"),
        "float32: v0(1,8)=Affine(x0(1,3,99999999,1)) -> v0",
    ],
)
def test_what_is_no_layer_of_these_is_not_recognized(text):
    assert recognized(text) is None


def test_shapes_are_written_with_the_channels_last():
    assert show_shape((16, 112, 56)) == "112x56x16"
    assert read_shape("112x56x16") == (16, 112, 56)
    assert read_shape("1000") == (1000,) and show_shape((1000,)) == "1000"
    for text in ("", "1x2", "0x1x2", "1x2x3x4", "axbxc", "1x1x9999999"):
        with pytest.raises(EstimatorError, match="HxWxC"):
            read_shape(text)
