"""The space of DARTS: its cells, its two geometries, and what differs between search and training."""

from collections import Counter
from dataclasses import replace
from functools import cache

import nnabla as nn
import numpy as np
import pytest
from conftest import fixed_logits

from estimators.base import Part
from estimators.graph import functions_of
from estimators.macs import MACs
from estimators.onnx_graph import onnx_model
from estimators.parameters import Parameters
from nnas.config import build, load
from nnas.deciders import Fixed, listed
from nnas.errors import NnasError
from nnas.export import export_nnp, shipped_network
from nnas.genotype import choices_of
from nnas.kernels import loading
from nnas.layers import EVALUATION, TRAINING, fold, with_affine
from nnas.pricing import price
from nnas.spaces.darts import PRIMITIVES, Darts
from nnas.updates import parameter_arrays, set_parameters

DARTS_V2 = """
# The cells that second-order DARTS found on CIFAR-10.
DARTS_V2 = Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1),
    ('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=[2, 3, 4, 5],
    reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0),
    ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=range(2, 6))
"""


def small(**changes):
    settings = {
        "name": "cells",
        "input_shape": (1, 8, 8),
        "classes": 3,
        "cells": 3,
        "channels": 2,
        "search": {"cells": 3, "channels": 2},
        "nodes": 2,
        "auxiliary": False,
        "drop_path_rate": 0.0,
    }
    return Darts(**{**settings, **changes})


@cache
def every_operator():
    """Choices with each operator once in a normal and once in a reduction cell, and the space."""
    space = listed(small(nodes=4))
    operators, choices = [one for one in PRIMITIVES if one != "none"], {}
    for cell in ("normal", "reduction"):
        nodes = [node for node in space.nodes if node.name.startswith(cell)]
        edges = [edge for node in nodes for edge in node.edges[:2]]
        choices |= dict(zip(edges, [*operators, "skip_connect"], strict=True))
    return space.check(choices), space


@pytest.fixture(scope="module")
def published():
    network = build(load("profile", None, ["space=darts_cifar10"]).space)
    # As the space is, but without building all operators of 20 cells to list it.
    space = listed(network.search_network)
    choices = choices_of(DARTS_V2, space, "V2")
    return network, choices, shipped_network(network, choices, 1)


def test_the_published_cells_have_the_published_size(published):
    network, choices, (x, outputs, _) = published
    whole = Part(tuple(outputs.values()), (x,), "V2")
    assert MACs().costs([whole])[0] == pytest.approx(530e6, rel=0.01)
    with nn.parameter_scope("", {}):
        trained = network(nn.Variable((2, 3, 32, 32)), Fixed(choices), TRAINING)
        sizes = {name: parameter.size for name, parameter in nn.get_parameters().items()}
    assert trained.auxiliary.shape == trained.logits.shape == (2, 10)
    counted = sum(size for name, size in sizes.items() if not name.startswith("auxiliary/"))
    assert counted == pytest.approx(3.3e6, rel=0.02)
    # As published, scale and shift count; what ships has a bias of each map instead.
    biases = sum(size for name, size in sizes.items() if name.endswith("beta") and not name.startswith("auxiliary"))
    assert Parameters().costs([whole]) == [counted - biases]


def test_the_published_cells_are_those_of_other_files(published):
    _, choices, _ = published
    assert choices["normal_node4_from2"] == "dil_conv_3x3" and choices["reduction_node3_from2"] == "skip_connect"
    assert len(choices) == 16


@pytest.mark.parametrize("stem, shape", [(1, (1, 8, 8)), (1, (1, 7, 9)), (3, (1, 32, 32))])
def test_search_and_training_decide_alike_in_two_geometries(stem, shape):
    network = small(input_shape=shape, stem_convolutions=stem, cells=6, channels=4, auxiliary=True, drop_path_rate=0.2)
    space, searched = listed(network), listed(network.search_network)
    assert (space.nodes, space.size) == (searched.nodes, searched.size)
    assert [(one.name, one.options) for one in space.decisions] == [
        (one.name, one.options) for one in searched.decisions
    ]
    assert len(space.decision("normal_node1_from0").sites) == 4
    assert len(searched.decision("normal_node1_from0").sites) == 1
    assert (
        network.search_network(nn.Variable((2, *shape)), Fixed(space.sample(np.random.default_rng(0))), TRAINING)[1]
        is None
    )


def test_operators_are_those_of_the_paper():
    """How often each kernel and dilation stands in a network whose types of cells have each operator once."""
    x, outputs, _ = shipped_network(small(nodes=4), every_operator()[0], 1)
    found = Counter()
    for function in functions_of(Part(tuple(outputs.values()), (x,), "")):
        if function.info.type_name == "DepthwiseConvolution":
            found[function.inputs[1].shape[1:], function.info.args["dilation"][0]] += 1
        elif "Pooling" in function.info.type_name:
            found[function.info.type_name, tuple(function.info.args.get("kernel", ()))] += 1
    cells = 3
    assert found == {
        ((3, 3), 1): 2 * cells,
        ((5, 5), 1): 2 * cells,
        ((3, 3), 2): cells,
        ((5, 5), 2): cells,
        ("MaxPooling", (3, 3)): cells,
        ("AveragePooling", (3, 3)): cells,
        ("GlobalAveragePooling", ()): 1,
    }


def test_costs_are_those_of_the_network_that_ships(random):
    network = small(cells=5, channels=4)
    space = listed(network)
    costs = price(network, space, MACs())
    for _ in range(5):
        choices = space.sample(random)
        x, outputs, _ = shipped_network(network, choices, 1)
        assert [costs.cost(choices)] == MACs().costs([Part(tuple(outputs.values()), (x,), "alone")])


def test_scale_and_shift_are_there_in_training_alone():
    network, choices = small(), every_operator()[0]
    choices = {name: option for name, option in choices.items() if "node3" not in name and "node4" not in name}
    names = {}
    for one in (network, network.search_network):
        with nn.parameter_scope("", {}):
            one(nn.Variable((2, 1, 8, 8)), Fixed(choices), TRAINING)
            names[one is network] = {name.rpartition("/")[2] for name in nn.get_parameters(grad_only=False)}
    assert names[True] - names[False] == {"gamma", "beta"}


def test_weights_of_the_search_are_inherited_with_scale_one_and_shift_zero(random):
    """The search normalizes after pooling, what ships does not; all else is the same network."""
    network = small(primitives=[one for one in PRIMITIVES if "pool" not in one])
    choices = listed(network).sample(random)
    images = random.normal(size=(4, 1, 8, 8)).astype(np.float32)
    with nn.parameter_scope("", {}):
        logits = network.search_network(nn.Variable.from_numpy_array(images), Fixed(choices), EVALUATION).logits
        for name, parameter in nn.get_parameters(grad_only=False).items():
            if name.endswith("variance"):
                parameter.d = random.uniform(0.5, 2, parameter.shape)
        arrays = parameter_arrays(nn.get_parameters(grad_only=False))
    logits.forward()
    inherited = with_affine(arrays)
    assert with_affine(inherited) is inherited
    np.testing.assert_allclose(fixed_logits(network, choices, EVALUATION, images, inherited)[0], logits.d, atol=1e-6)


def test_what_ships_computes_what_was_trained(random, tmp_path):
    choices, _ = every_operator()
    network = small(nodes=4, auxiliary=True, drop_path_rate=0.3)
    images = random.normal(size=(2, 1, 8, 8)).astype(np.float32)
    with nn.parameter_scope("", {}):
        network(nn.Variable((2, 1, 8, 8)), Fixed(choices), TRAINING)
        for name, parameter in nn.get_parameters(grad_only=False).items():
            if name.endswith(("variance", "gamma", "mean", "beta")):
                parameter.d = random.uniform(0.5, 2, parameter.shape)
        arrays = parameter_arrays(nn.get_parameters(grad_only=False))
    expected, _ = fixed_logits(network, choices, EVALUATION, images, arrays)
    x, outputs, parameters = shipped_network(network, choices, 2, arrays)
    assert not {f.info.type_name for f in functions_of(Part(tuple(outputs.values()), (x,), ""))} & {
        "BatchNormalization"
    }
    x.d = images
    outputs["logits"].forward()
    np.testing.assert_allclose(outputs["logits"].d, expected, rtol=1e-3, atol=1e-4)
    export_nnp(tmp_path / "a.nnp", "cells", {"x": x}, outputs, parameters)
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model("cells", {"x": x}, outputs, parameters))
    np.testing.assert_allclose(session.run(["logits"], {"x": images})[0], expected, rtol=1e-3, atol=1e-4)


def test_normalization_after_pooling_survives_folding(random):
    """It has no convolution to be folded into, and stays, with its running statistics."""
    network = small(primitives=["max_pool_3x3", "avg_pool_3x3"]).search_network
    choices = listed(network).sample(random)
    images = random.normal(size=(2, 1, 8, 8)).astype(np.float32)
    with nn.parameter_scope("", {}):
        network(nn.Variable((2, 1, 8, 8)), Fixed(choices), EVALUATION)
        for name, parameter in nn.get_parameters(grad_only=False).items():
            if name.endswith(("variance", "mean")):
                parameter.d = random.uniform(0.5, 2, parameter.shape)
        arrays = parameter_arrays(nn.get_parameters(grad_only=False))
    expected, _ = fixed_logits(network, choices, EVALUATION, images, arrays)
    x, outputs, _ = shipped_network(network, choices, 2, arrays)
    assert any(name.endswith("max_pool_3x3/mean") or name.endswith("avg_pool_3x3/mean") for name in fold(arrays))
    x.d = images
    outputs["logits"].forward()
    np.testing.assert_allclose(outputs["logits"].d, expected, rtol=1e-3, atol=1e-4)


def test_fast_kernels_return_what_nnablas_functions_do(random):
    choices, _ = every_operator()
    images = random.normal(size=(4, 1, 8, 8)).astype(np.float32)
    found = []
    arrays = None
    for kernels in (None, loading.load(1)):
        with nn.parameter_scope("", {}):
            x = nn.Variable.from_numpy_array(images)
            logits = small(nodes=4).search_network(x, Fixed(choices), replace(TRAINING, kernels=kernels)).logits
            parameters = nn.get_parameters(grad_only=False)
            arrays = arrays or parameter_arrays(parameters)
            set_parameters(parameters, arrays, "the first")
        logits.forward()
        found.append(logits.d.copy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"cells": 2}, "space.cells=2"),
        ({"search": {"cells": 8}}, "space.search=.*must give cells, channels"),
        ({"search": {"cells": 8, "channels": 0}}, "space.search.channels=0"),
        ({"primitives": ["sep_con_3x3"]}, "did you mean 'sep_conv_3x3'"),
        ({"primitives": ["none"]}, "more than 'none'"),
        ({"stem_convolutions": 2}, "possible are 1 and 3"),
        ({"input_shape": (8, 8)}, "space.input_shape"),
        ({"drop_path_rate": 1.0}, "space.drop_path_rate"),
        ({"auxiliary": "yes"}, "space.auxiliary"),
        ({"name": ""}, "space.name"),
    ],
)
def test_wrong_settings_are_named(changes, message):
    with pytest.raises(NnasError, match=message):
        small(**changes)
