"""One update of weights, by the formulas of its solvers."""

from functools import partial

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np
import pytest
from conftest import Nested, small_mobilenet

from nnas.classifier import Classification, ClassifierGraph
from nnas.communicator import Alone
from nnas.deciders import Fixed, Sampled, listed
from nnas.errors import NnasError
from nnas.layers import TRAINING, Outputs, affine
from nnas.updates import WeightUpdate, parameter_arrays, set_parameters

momentum = partial(S.Momentum, momentum=0.9)
nesterov = partial(S.Nesterov, momentum=0.9)


class Linear:
    """Two fully connected layers, with or without dropout between them; no batch normalization."""

    input_shape = (2, 3, 3)
    classes = 3

    def __init__(self, rate=0.0):
        self.rate = rate

    def __call__(self, x, decide, mode):
        y = F.tanh(affine(x, 5, "hidden"))
        return Outputs(affine(F.dropout(y, self.rate) if self.rate else y, self.classes, "classifier"))


class Linears:
    """A graph with its parameters and an update over them."""

    def __init__(self, batch=4, rate=0.0, seed=0, solver=momentum, decay=0.0, clip=None):
        nn.random.prng = np.random.RandomState(0)
        with nn.parameter_scope("", {}):
            self.graph = ClassifierGraph(Linear(rate), Fixed({}), TRAINING, Classification(), batch)
            self.parameters = nn.get_parameters()
        self.update = WeightUpdate(self.parameters, solver, 0.1, decay, clip, Alone(), seed)

    def step(self, batches, learning_rate=0.1, place=("train", 0, 0)):
        return self.update.step(self.graph, batches, list(self.parameters), learning_rate, place)

    def gradients(self, batches):
        """Means over the micro-batches, at the present weights."""
        sums = {name: np.zeros(p.shape, np.float64) for name, p in self.parameters.items()}
        for images, labels in batches:
            for parameter in self.parameters.values():
                parameter.grad.zero()
            self.graph.forward(images, labels)
            self.graph.loss.backward()
            for name, parameter in self.parameters.items():
                sums[name] += parameter.g / len(batches)
        return sums

    @property
    def arrays(self):
        return parameter_arrays(self.parameters)


def batches_of(random, count=1, size=4, network=Linear):
    return [
        (random.normal(size=(size, *network.input_shape)), random.integers(network.classes, size=(size, 1)))
        for _ in range(count)
    ]


def global_norm(gradients):
    return np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_equal(value, other[name])
        else:
            np.testing.assert_array_equal(value, other[name], err_msg=name)


def of_parameter(state, name):
    """The solver's state of one parameter, of whichever solver has it."""
    (found,) = [state[solver][name] for solver in ("decayed", "plain") if name in state[solver]]
    return found


def mobilenet():
    return small_mobilenet(expansions=(2, 3), kernels=(3, 5))


@pytest.mark.parametrize("make", [mobilenet, Nested])
@pytest.mark.parametrize("solver", [momentum, nesterov, S.Adam])
def test_what_the_loss_does_not_reach_stays_as_it_is(make, solver, random):
    """Neither moved by old momentum, nor decayed, nor are running statistics polluted, over alternating paths."""
    network = make()
    space = listed(network)
    with nn.parameter_scope("", {}):
        decide = Sampled()
        graph = ClassifierGraph(network, decide, TRAINING, Classification(0.1), 4)
        everything, trained = nn.get_parameters(grad_only=False), nn.get_parameters()
        touched = decide.parameters(graph.loss)
    update = WeightUpdate(trained, solver, 0.1, 0.05, 0.5, Alone(), 0)
    paths = [space.sample(random) for _ in range(3)]
    left_alone = set()
    for number in range(8):
        choices = paths[number % 3]
        decide.select(choices)
        active = [name for name in touched(choices) if name in trained]
        weights, solvers = parameter_arrays(everything), update.state()
        batches = batches_of(random, count=2, network=network)
        update.step(graph, batches, active, 0.1, ("search", 0, number))
        after, states = parameter_arrays(everything), update.state()
        for name in everything:
            if name in touched(choices):
                # A bias may have no gradient here; weights always have one, and statistics always follow.
                if name.endswith(("/W", "/mean", "/variance")):
                    assert (after[name] != weights[name]).any(), name
                continue
            left_alone.add(name)
            np.testing.assert_array_equal(after[name], weights[name], err_msg=name)
            if name in trained:
                one, other = of_parameter(states, name), of_parameter(solvers, name)
                assert one["t"] == other["t"], name
                assert_equal(one["arrays"], other["arrays"])
    ever = set().union(*map(touched, paths))
    # Some of them had momentum: they were active in other steps.
    assert left_alone & ever and left_alone - ever


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("count", [2, 4])
def test_micro_batches_make_the_update_of_one_large_batch(count, clip, random):
    """Without clipping too, which would hide that a gradient is some times too large."""
    whole = batches_of(random, size=4 * count)
    parts = [(whole[0][0][i : i + 4], whole[0][1][i : i + 4]) for i in range(0, 4 * count, 4)]
    large, small = Linears(batch=4 * count, decay=0.01, clip=clip), Linears(batch=4, decay=0.01, clip=clip)
    for step in range(3):
        figures = [
            large.step(whole, place=("train", 0, step)),
            small.step(iter(parts), place=("train", 0, step)),
        ]
        assert figures[0] == pytest.approx(figures[1], rel=1e-5)
        for name, array in large.arrays.items():
            np.testing.assert_allclose(small.arrays[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_loss_and_error_are_means_over_the_samples(random):
    one = Linears()
    batches = batches_of(random, count=3)
    losses, errors = [], []
    for images, labels in batches:
        one.graph.forward(images, labels)
        logits = one.graph.outputs.logits.d.astype(np.float64)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        losses += list(-log_p[np.arange(4), labels[:, 0]])
        errors += list(logits.argmax(axis=1) != labels[:, 0])
    assert one.step(batches) == pytest.approx({"loss": np.mean(losses), "error": np.mean(errors)}, rel=1e-5)


@pytest.mark.parametrize("clip", [1e-3, 0.05, 1e3])
def test_clipping_by_the_norm_of_the_whole_gradient(clip, random):
    """Each weight moves by learning rate x gradient x min(1, clip / norm)."""
    one = Linears(solver=partial(S.Sgd), clip=clip)
    batches = batches_of(random, count=2)
    before, gradients = one.arrays, one.gradients(batches)
    factor = min(1, clip / global_norm(gradients))
    assert factor == 1 or clip < 1
    one.step(batches, learning_rate=0.3)
    for name, array in one.arrays.items():
        moved = before[name] - array
        np.testing.assert_allclose(moved, 0.3 * factor * gradients[name], rtol=1e-2, atol=3e-7, err_msg=name)
    moved = np.sqrt(sum(((before[name] - array) ** 2).sum() for name, array in one.arrays.items()))
    assert moved == pytest.approx(0.3 * min(clip, global_norm(gradients)), rel=1e-3)


@pytest.mark.parametrize("make", [mobilenet, Nested])
def test_clipping_takes_the_norm_over_the_active_path_only(make, random):
    """Against the same path built alone, step by step: old gradients of other paths must not count."""
    network = make()
    space = listed(network)
    with nn.parameter_scope("", {}):
        decide = Sampled()
        graph = ClassifierGraph(network, decide, TRAINING, Classification(), 4)
        everything, trained = nn.get_parameters(grad_only=False), nn.get_parameters()
        touched = decide.parameters(graph.loss)
    update = WeightUpdate(trained, S.Sgd, 0.1, 0.0, 0.01, Alone(), 0)
    for number in range(4):
        choices = space.sample(random)
        with nn.parameter_scope("", {}):
            alone = ClassifierGraph(network, Fixed(choices), TRAINING, Classification(), 4)
            own = nn.get_parameters()
            set_parameters(nn.get_parameters(grad_only=False), parameter_arrays(everything), "the supernet")
        batches = batches_of(random, network=network)
        WeightUpdate(own, S.Sgd, 0.1, 0.0, 0.01, Alone(), 0).step(alone, batches, list(own), 0.1, ("search", 0, number))
        decide.select(choices)
        update.step(graph, batches, [name for name in touched(choices) if name in trained], 0.1, ("search", 0, number))
        for name, parameter in own.items():
            np.testing.assert_allclose(trained[name].d, parameter.d, rtol=1e-5, atol=1e-7, err_msg=name)


def test_decay_is_for_weights_alone(random):
    """One step with decay against one without, from the same place: w moves by learning rate x decay x w more."""
    network = small_mobilenet()
    choices = {"stage1_block1": "e3_k5", "stage1_block2": "skip", "stage2_block1": "e6_k7", "stage2_block2": "e3_k3"}
    batches = batches_of(random, network=network)
    results, start = [], None
    for decay in (0.0, 0.5):
        nn.random.prng = np.random.RandomState(0)
        with nn.parameter_scope("", {}):
            graph = ClassifierGraph(network, Fixed(choices), TRAINING, Classification(), 4)
            parameters = nn.get_parameters()
        start = parameter_arrays(parameters)
        update = WeightUpdate(parameters, S.Sgd, 0.1, decay, None, Alone(), 0)
        update.step(graph, batches, list(parameters), 0.1, ("train", 0, 0))
        results.append(parameter_arrays(parameters))
    plain, decayed = results
    kinds = {name.rpartition("/")[2] for name in start}
    assert kinds == {"W", "b", "gamma", "beta"}
    for name, array in start.items():
        expected = 0.1 * 0.5 * array if name.endswith("/W") else np.zeros_like(array)
        np.testing.assert_allclose(plain[name] - decayed[name], expected, rtol=1e-3, atol=1e-6, err_msg=name)


def test_decay_is_not_clipped(random):
    one = Linears(solver=S.Sgd, decay=0.5, clip=1e-4)
    batches = batches_of(random)
    before, gradients = one.arrays, one.gradients(batches)
    one.step(batches, learning_rate=0.1)
    factor = 1e-4 / global_norm(gradients)
    for name, array in one.arrays.items():
        decay = 0.5 * before[name] if name.endswith("/W") else 0
        np.testing.assert_allclose(before[name] - array, 0.1 * (factor * gradients[name] + decay), rtol=1e-3, atol=1e-6)


def _momentum(v, w, g, rate):
    v = 0.9 * v + rate * g
    return v, w - v


def _nesterov(v, w, g, rate):
    new = 0.9 * v - rate * g
    return new, w - 0.9 * v + 1.9 * new


@pytest.mark.parametrize("solver, rule", [(momentum, _momentum), (nesterov, _nesterov)])
def test_momentum_goes_on_from_step_to_step(solver, rule, random):
    one = Linears(solver=solver, decay=0.01)
    velocities = {name: 0.0 for name in one.parameters}
    for step, rate in enumerate((0.1, 0.3, 0.05)):
        batches = batches_of(random, count=2)
        before, gradients = one.arrays, one.gradients(batches)
        one.step(batches, learning_rate=rate, place=("train", 0, step))
        for name, array in one.arrays.items():
            gradient = gradients[name] + (0.01 * before[name] if name.endswith("/W") else 0)
            velocities[name], expected = rule(velocities[name], before[name], gradient, rate)
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=2e-6, err_msg=name)


def test_a_loss_that_is_no_number_names_the_place_and_changes_nothing(random):
    one = Linears()
    good, broken = batches_of(random, count=2)
    broken[0][0, 0, 0, 0] = np.nan
    one.step([good])
    before, states = one.arrays, one.update.state()
    with pytest.raises(NnasError, match=r"loss is nan at search epoch 4 step 8.*learning rate"):
        one.step([good, broken], place=("search", 3, 7))
    assert_equal(one.arrays, before)
    assert_equal(one.update.state(), states)


def test_random_functions_depend_on_seed_and_place_alone(random):
    batches = batches_of(random, count=2)
    first = Linears(rate=0.5)
    start = first.arrays

    def after(place, seed=0, draws=0):
        one = Linears(rate=0.5, seed=seed)
        set_parameters(one.parameters, start, "start")
        for _ in range(draws):
            nn.random.set_function_seed(draws)
            one.graph.forward(*batches[0])
        one.step(batches, place=place)
        return one.arrays["classifier/W"]

    expected = after(("train", 1, 2))
    np.testing.assert_array_equal(after(("train", 1, 2), draws=3), expected)
    for other in (after(("train", 1, 3)), after(("train", 2, 2)), after(("search", 1, 2)), after(("train", 1, 2), 1)):
        assert (other != expected).any()


def test_micro_batches_draw_differently(random):
    """The same samples twice: with one seed for both, the mean of two passes would be one of them."""
    batch = batches_of(random)[0]
    one, two = Linears(rate=0.5), Linears(rate=0.5)
    one.step([batch])
    two.step([batch, batch])
    assert any((one.arrays[name] != array).any() for name, array in two.arrays.items())


@pytest.mark.parametrize("solver", [momentum, nesterov, S.Adam, S.Sgd])
def test_restored_goes_on_in_the_same_bytes(solver, random):
    one = Linears(solver=solver, decay=0.01, clip=0.5, rate=0.3)
    for step in range(3):
        one.step(batches_of(random), place=("train", 0, step))
    saved, weights = one.update.state(), one.arrays
    other = Linears(solver=solver, decay=0.01, clip=0.5, rate=0.3)
    set_parameters(other.parameters, weights, "the checkpoint")
    other.update.restore(saved)
    for step in range(3, 6):
        batches = batches_of(random)
        assert one.step(batches, place=("train", 0, step)) == other.step(batches, place=("train", 0, step))
    assert_equal(one.arrays, other.arrays)
    assert_equal(one.update.state(), other.update.state())
    assert {of_parameter(saved, name)["t"] for name in weights} == {3}


def test_parameters_that_are_missing_or_of_another_shape_are_named():
    one = Linears()
    arrays = one.arrays
    for wrong in ({**arrays, "hidden/W": arrays["hidden/W"][:1]}, {k: v for k, v in arrays.items() if k != "hidden/W"}):
        changed = Linears()
        wrong["classifier/W"] = wrong["classifier/W"] + 1
        before = changed.arrays
        with pytest.raises(NnasError, match=r"x\.h5: 1 of 4 parameters .*hidden/W"):
            set_parameters(changed.parameters, wrong, "x.h5")
        assert_equal(changed.arrays, before)
    set_parameters(one.parameters, {**arrays, "of another path": np.zeros(3)}, "x.h5")


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"learning_rate": 0}, "learning_rate=0"),
        ({"learning_rate": "fast"}, "learning_rate='fast'"),
        ({"weight_decay": -1}, "weight_decay=-1"),
        ({"clip_norm": 0}, "clip_norm=0"),
    ],
)
def test_wrong_values_are_named(changes, named):
    settings = {"learning_rate": 0.1, "weight_decay": 0.0, "clip_norm": None, **changes}
    with pytest.raises(NnasError, match=named):
        WeightUpdate({}, momentum, communicator=Alone(), seed=0, **settings)
