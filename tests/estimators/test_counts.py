"""MACs and parameters by closed formulas."""

import nnabla as nn
import nnabla.functions as F
import pytest
from small_parts import factor, foreign, identity, inverted_residual, parameter

from estimators import EstimatorError, MACs, Parameters, Part


def macs(y, *inputs):
    return MACs().costs([Part((y,), inputs, "part")])[0]


def test_convolution_with_stride_and_batch():
    x = nn.Variable((2, 6, 8, 8))
    y = F.convolution(x, parameter(12, 6, 3, 3), parameter(12), pad=(1, 1), stride=(2, 2))
    assert macs(y, x) == 2 * 12 * 4 * 4 * 6 * 3 * 3


def test_grouped_convolution():
    x = nn.Variable((1, 6, 8, 8))
    assert macs(F.convolution(x, parameter(12, 2, 3, 3), group=3), x) == 12 * 6 * 6 * 2 * 3 * 3


def test_depthwise_convolution_is_the_grouped_one():
    x = nn.Variable((1, 6, 8, 8))
    depthwise = macs(F.depthwise_convolution(x, parameter(6, 3, 3)), x)
    assert depthwise == 6 * 6 * 6 * 3 * 3 == macs(F.convolution(x, parameter(6, 1, 3, 3), group=6), x)
    assert macs(F.depthwise_convolution(x, parameter(12, 3, 3), multiplier=2), x) == 2 * depthwise


def test_channel_last_convolution():
    x = nn.Variable((1, 8, 8, 6))
    y = F.convolution(x, parameter(12, 3, 3, 6), channel_last=True)
    assert macs(y, x) == 12 * 6 * 6 * 6 * 3 * 3


def test_deconvolution():
    x = nn.Variable((1, 6, 8, 8))
    y = F.deconvolution(x, parameter(6, 4, 2, 2), stride=(2, 2), group=2)
    assert y.shape == (1, 8, 16, 16)
    assert macs(y, x) == 6 * 8 * 8 * 4 * 2 * 2


def test_affine_flattens_behind_the_base_axis():
    x = nn.Variable((3, 2, 5))
    assert macs(F.affine(x, parameter(10, 7), parameter(7)), x) == 3 * 10 * 7
    assert macs(F.affine(x, parameter(5, 4), base_axis=2), x) == 3 * 2 * 5 * 4


# What multiplies: name, a function of the input, its weights; without padding, which only adds zeros.
MULTIPLYING = {
    "convolution": (F.convolution, (8, 4, 3, 3), {}),
    "strided": (F.convolution, (8, 4, 3, 3), {"stride": (2, 3)}),
    "dilated": (F.convolution, (8, 4, 3, 3), {"dilation": (2, 2)}),
    "grouped": (F.convolution, (8, 2, 3, 5), {"group": 2}),
    "depthwise": (F.depthwise_convolution, (4, 3, 3), {"stride": (2, 2)}),
    "depthwise, multiplied": (F.depthwise_convolution, (8, 3, 3), {"multiplier": 2}),
    "transposed": (F.deconvolution, (4, 6, 3, 3), {}),
    "transposed, strided": (F.deconvolution, (4, 6, 3, 3), {"stride": (2, 2)}),
    "transposed, dilated": (F.deconvolution, (4, 6, 3, 3), {"dilation": (2, 2)}),
    "transposed, grouped": (F.deconvolution, (4, 3, 2, 2), {"group": 2, "stride": (2, 2)}),
    "transposed, depthwise": (F.depthwise_deconvolution, (4, 3, 3), {}),
    "affine": (F.affine, (4 * 9 * 11, 5), {}),
    "affine, with a base axis": (F.affine, (9 * 11, 5), {"base_axis": 2}),
}


@pytest.mark.parametrize("name", MULTIPLYING)
def test_ones_add_up_to_the_number_of_multiplications(name):
    """With ones for data and weights, every multiply-add adds one to the sum over the output."""
    function, shape, arguments = MULTIPLYING[name]
    x, weights = nn.Variable((2, 4, 9, 11)), nn.Variable(shape, need_grad=True)
    x.d = weights.d = 1
    y = function(x, weights, **arguments)
    y.forward()
    part = Part((y,), (x,), name)
    assert MACs().costs([part]) == [float(y.d.astype("float64").sum())]
    assert Parameters().costs([part]) == [float(weights.size)]


def test_batch_normalization_has_two_trained_parameters_a_channel():
    x = nn.Variable((1, 7, 6, 6))
    mean, variance = nn.Variable((1, 7, 1, 1)), nn.Variable((1, 7, 1, 1))
    y = F.batch_normalization(x, parameter(1, 7, 1, 1), parameter(1, 7, 1, 1), mean, variance, batch_stat=False)
    assert Parameters().costs([Part((y,), (x,), "norm")]) == [14.0]


def test_inverted_residual_by_formula():
    channels, inner, area = 4, 12, 36
    part = inverted_residual(channels, expansion=3, kernel=5)
    assert MACs().costs([part]) == [area * (channels * inner + inner * 25 + inner * channels)]
    assert Parameters().costs([part]) == [channels * inner + inner + inner * 25 + inner + inner * channels + channels]


def test_parameters_are_those_that_are_trained():
    x = nn.Variable((1, 4), need_grad=True)
    frozen, weights = nn.Variable((1, 4)), parameter(1, 4)
    part = Part((x * frozen * weights + weights,), (x,), "part")
    assert Parameters().costs([part]) == [4.0]


def test_normalization_activation_and_pooling_count_nothing():
    x = nn.Variable((1, 4, 6, 6))
    y = F.batch_normalization(x, *(parameter(1, 4, 1, 1) for _ in range(4)), batch_stat=False)
    y = F.dropout(F.swish(F.pad(y, (1, 1, 1, 1))))
    y = F.softmax(F.reshape(F.global_average_pooling(y) + F.average_pooling(y, (8, 8)), (1, 4)))
    assert macs(y, x) == 0


def test_an_identity_costs_nothing():
    assert MACs().costs([identity()]) == Parameters().costs([identity()]) == [0.0]


def test_an_unknown_function_is_an_error_that_says_where_to_add_a_rule():
    with pytest.raises(EstimatorError, match="'mystery'.*'Mystery'.*macs.py"):
        MACs().costs([foreign()])
    assert MACs(rules={"Mystery": lambda function: 5}).costs([foreign()]) == [5.0]


@pytest.mark.parametrize("estimator", [MACs(), Parameters()])
def test_counts_are_exact(estimator):
    assert factor(estimator, [], []) == (1.0, 0.0)
    assert estimator.description()["unit"] == estimator.unit
