"""Training of a fixed architecture, and its loss."""

from functools import partial

import nnabla as nn
import nnabla.solvers as S
import numpy as np
import pytest
from conftest import Nested
from test_search import mobilenet
from tiny import CLASSES, SHAPE, Patterns, assert_same, patterns, shared, without_seconds

from nnas import checkpoint
from nnas.classifier import Classification, ClassifierGraph
from nnas.deciders import Fixed, listed
from nnas.errors import NnasError
from nnas.layers import EVALUATION, Outputs
from nnas.train import Training
from nnas.updates import cosine, set_parameters

CHOICES = {"stage1_block1": "e3_k5", "stage1_block2": "e2_k3", "stage2_block1": "e3_k3"}

pytestmark = pytest.mark.usefixtures("kernels")


def make_training(network=None, choices=CHOICES, split=None, epochs=3, seed=0, solver=None, **changes):
    settings = shared(solver or partial(S.Nesterov, momentum=0.9)) | changes
    return Training(
        network or mobilenet(), choices, split or patterns().retraining, epochs=epochs, seed=seed, **settings
    )


def finish(training):
    return [progress.record for progress in training if progress.record]


@pytest.mark.parametrize("solver", [partial(S.Nesterov, momentum=0.9), S.Adam])
def test_interrupted_and_restored_is_as_if_nothing_had_happened(solver, tmp_path):
    whole = make_training(solver=solver)
    records = []
    for progress in whole:
        if progress.record:
            records.append(progress.record)
            checkpoint.save(tmp_path / str(len(records)), whole.state())
    assert len(records) == 3
    for epoch in range(1, 4):
        nn.random.set_function_seed(epoch)
        other = make_training(solver=solver)
        next(iter(other))
        other.restore(checkpoint.load(tmp_path / str(epoch))[0])
        assert without_seconds(finish(other)) == without_seconds(records[epoch:])
        assert_same(other.state(), whole.state())


def test_seeds_decide_a_training():
    first, same, other = (make_training(seed=seed, epochs=1) for seed in (0, 0, 1))
    assert without_seconds(finish(first)) == without_seconds(finish(same)) != without_seconds(finish(other))
    assert_same(first.state(), same.state())


def test_training_learns_and_follows_the_cosine():
    data = patterns()
    training = make_training(split=data.retraining, epochs=15)
    records = finish(training)
    assert records[-1]["loss"] < 0.75 * records[0]["loss"]
    assert training.accuracy(data.test) > 0.6
    assert [record["epoch"] for record in records] == list(range(1, 16))
    assert records[-1]["learning_rate"] == pytest.approx(cosine(0.1, 15 * 4 - 1, 15 * 4))
    rates = [record["learning_rate"] for record in records]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 0


def test_accuracy_is_counted_over_all_samples_with_running_statistics():
    data = patterns()
    training = make_training()
    finish(training)
    before = training.state()
    with nn.parameter_scope("", {}):
        graph = ClassifierGraph(mobilenet(), Fixed(CHOICES), EVALUATION, Classification(), 1)
        set_parameters(nn.get_parameters(grad_only=False), training.weights(), "the trained weights")
    right = 0
    for index in range(len(data.test)):
        images, labels = data.test.draw([index], None)
        graph.images.d = images
        graph.outputs.logits.forward()
        right += int(graph.outputs.logits.d.argmax() == labels[0, 0])
    assert training.accuracy(data.test) == pytest.approx(right / 13, abs=1e-6)
    assert_same(training.state(), before)


def test_inherited_weights_are_where_training_starts():
    first = make_training(seed=1)
    finish(first)
    inherited = {**first.weights(), "stage1_block1/e2_k3/expand/W": np.zeros(3)}
    training = make_training(weights=inherited)
    assert_same(training.weights(), first.weights())
    finish(training)
    with pytest.raises(AssertionError):
        assert_same(training.weights(), first.weights())


def test_weights_with_missing_parameters_are_refused():
    """Never half of the tensors inherited and half of them fresh, in silence."""
    weights = make_training().weights()
    incomplete = dict(list(weights.items())[: len(weights) // 2])
    with pytest.raises(NnasError, match=rf"{len(weights) - len(incomplete)} of {len(weights)} parameters are missing"):
        make_training(weights=incomplete)


def test_only_the_chosen_options_have_parameters():
    names = make_training().weights()
    assert {name.split("/")[1] for name in names if name.startswith("stage1_block1")} == {"e3_k5"}


def test_a_nested_architecture_trains():
    network = Nested()
    network.input_shape, network.classes = SHAPE, CLASSES
    choices = listed(network).check({"operator": "deep", "inner": "k5", "last": "k1"})
    training = make_training(network, choices, epochs=1)
    finish(training)
    assert "first/deep/k5/W" in training.weights() and "second/deep/k5/W" in training.weights()


@pytest.mark.parametrize(
    "changes", [{"epochs": -1}, {"epochs": "x"}, {"micro_batch": 2.5}, {"micro_batches": -2}], ids=str
)
def test_wrong_values_are_named(changes):
    with pytest.raises(NnasError, match=rf"train\.{next(iter(changes))}="):
        finish(make_training(**changes))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("auxiliary", [False, True])
def test_loss_by_formula(smoothing, auxiliary, random):
    logits, other = random.normal(size=(2, 5, 3))
    labels = random.integers(3, size=(5, 1))

    def cross_entropy(values):
        log_p = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
        target = (1 - smoothing) * np.eye(3)[labels[:, 0]] + smoothing / 3
        return -(target * log_p).sum(axis=1).mean()

    expected = cross_entropy(logits) + (0.4 * cross_entropy(other) if auxiliary else 0)
    outputs = Outputs(*map(nn.Variable.from_numpy_array, (logits, other)[: 1 + auxiliary]))
    task = Classification(smoothing)
    loss = task.loss(outputs, nn.Variable.from_numpy_array(labels))
    errors = task.errors(outputs, nn.Variable.from_numpy_array(labels))
    nn.forward_all([loss, errors])
    assert float(loss.d) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(errors.d, (logits.argmax(axis=1) != labels[:, 0])[:, None])


@pytest.mark.parametrize("smoothing", [-0.1, 1.1, "some"])
def test_a_wrong_label_smoothing_is_named(smoothing):
    with pytest.raises(NnasError, match="label_smoothing="):
        Classification(smoothing)


def test_training_draws_new_images_every_epoch():
    split = Patterns(30, 2, True)
    drawn = []
    draw = split.draw
    split.draw = lambda indices, generator: drawn.append(draw(indices, generator)) or drawn[-1]
    finish(make_training(split=split, epochs=2))
    assert len(drawn) == 2 * 4 * 2
    pixels = {image.tobytes() for images, _ in drawn for image in images}
    # 64 of 64 differ: 30 samples twice, and two more of each epoch's start.
    assert len(pixels) == 64
