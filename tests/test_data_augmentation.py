"""Augmentation: what it does to images, for each sample, decided by the seed, in training only."""

from functools import partial

import nnabla as nn
import nnabla.solvers as S
import numpy as np
import pytest
from conftest import small_mobilenet
from tiny import CLASSES, SHAPE, assert_same, patterns, shared

from nnas.classifier import Classification, ClassifierGraph
from nnas.data.augmentation import Cutout, Flip, PadAndCrop, RandomResizedCrop
from nnas.data.dataset import chained
from nnas.deciders import Fixed, listed
from nnas.errors import NnasError
from nnas.layers import EVALUATION, SAMPLED_EVALUATION, SHIPPED, TRAINING
from nnas.objectives import RewardMin
from nnas.randomness import seed_functions
from nnas.search import Search
from nnas.searchers.reinforce import Reinforce
from nnas.train import Training

AUGMENTATION = chained([PadAndCrop(1), Flip(), Cutout(2), RandomResizedCrop(0.5)])
ALL = [PadAndCrop(2), Flip(), Cutout(4), RandomResizedCrop()]
SAMPLES, SIZE = 64, 8


def built(augmentation, images):
    x = nn.Variable(images.shape)
    x.d = images
    return augmentation(x)


def drawn(y, place=0):
    seed_functions(0, place)
    y.forward()
    return y.d.copy()


@pytest.fixture
def coordinates():
    """(N, 2, 8, 9) images whose channels are the row and column, from 1."""
    rows, columns = np.mgrid[1 : SIZE + 1, 1 : SIZE + 2]
    return np.broadcast_to(np.stack([rows, columns]), (SAMPLES, 2, SIZE, SIZE + 1)).astype(np.float32)


@pytest.mark.parametrize("augmentation", [*ALL, chained(ALL)], ids=lambda one: type(one).__name__)
def test_seeds_decide_and_samples_differ(augmentation, coordinates):
    y = built(augmentation, coordinates)
    assert y.shape == coordinates.shape and not y.need_grad
    first, other, again = drawn(y), drawn(y, 1), drawn(y)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    images = {image.tobytes() for image in first}
    assert len(images) >= (2 if isinstance(augmentation, Flip) else 10)
    assert np.isfinite(first).all()


def test_pad_and_crop(coordinates):
    found = drawn(built(PadAndCrop(2), coordinates))
    padded = np.pad(coordinates[0], ((0, 0), (2, 2), (2, 2)))
    parts = {padded[:, i : i + SIZE, j : j + SIZE + 1].tobytes(): (i, j) for i in range(5) for j in range(5)}
    places = [parts[image.tobytes()] for image in found]
    assert {i for i, _ in places} == {j for _, j in places} == set(range(5))


def test_flip(coordinates):
    found = drawn(built(Flip(), coordinates))
    flipped = [np.array_equal(image, coordinates[0, :, :, ::-1]) for image in found]
    same = [np.array_equal(image, coordinates[0]) for image in found]
    assert all(one != other for one, other in zip(flipped, same, strict=True))
    assert SAMPLES / 4 < sum(flipped) < SAMPLES * 3 / 4


@pytest.mark.parametrize("size", [3, 4])
def test_cutout_covers_a_square_around_any_pixel(coordinates, size):
    y = built(Cutout(size), coordinates)
    expected = set()
    for row in range(SIZE):
        for column in range(SIZE + 1):
            mask = np.ones((SIZE, SIZE + 1), bool)
            top, left = row - size // 2, column - size // 2
            mask[max(top, 0) : top + size, max(left, 0) : left + size] = False
            expected.add(mask.tobytes())
    found = set()
    for place in range(20):
        images = drawn(y, place)
        kept = images != 0
        assert (kept[:, 0] == kept[:, 1]).all() and (images == coordinates * kept).all()
        found |= {mask.tobytes() for mask in kept[:, 0]}
    assert found == expected


def test_random_resized_crop_is_of_the_area_and_ratio_that_are_asked_for():
    size = 32
    rows, columns = np.mgrid[0:size, 0:size]
    images = np.broadcast_to(np.stack([rows, columns]) + 100.0, (256, 2, size, size)).astype(np.float32)
    y = built(RandomResizedCrop(0.25, 2), images)
    found = np.concatenate([drawn(y, place) for place in range(4)])
    # Sides by the inner half, since at the edges the outermost pixels are repeated.
    inner = slice(size // 4, size // 4 + size // 2 + 1)
    height = np.ptp(found[:, 0, inner, 5], axis=1) * 2 / size
    width = np.ptp(found[:, 1, 5, inner], axis=1) * 2 / size
    area, ratio = height * width, width / height
    cut = (height > 0.999) | (width > 0.999)
    assert 0.24 < area.min() < 0.3 and 0.9 < area.max() <= 1.001
    assert 0.49 < ratio.min() < 0.55 and 1.8 < ratio.max() < 2.01
    assert abs(np.median(area[~cut]) - 0.5) < 0.06
    # Parts lie everywhere inside, and nothing is filled in.
    middle = found[:, :, size // 2, size // 2]
    assert middle.min() < 112 and middle.max() > 120
    assert found.min() >= 99.999 and found.max() <= 100 + size - 0.999
    whole = drawn(built(RandomResizedCrop(1, 1), images))
    np.testing.assert_allclose(whole, images, atol=1e-4)


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: PadAndCrop(0), "data.augmentation.pad=0"),
        (lambda: Cutout(1.5), "data.augmentation.size=1.5"),
        (lambda: RandomResizedCrop(0), "data.augmentation.least_area=0"),
        (lambda: RandomResizedCrop(1, 0.5), "data.augmentation.aspect_ratio=0.5"),
        (lambda: chained(["flip"]), "data.augmentation: 'flip'"),
    ],
)
def test_wrong_values_are_named(make, named):
    with pytest.raises(NnasError, match=named):
        make()


def test_without_augmentation_there_is_none():
    assert chained([]) is None and chained(None) is None


# In graphs


def functions(variable):
    names = []
    variable.visit(lambda function: names.append(function.info.type_name))
    return names


@pytest.mark.parametrize("mode", [TRAINING, EVALUATION, SAMPLED_EVALUATION, SHIPPED])
def test_only_training_graphs_have_it(mode, random):
    network = small_mobilenet()
    choices = listed(network).complete(lambda decision: decision.options[0])
    graph = ClassifierGraph(network, Fixed(choices), mode, Classification(), 5, Flip())
    assert ("RandomFlip" in functions(graph.loss)) == (mode is TRAINING)
    images = random.normal(size=(5, 1, 8, 8))
    results = []
    for seed in range(8):
        seed_functions(seed, "test")
        graph.forward(images, np.arange(5).reshape(5, 1) % 4)
        results.append(graph.outputs.logits.d.tobytes())
    assert (len(set(results)) > 1) == (mode is TRAINING)


def test_gradients_are_those_of_the_augmented_images(kernels, random):
    """The changed images are not freed before the weights' gradients need them."""
    network = small_mobilenet()
    choices = listed(network).complete(lambda decision: decision.options[0])
    images, labels = random.normal(size=(6, 1, 8, 8)), np.arange(6).reshape(6, 1) % 4
    augmentation = chained([PadAndCrop(2), Flip(), Cutout(3)])
    changed = drawn(built(augmentation, images))
    gradients = []
    for given, function in ((images, augmentation), (changed, None), (images, None)):
        with nn.parameter_scope("", {}):
            nn.random.prng = np.random.RandomState(0)
            graph = ClassifierGraph(network, Fixed(choices), TRAINING, Classification(), 6, function)
            weights = nn.get_parameters()
        for weight in weights.values():
            weight.grad.zero()
        seed_functions(0, 0)
        graph.forward(given, labels)
        graph.loss.backward(clear_buffer=True)
        gradients.append({name: weight.g.copy() for name, weight in weights.items()})
    for name, gradient in gradients[0].items():
        np.testing.assert_array_equal(gradient, gradients[1][name])
    assert any((gradient != gradients[2][name]).any() for name, gradient in gradients[0].items())


def network():
    return small_mobilenet(input_shape=SHAPE, classes=CLASSES, dropout_rate=0.2)


def searched(augmentation):
    space, settings = listed(network()), shared(partial(S.Nesterov, momentum=0.9))
    searcher = Reinforce(space, [], RewardMin(), partial(S.Adam, alpha=0.3), settings["communicator"], 0, samples=2)
    data = patterns()
    data.augmentation = augmentation
    settings |= {"warmup_epochs": 1, "epochs": 1, "validation_batch": 6, "steps_per_update": 2}
    return Search(network(), data, searcher=searcher, seed=0, **settings)


def trained(augmentation):
    choices = listed(network()).complete(lambda decision: decision.options[0])
    data = patterns()
    data.augmentation = augmentation
    return Training(network(), choices, data, epochs=2, seed=0, **shared(partial(S.Nesterov, momentum=0.9)))


@pytest.mark.parametrize("make", [searched, trained])
def test_a_resumed_run_with_augmentation_is_as_an_uninterrupted_one(make):
    whole, states = make(AUGMENTATION), []
    for progress in whole:
        if progress.record:
            states.append(whole.state())
    plain = make(None)
    for _ in plain:
        pass
    assert any((value != plain.state()["weights"][name]).any() for name, value in states[-1]["weights"].items()), (
        "the augmentation must do something"
    )
    for epoch in range(len(states) - 1):
        other = make(AUGMENTATION)
        nn.random.set_function_seed(epoch)
        for progress in other:
            if progress.step == 2:
                break
        other.restore(states[epoch])
        for _ in other:
            pass
        assert_same(other.state(), states[-1])
