"""Small networks that the tests share."""

import os
from functools import partial

import nnabla as nn
import nnabla.functions as F
import numpy as np
import pytest
import tiny

from nnas.commands import shipping
from nnas.deciders import Fixed
from nnas.kernels.loading import load
from nnas.layers import Outputs, affine, conv_bn, global_average_pooling
from nnas.spaces.mobilenet import MobileNet
from nnas.updates import set_parameters

# Threads that wait for each other awake take ten times as long where other work is on the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(autouse=True)
def quick_reports(request, monkeypatch):
    """Empty reports, but in the tests of reports and of what is made once a module: a real one takes two seconds."""
    if "reports" not in request.path.parts:
        monkeypatch.setattr(shipping, "write_report", _empty_report)


def _empty_report(path):
    (path / "report").mkdir(exist_ok=True)
    for name in ("report.html", "report.md"):
        (path / name).touch()
    return path / "report.html"


@pytest.fixture(autouse=True)
def no_shared_parameters():
    nn.clear_parameters()


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture(params=["native", "fast"])
def kernels(request, monkeypatch):
    """What tests train with that ask for it: nnabla's own functions, then the fast ones."""
    functions = load(1) if request.param == "fast" else None
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


class Cells:
    """Two cells of one type, each of two nodes that keep two edges, and an edge is a convolution, the input or none."""

    name = "cells"
    input_shape = (2, 6, 6)
    classes = 3
    nodes = 2

    def __call__(self, x, decide, mode):
        before, x = x, conv_bn(x, 4, 3, mode, "stem", activation="relu")
        before = conv_bn(before, 4, 1, mode, "before", activation="relu")
        for cell in ("cell1", "cell2"):
            states = [before, x]
            for node in range(self.nodes):
                name = f"node{node + 1}"
                with nn.parameter_scope(cell):
                    edges = {
                        f"{name}_from{i}": (self._candidates(mode, f"{name}/from{i}"), state)
                        for i, state in enumerate(states)
                    }
                    states.append(decide.node(name, edges, 2))
            before, x = x, conv_bn(F.concatenate(*states[2:], axis=1), 4, 1, mode, f"{cell}/out", activation="relu")
        return Outputs(affine(global_average_pooling(x), self.classes, "classifier"))

    def _candidates(self, mode, name):
        return {
            "none": lambda x: F.constant(0, x.shape),
            "k1": partial(self._convolution, mode=mode, name=f"{name}/k1", kernel=1),
            "k3": partial(self._convolution, mode=mode, name=f"{name}/k3", kernel=3),
            "skip": lambda x: x,
        }

    def _convolution(self, x, mode, name, kernel):
        return conv_bn(x, x.shape[1], kernel, mode, name, activation="relu")


def tiny_cells():
    """Cells for the data of `tiny`."""
    network = Cells()
    network.input_shape, network.classes = tiny.SHAPE, tiny.CLASSES
    return network


def fixed_logits(network, choices, mode, images, arrays):
    """(the logits of an architecture with some weights, {name: parameter})."""
    with nn.parameter_scope("", {}):
        x = nn.Variable.from_numpy_array(images)
        logits = network(x, Fixed(choices), mode).logits
        parameters = nn.get_parameters(grad_only=False)
        set_parameters(parameters, arrays, "the supernet")
        logits.forward()
    return logits.d.copy(), parameters


NETWORKS = [small_mobilenet, Nested, Cells]
