"""Small networks that the tests share."""

from functools import partial

import nnabla as nn
import numpy as np
import pytest
import tiny

from nnas.kernels.loading import load
from nnas.layers import Outputs, affine, conv_bn, global_average_pooling
from nnas.spaces.mobilenet import MobileNet


@pytest.fixture(autouse=True)
def no_shared_parameters():
    nn.clear_parameters()


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture(params=["native", "fast"])
def kernels(request, monkeypatch):
    """What tests train with that ask for it: nnabla's own functions, then the fast ones."""
    functions = load(2) if request.param == "fast" else None
    monkeypatch.setattr(tiny, "kernels", functions)
    return functions


def small_mobilenet(**changes):
    settings = {
        "name": "small",
        "input_shape": (1, 8, 8),
        "classes": 4,
        "stem": {"channels": 4, "stride": 1},
        "head": 8,
        "stages": [{"channels": 6, "blocks": 2, "stride": 2}, {"channels": 8, "blocks": 2, "stride": 1}],
    }
    return MobileNet(**{**settings, **changes})


class Nested:
    """Two sites of one decision, and a candidate that holds a decision of its own."""

    name = "nested"
    input_shape = (2, 6, 6)
    classes = 3

    def __call__(self, x, decide, mode):
        x = conv_bn(x, 4, 3, mode, "stem", activation="relu")
        for site in ("first", "second"):
            with nn.parameter_scope(site):
                x = decide(
                    "operator",
                    {
                        "plain": partial(self._convolution, mode=mode, name="plain", kernel=1),
                        "deep": partial(self._deep, decide=decide, mode=mode),
                        "skip": lambda x: x,
                    },
                    x,
                )
        x = decide(
            "last",
            {
                "k1": partial(self._convolution, mode=mode, name="k1", kernel=1),
                "k3": partial(self._convolution, mode=mode, name="k3", kernel=3),
            },
            x,
        )
        return Outputs(affine(global_average_pooling(x), self.classes, "classifier"))

    def _convolution(self, x, mode, name, kernel):
        return conv_bn(x, 4, kernel, mode, name, activation="relu")

    def _deep(self, x, decide, mode):
        with nn.parameter_scope("deep"):
            x = self._convolution(x, mode, "before", 3)
            return decide(
                "inner",
                {
                    "k3": partial(self._convolution, mode=mode, name="k3", kernel=3),
                    "k5": partial(self._convolution, mode=mode, name="k5", kernel=5),
                },
                x,
            )


NETWORKS = [small_mobilenet, Nested]
