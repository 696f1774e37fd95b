"""MobileNetV2 and ResNet-50 at 224x224 have the MACs and parameters that their papers and common tables give."""

import nnabla as nn
import nnabla.functions as F
import pytest

from estimators import MACs, Parameters, Part

# Sandler et al. 2018, table 2: expansion, channels, blocks, stride.
MOBILENET_V2 = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]
# He et al. 2016, table 1: bottleneck channels, blocks, stride.
RESNET_50 = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]


def weights(*shape):
    """Without values: nothing is computed here."""
    return nn.Variable(shape, need_grad=True)


def convolved(x, maps, kernel, stride=1, group=1, activation=F.relu6):
    window = {"pad": (kernel // 2,) * 2, "stride": (stride,) * 2, "group": group}
    x = F.convolution(x, weights(maps, x.shape[1] // group, kernel, kernel), **window)
    statistics = [nn.Variable((1, maps, 1, 1)) for _ in range(2)]
    scale, shift = weights(1, maps, 1, 1), weights(1, maps, 1, 1)
    return activation(F.batch_normalization(x, shift, scale, *statistics, batch_stat=False))


def classified(x):
    x = F.global_average_pooling(x)
    return F.affine(x, weights(x.shape[1], 1000), weights(1000))


def mobilenet_v2(x):
    x = convolved(x, 32, 3, 2)
    for expansion, maps, blocks, stride in MOBILENET_V2:
        for block in range(blocks):
            inner = expansion * x.shape[1]
            y = convolved(x, inner, 1) if expansion > 1 else x
            y = convolved(y, inner, 3, stride if block == 0 else 1, group=inner)
            y = convolved(y, maps, 1, activation=F.identity)
            x = x + y if x.shape == y.shape else y
    return classified(convolved(x, 1280, 1))


def resnet_50(x):
    x = F.max_pooling(convolved(x, 64, 7, 2, activation=F.relu), (3, 3), (2, 2), pad=(1, 1))
    for maps, blocks, stride in RESNET_50:
        for block in range(blocks):
            step = stride if block == 0 else 1
            y = convolved(x, maps, 1, activation=F.relu)
            y = convolved(y, maps, 3, step, activation=F.relu)
            y = convolved(y, 4 * maps, 1, activation=F.identity)
            if block == 0:
                x = convolved(x, 4 * maps, 1, step, activation=F.identity)
            x = F.relu(x + y)
    return classified(x)


@pytest.mark.parametrize(
    "network, macs, parameters", [(mobilenet_v2, 300e6, 3.5e6), (resnet_50, 4.1e9, 25.6e6)], ids=["mobilenet", "resnet"]
)
def test_published_figures(network, macs, parameters):
    x = nn.Variable((1, 3, 224, 224))
    part = Part((network(x),), (x,), network.__name__)
    assert MACs().costs([part])[0] == pytest.approx(macs, rel=0.02)
    assert Parameters().costs([part])[0] == pytest.approx(parameters, rel=0.02)
