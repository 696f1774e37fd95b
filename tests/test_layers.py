"""Layers: what the modes change, and folding."""

from dataclasses import replace

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import numpy as np
import pytest
from conftest import small_mobilenet

from nnas.deciders import Fixed
from nnas.kernels.loading import load
from nnas.layers import (
    EVALUATION,
    SAMPLED_EVALUATION,
    SHIPPED,
    TRAINING,
    Mode,
    average_pooling,
    batch_normalization,
    conv_bn,
    drop_path,
    factorized_reduction,
    fold,
    inverted_residual,
    is_decayed,
    max_pooling,
    relu_conv_bn,
    separable_conv_bn,
    with_affine,
    zeros,
)
from nnas.updates import parameter_arrays, set_parameters


def test_folded_network_gives_the_logits_of_the_trained_one(random):
    network = small_mobilenet()
    choices = {"stage1_block1": "e3_k5", "stage1_block2": "skip", "stage2_block1": "e6_k7", "stage2_block2": "e3_k3"}
    x = nn.Variable.from_numpy_array(random.normal(size=(3, 1, 8, 8)))
    with nn.parameter_scope("", {}):
        trained = network(x, Fixed(choices), EVALUATION).logits
        parameters = nn.get_parameters(grad_only=False)
        for name, parameter in parameters.items():
            parameter.d = (
                random.uniform(0.5, 1.5, parameter.shape)
                if name.endswith("variance")
                else random.normal(size=parameter.shape)
            )
        arrays = parameter_arrays(parameters)
    with nn.parameter_scope("", {}):
        shipped = network(x, Fixed(choices), SHIPPED).logits
        set_parameters(nn.get_parameters(grad_only=False), fold(arrays), "the folded weights")
        assert not any("mean" in name or "gamma" in name for name in nn.get_parameters(grad_only=False))
    trained.forward()
    shipped.forward()
    np.testing.assert_allclose(shipped.d, trained.d, rtol=2e-4, atol=2e-4 * np.abs(trained.d).max())


def test_folding_without_scale_and_shift(random):
    x = nn.Variable.from_numpy_array(random.normal(size=(2, 3, 5, 5)))
    y = conv_bn(x, 4, 3, Mode("running", affine=False), "c")
    parameters = nn.get_parameters(grad_only=False)
    assert set(parameters) == {"c/W", "c/mean", "c/variance"}
    parameters["c/mean"].d = random.normal(size=(1, 4, 1, 1))
    parameters["c/variance"].d = random.uniform(0.5, 2, size=(1, 4, 1, 1))
    folded = fold(parameter_arrays(parameters))
    z = F.convolution(
        x, nn.Variable.from_numpy_array(folded["c/W"]), nn.Variable.from_numpy_array(folded["c/b"]), pad=(1, 1)
    )
    nn.forward_all([y, z])
    np.testing.assert_allclose(z.d, y.d, rtol=1e-4, atol=1e-5)


def test_layers_of_others_are_left_as_they_are(random):
    """A space may hold nnabla's own parametric functions, whose convolution and normalization have other scopes."""
    x = nn.Variable.from_numpy_array(random.normal(size=(2, 3, 5, 5)))
    PF.batch_normalization(PF.convolution(x, 4, (3, 3), name="own"), batch_stat=False, name="own")
    conv_bn(x, 4, 3, EVALUATION, "ours")
    arrays = parameter_arrays(nn.get_parameters(grad_only=False))
    folded = fold(arrays)
    assert {name for name in folded if name.startswith("ours")} == {"ours/W", "ours/b"}
    own = {name: array for name, array in arrays.items() if name.startswith("own")}
    assert len(own) == 6
    for name, array in own.items():
        np.testing.assert_array_equal(folded[name], array)


@pytest.mark.parametrize("mode, moves", [(TRAINING, True), (SAMPLED_EVALUATION, False), (EVALUATION, False)])
def test_only_training_moves_the_running_statistics(mode, moves, random):
    x = nn.Variable.from_numpy_array(random.normal(3, 2, size=(8, 2, 4, 4)))
    conv_bn(x, 3, 1, TRAINING, "c")
    y = conv_bn(x, 3, 1, mode, "c")
    parameters = nn.get_parameters(grad_only=False)
    before = parameter_arrays(parameters)
    y.forward()
    changed = {name for name, array in parameter_arrays(parameters).items() if not np.array_equal(array, before[name])}
    assert changed == ({"c/mean", "c/variance"} if moves else set())
    normalized = mode is not EVALUATION
    assert np.allclose(y.d.mean(axis=(0, 2, 3)), 0, atol=1e-5) == normalized


@pytest.mark.parametrize("mode", [TRAINING, SAMPLED_EVALUATION, EVALUATION, Mode("batch", affine=False)])
@pytest.mark.parametrize(
    "layer",
    [
        lambda x, mode: conv_bn(x, 6, 3, mode, "one", stride=2, activation="swish"),
        lambda x, mode: inverted_residual(x, 4, 3, 5, 1, mode, "one"),
        lambda x, mode: inverted_residual(x, 6, 1, 3, 2, mode, "one"),
        lambda x, mode: separable_conv_bn(x, 6, 5, mode, "one", stride=2),
        lambda x, mode: separable_conv_bn(x, 6, 3, mode, "one", dilation=2),
        lambda x, mode: max_pooling(conv_bn(x, 4, 1, mode, "one"), 3, mode, stride=2),
        lambda x, mode: average_pooling(conv_bn(x, 4, 1, mode, "one"), 3, mode),
        lambda x, mode: relu_conv_bn(x, 6, 1, mode, "one"),
        lambda x, mode: factorized_reduction(x, 5, mode, "one"),
        lambda x, mode: batch_normalization(max_pooling(x, 3, mode), mode, "two"),
    ],
)
def test_fast_kernels_are_the_same_layers(layer, mode, random):
    """The same parameters under the same names, the same outputs, gradients and running statistics."""
    x = nn.Variable.from_numpy_array(random.normal(size=(3, 4, 7, 6)))
    arrays, found = {}, []
    for kernels in (None, load(2)):
        with nn.parameter_scope("", {}):
            y = layer(x, replace(mode, kernels=kernels))
            parameters = nn.get_parameters(grad_only=False)
            for name, parameter in parameters.items():
                parameter.d = arrays.setdefault(name, random.uniform(0.5, 1.5, parameter.shape))
                parameter.grad.zero()
        F.sum(y * y).forward()
        y.forward(clear_no_need_grad=True)
        y.backward(np.arange(y.size).reshape(y.shape) / y.size, clear_buffer=True)
        gradients = {name: p.g.copy() for name, p in parameters.items() if p.need_grad}
        running = {name: p.d.copy() for name, p in parameters.items() if not p.need_grad}
        found.append({**gradients, **{f"value of {name}": value for name, value in running.items()}})
        y.forward()
        found[-1]["y"] = y.d.copy()
    native, fast = found
    assert native.keys() == fast.keys()
    for name, value in native.items():
        np.testing.assert_allclose(fast[name], value, rtol=1e-4, atol=1e-5 * (1 + np.abs(value).max()), err_msg=name)


def test_shortcut_only_where_shapes_allow(random):
    x = nn.Variable.from_numpy_array(random.normal(size=(1, 4, 6, 6)))
    same = inverted_residual(x, 4, 3, 3, 1, SHIPPED, "a")
    wider = inverted_residual(x, 6, 3, 3, 1, SHIPPED, "b")
    assert same.parent.info.type_name == "Add2" and wider.parent.info.type_name == "Convolution"
    assert inverted_residual(x, 4, 3, 3, 2, SHIPPED, "c").shape == (1, 4, 3, 3)
    for parameter in nn.get_parameters().values():
        parameter.d = 0
    same.forward()
    np.testing.assert_allclose(same.d, x.d, rtol=1e-6)


def test_decay_is_for_weights():
    assert is_decayed("stem/W") and not any(map(is_decayed, ("stem/b", "stem/gamma", "stem/beta")))


def test_a_factorized_reduction_sees_all_pixels(random):
    """Its two halves see those of even and of odd rows and columns; of odd sizes too."""
    for size in ((6, 8), (5, 7)):
        x = nn.Variable.from_numpy_array(np.abs(random.normal(size=(1, 2, *size))))
        nn.clear_parameters()
        y = factorized_reduction(x, 2, SHIPPED, "one")
        for name, parameter in nn.get_parameters().items():
            parameter.d = 0 if name.endswith("b") else 1
        y.forward()
        sums = np.pad(x.d.sum(axis=1), ((0, 0), (0, size[0] % 2), (0, size[1] % 2)))
        np.testing.assert_allclose(y.d[:, 0], sums[:, ::2, ::2], rtol=1e-5)
        np.testing.assert_allclose(y.d[:, 1], sums[:, 1::2, 1::2], rtol=1e-5)
        assert zeros(x, 2).shape == y.shape and zeros(x).shape == x.shape


def test_drop_path_drops_whole_samples_and_keeps_the_mean(random):
    progress = nn.Variable.from_numpy_array(np.array(0.0))
    values = random.normal(size=(4000, 1, 2, 1))
    x = nn.Variable.from_numpy_array(values).apply(need_grad=True)
    y = drop_path(x, 0.4, replace(TRAINING, progress=progress))
    for share in (0.0, 0.5, 1.0):
        progress.d = share
        nn.random.set_function_seed(3)
        y.forward(clear_no_need_grad=True)
        dropped = (y.d == 0).all(axis=(1, 2, 3))
        assert dropped.mean() == pytest.approx(0.4 * share, abs=0.03)
        np.testing.assert_allclose(y.d[~dropped], values[~dropped] / (1 - 0.4 * share), rtol=1e-5)
        x.grad.zero()
        y.backward(1, clear_buffer=True)
        np.testing.assert_allclose(x.g[:, 0, 0, 0], np.where(dropped, 0, 1 / (1 - 0.4 * share)), rtol=1e-5)
    # Drawn anew with another seed, and again alike with the same one.
    found = []
    for seed in (1, 2, 1):
        nn.random.set_function_seed(seed)
        y.forward()
        found.append((y.d == 0).all(axis=(1, 2, 3)))
    assert (found[0] == found[2]).all() and (found[0] != found[1]).any()


@pytest.mark.parametrize("mode, rate", [(EVALUATION, 0.4), (SHIPPED, 0.4), (TRAINING, 0.0)])
def test_paths_are_dropped_in_training_alone(mode, rate):
    x = nn.Variable((2, 1, 1, 1))
    assert drop_path(x, rate, mode) is x


def test_scale_and_shift_are_added_only_to_arrays_without_any():
    without = {"a/W": np.ones(2), "a/mean": np.full((1, 2, 1, 1), 3.0), "a/variance": np.ones((1, 2, 1, 1))}
    found = with_affine(without)
    assert found.keys() - without.keys() == {"a/gamma", "a/beta"}
    assert (found["a/gamma"] == 1).all() and (found["a/beta"] == 0).all() and found["a/gamma"].shape == (1, 2, 1, 1)
    half = {**without, "b/gamma": np.ones(2)}
    assert with_affine(half) is half
