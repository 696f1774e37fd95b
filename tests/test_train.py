"""Training of a fixed architecture, and its loss."""

from functools import partial

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np
import pytest
from conftest import Nested
from test_search import mobilenet
from tiny import CLASSES, SHAPE, assert_same, patterns, shared, without_seconds

from nnas import checkpoint
from nnas.classifier import Classification, ClassifierGraph
from nnas.deciders import Fixed, listed
from nnas.errors import NnasError
from nnas.layers import EVALUATION, Outputs, affine, conv_bn, drop_path, global_average_pooling
from nnas.schedules import cosine
from nnas.train import Training
from nnas.updates import set_parameters

CHOICES = {"stage1_block1": "e3_k5", "stage1_block2": "e2_k3", "stage2_block1": "e3_k3"}

pytestmark = pytest.mark.usefixtures("kernels")


def make_training(network=None, choices=CHOICES, data=None, epochs=3, seed=0, solver=None, **changes):
    settings = shared(solver or partial(S.Nesterov, momentum=0.9)) | changes
    return Training(network or mobilenet(), choices, data or patterns(), epochs=epochs, seed=seed, **settings)


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
    training = make_training(data=data, epochs=15)
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
    data = patterns()
    split, drawn = data.retraining, []
    draw = split.draw
    split.draw = lambda indices, generator: drawn.append(draw(indices, generator)) or drawn[-1]
    finish(make_training(data=data, epochs=2))
    assert len(drawn) == 2 * 4 * 2
    pixels = {image.tobytes() for images, _ in drawn for image in images}
    # 64 of 64 differ: 30 samples twice, and two more of each epoch's start.
    assert len(pixels) == 64


def test_interrupted_within_an_epoch_and_restored_is_as_if_nothing_had_happened(tmp_path):
    whole = make_training()
    expected = finish(whole)
    cut = make_training()
    for number, _ in enumerate(cut, start=1):
        if number == 6:  # the second step of the second of three epochs
            break
    checkpoint.save(tmp_path, cut.state())
    other = make_training()
    other.restore(checkpoint.load(tmp_path)[0])
    assert (other.upcoming.epoch, other.upcoming.step) == (2, 3)
    assert without_seconds(finish(other)) == without_seconds(expected[1:])
    assert_same({**other.state(), "seconds": 0}, {**whole.state(), "seconds": 0})


def test_validation_every_so_many_epochs_on_images_that_are_not_trained_on():
    data = patterns()
    training = make_training(data=data, epochs=5, split="training", validate_every=2)
    records = finish(training)
    assert [("validation_error" in record) for record in records] == [False, True, False, True, False]
    assert 1 - records[3]["validation_error"] != records[3]["error"]
    assert set(np.concatenate(data.training.calls).tolist()) == set(range(len(data.training)))
    assert not data.retraining.calls
    with pytest.raises(NnasError, match="train.split=training"):
        make_training(validate_every=2)
    with pytest.raises(NnasError, match="did you mean 'training'"):
        make_training(split="trainig")


def half_squared(logits, labels):
    """The mean squared error of one-hot labels, halved."""
    return F.mean(F.squared_error(logits, F.one_hot(labels, (logits.shape[1],))), axis=1, keepdims=True) * 0.5


def top2(logits, labels):
    return F.top_n_error(logits, labels, n=2)


def test_loss_error_and_metrics_of_ones_own(random):
    logits, labels = random.normal(size=(6, 4)), random.integers(4, size=(6, 1))
    task = Classification(loss=half_squared, error=top2, metrics={"top1": F.top_n_error})
    outputs, truth = Outputs(nn.Variable.from_numpy_array(logits)), nn.Variable.from_numpy_array(labels)
    loss, error, metrics = task.loss(outputs, truth), task.errors(outputs, truth), task.metrics(outputs, truth)
    nn.forward_all([loss, error, *metrics.values()])
    assert float(loss.d) == pytest.approx(0.5 * ((logits - np.eye(4)[labels[:, 0]]) ** 2).mean(), rel=1e-5)
    ranks = (-logits).argsort(axis=1).argsort(axis=1)[np.arange(6), labels[:, 0]]
    np.testing.assert_array_equal(error.d[:, 0], ranks >= 2)
    np.testing.assert_array_equal(metrics["top1"].d[:, 0], ranks >= 1)
    with pytest.raises(NnasError, match="label_smoothing"):
        Classification(label_smoothing=0.1, loss=half_squared)


def test_metrics_stand_in_the_records():
    task = Classification(metrics={"top2_error": top2})
    training = make_training(task=task, epochs=2, split="training", validate_every=1)
    for record in finish(training):
        assert record["top2_error"] <= record["error"] and record["validation_top2_error"] <= record["validation_error"]
    assert training.evaluate(patterns().test).keys() == {"error", "top2_error"}


class TwoHeads:
    """Two outputs, each with labels of its own."""

    name, input_shape, classes = "two heads", SHAPE, CLASSES

    def __call__(self, x, decide, mode):
        y = conv_bn(x, 6, 3, mode, "stem", activation="relu")
        y = global_average_pooling(y)
        return Outputs(affine(y, CLASSES, "classifier"), {"parity": affine(y, 2, "parity")})


class TwoLabels:
    """The labels of a split, and whether they are odd."""

    def __init__(self, split):
        self._split = split

    def __len__(self):
        return len(self._split)

    def draw(self, indices, generator):
        images, labels = self._split.draw(indices, generator)
        return images, np.concatenate([labels, labels % 2], axis=1)


def test_several_outputs_with_weights_and_labels_of_their_own(random):
    weighted = {"auxiliary_weight": {"parity": 0.3}, "columns": {"parity": 1}}
    logits, other = random.normal(size=(5, 4)), random.normal(size=(5, 2))
    labels = random.integers(4, size=(5, 1))
    outputs = Outputs(nn.Variable.from_numpy_array(logits), {"parity": nn.Variable.from_numpy_array(other)})
    loss = Classification(**weighted).loss(
        outputs, nn.Variable.from_numpy_array(np.concatenate([labels, labels % 2], axis=1))
    )
    loss.forward()

    def cross_entropy(values, classes):
        log_p = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
        return -log_p[np.arange(5), classes[:, 0]].mean()

    expected = cross_entropy(logits, labels) + 0.3 * cross_entropy(other, labels % 2)
    assert float(loss.d) == pytest.approx(expected, rel=1e-5)
    data = patterns()
    for name in ("training", "retraining", "validation", "test"):
        setattr(data, name, TwoLabels(getattr(data, name)))
    training = make_training(TwoHeads(), {}, data, task=Classification(**weighted), epochs=12)
    records = finish(training)
    assert records[-1]["parity_error"] < records[0]["parity_error"]
    assert training.evaluate(data.test).keys() == {"error", "parity_error"}
    with pytest.raises(NnasError, match=r"output 'parity'.*auxiliary_weight"):
        make_training(TwoHeads(), {})
    with pytest.raises(NnasError, match=r"labels of shape \(4, 1\).*\(4, 2\)"):
        finish(make_training(TwoHeads(), {}, task=Classification(**weighted)))


class Dropping:
    """A network that drops half of its paths at the end, and remembers the variable that says how far training is."""

    name, input_shape, classes = "dropping", SHAPE, CLASSES

    def __call__(self, x, decide, mode):
        self.progress = mode.progress
        y = drop_path(conv_bn(x, 4, 3, mode, "one", activation="relu"), 0.5, mode)
        return Outputs(affine(global_average_pooling(y), self.classes, "classifier"))


def test_drop_path_grows_over_the_steps_and_is_resumed(tmp_path):
    network = Dropping()
    training, seen = make_training(network, {}), []
    for progress in training:
        seen.append(float(network.progress.d))
        if progress.epoch == 2 and progress.step == 1:
            checkpoint.save(tmp_path, training.state())
    np.testing.assert_allclose(seen, np.arange(len(seen)) / len(seen), rtol=1e-6)
    other = make_training(network, {})
    other.restore(checkpoint.load(tmp_path)[0])
    finish(other)
    assert_same(other.state(), training.state())


def test_weights_of_a_search_without_scale_and_shift_are_inherited():
    """All else must be there: half of the tensors inherited in silence is what must not be."""
    weights = make_training(seed=1).weights()
    plain = {name: array for name, array in weights.items() if not name.endswith(("gamma", "beta"))}
    found = make_training(weights=plain).weights()
    assert all((array == 1).all() for name, array in found.items() if name.endswith("gamma"))
    assert all((found[name] == array).all() for name, array in plain.items())
    with pytest.raises(NnasError, match="parameters are missing"):
        make_training(weights={name: array for name, array in weights.items() if not name.endswith("gamma")})
