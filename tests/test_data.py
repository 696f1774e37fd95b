"""Cluttered digits and batches."""

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits

from nnas.data import cluttered_digits
from nnas.data.batches import TrainingBatches, evaluation_batches
from nnas.data.cluttered_digits import ClutteredDigits
from nnas.errors import NnasError
from nnas.randomness import generator


@pytest.fixture(scope="module")
def data():
    return ClutteredDigits()


class Numbered:
    """A split whose images are their index, with one draw of the generator where there is one."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def draw(self, indices, generator):
        indices = np.asarray(indices)
        images = np.zeros((len(indices), 1, 1, 2), np.float32)
        images[:, 0, 0, 0] = indices
        if generator is not None:
            images[:, 0, 0, 1] = generator.random(len(indices))
        return images, (indices % 10).astype(np.int32).reshape(-1, 1)


def drawn(split, seed=0):
    return split.draw(np.arange(len(split)), np.random.default_rng(seed))


def test_shapes_types_and_range(data):
    for split in (data.training, data.retraining, data.validation, data.test):
        images, labels = drawn(split)
        assert images.dtype == np.float32 and labels.dtype == np.int32
        assert images.shape == (len(split), 1, 12, 12) == (len(split), *data.shape)
        assert labels.shape == (len(split), 1)
        assert set(np.unique(labels)) == set(range(10)) and data.classes == 10
        # Ink is in [0, 1]; noise of deviation 0.2 hardly leaves it by more than one.
        assert -1.2 < images.min() < 0 and 1 < images.max() < 2.2 and np.isfinite(images).all()


def test_sizes_add_up_to_all_digits(data):
    assert (len(data.training), len(data.retraining)) == (1797 - 300 - 450, 1797 - 450)
    assert (len(data.validation), len(data.test)) == (4 * 300, 4 * 450)


def test_the_description_tells_data_apart(data):
    described = data.description()
    assert described == ClutteredDigits().description() == json.loads(json.dumps(described))
    assert described["samples"] == {"training": 1047, "validation": 1200, "test": 1800}
    for change in ({"split_seed": 1}, {"noise": 0.2}, {"copies": 3}, {"test": 449}, {"fragment": 3}):
        assert ClutteredDigits(**change).description() != described, change


def plain(monkeypatch, digits=None, **changes):
    """Data without clutter on a canvas of a digit's size, so that an image is its digit."""
    if digits is not None:
        monkeypatch.setattr(cluttered_digits, "load_digits", lambda return_X_y: digits)
    return ClutteredDigits(**{"canvas": 8, "fragments": 0, "noise": 0, "copies": 1, **changes})


def test_no_original_digit_is_in_two_splits(monkeypatch):
    size = 200
    # Every digit has a number of its own as its ink.
    originals = np.arange(1, size + 1)[:, None] * np.ones((1, 64)) * 16
    labels = np.arange(size) % 10
    data = plain(monkeypatch, (originals, labels), validation=30, test=50)
    numbers = {}
    for name in ("training", "retraining", "validation", "test"):
        images, of = drawn(getattr(data, name))
        own = images.reshape(len(images), -1)
        assert (own == own[:, :1]).all()
        np.testing.assert_array_equal(of[:, 0], (own[:, 0] - 1) % 10)
        numbers[name] = set(own[:, 0].astype(int))
    assert list(map(len, numbers.values())) == [120, 150, 30, 50]
    assert not numbers["training"] & numbers["validation"] and not numbers["retraining"] & numbers["test"]
    assert numbers["retraining"] == numbers["training"] | numbers["validation"]
    assert numbers["retraining"] | numbers["test"] == set(range(1, size + 1))


def test_real_digits_are_in_one_split_each(monkeypatch):
    data = plain(monkeypatch)
    splits = [drawn(split)[0] for split in (data.training, data.validation, data.test)]
    found = [{image.tobytes() for image in images} for images in splits]
    digits = (load_digits().data.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    assert sorted(image.tobytes() for images in splits for image in images) == sorted(d.tobytes() for d in digits)
    distinct = len({digit.tobytes() for digit in digits})
    assert sum(map(len, found)) == distinct == 1797


def test_fragments_come_from_the_own_split(monkeypatch):
    """With one ink for each split's digits, no image has the ink of another split."""
    size = 100
    order = generator(0, "cluttered digits").permutation(size)
    inks = np.empty(size)
    inks[order[:50]], inks[order[50:70]], inks[order[70:]] = 1, 2, 4
    digits = inks[:, None] * np.ones((1, 64)) * 16
    data = plain(monkeypatch, (digits, np.zeros(size)), canvas=16, fragments=6, validation=20, test=30)
    for split, expected in ((data.training, {0, 1}), (data.validation, {0, 2}), (data.test, {0, 4})):
        assert set(np.unique(drawn(split)[0])) == expected
    assert set(np.unique(drawn(data.retraining)[0])) == {0, 1, 2}
    # The fragments are there: more ink than the 64 pixels of the digit.
    assert (drawn(data.training)[0] > 0).sum() > 1.3 * 64 * 50


def test_fixed_splits_are_the_same_for_all_runs(data):
    other = ClutteredDigits()
    for name in ("validation", "test"):
        one, same = getattr(data, name), getattr(other, name)
        for a, b in zip(drawn(one, 1), drawn(same, 2), strict=True):
            np.testing.assert_array_equal(a, b)
    moved = ClutteredDigits(split_seed=1)
    assert (drawn(moved.test)[0] != drawn(data.test)[0]).any()
    subset = data.test.draw(np.array([5, 3]), None)
    np.testing.assert_array_equal(subset[0], drawn(data.test)[0][[5, 3]])


def test_the_copies_of_a_fixed_digit_differ(data):
    images, labels = drawn(data.validation)
    images, labels = images.reshape(4, 300, -1), labels.reshape(4, 300)
    assert (labels == labels[0]).all()
    for one in range(1, 4):
        assert (images[one] != images[0]).any(axis=1).all()


def test_training_images_are_decided_by_seed_and_place_alone(data):
    def images(seed=0, phase="search", epoch=0, step=0, number=0):
        batches = TrainingBatches(data.training, 16, 2, seed)
        return list(batches.step(phase, epoch, step))[number][0]

    first = images()
    np.testing.assert_array_equal(first, images())
    for change in ({"seed": 1}, {"phase": "train"}, {"epoch": 1}, {"step": 1}, {"number": 1}):
        assert (images(**change) != first).any(), change


def test_training_images_of_one_digit_differ_between_epochs(data):
    batches = TrainingBatches(data.training, len(data.training), 1, 0)
    epochs = []
    for epoch in range(2):
        order = batches.order("search", epoch)[0, 0]
        (images, labels), *_ = batches.step("search", epoch, 0)
        back = np.argsort(order)
        epochs.append((images[back], labels[back]))
    np.testing.assert_array_equal(epochs[0][1], epochs[1][1])
    assert (epochs[0][0] != epochs[1][0]).any(axis=(1, 2, 3)).all()


def test_digits_are_placed_everywhere(monkeypatch):
    digits = np.full((60, 64), 16.0), np.zeros(60)
    data = plain(monkeypatch, digits, canvas=10, validation=10, test=10)
    random = np.random.default_rng(0)
    images = np.concatenate([data.training.draw(np.arange(40), random)[0][:, 0] for _ in range(20)])
    places = {tuple(np.argwhere(image)[0]) for image in images}
    assert places == {(row, column) for row in range(3) for column in range(3)}
    assert ((images > 0).sum(axis=(1, 2)) == 64).all()


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"canvas": 7}, "data.canvas=7"),
        ({"canvas": 12.5}, "data.canvas=12.5"),
        ({"fragment": 0}, "data.fragment=0"),
        ({"fragment": 9}, "data.fragment=9"),
        ({"fragments": -1}, "data.fragments=-1"),
        ({"noise": -0.1}, "data.noise=-0.1"),
        ({"noise": "much"}, "data.noise='much'"),
        ({"copies": 0}, "data.copies=0"),
        ({"validation": 0}, "data.validation=0"),
        ({"validation": True}, "data.validation=True"),
        ({"test": 0}, "data.test=0"),
        ({"validation": 1000, "test": 797}, "data.validation=1000 and data.test=797"),
        ({"split_seed": -1}, "data.split_seed=-1"),
        ({"split_seed": "x"}, "data.split_seed='x'"),
    ],
)
def test_wrong_values_are_named(changes, named):
    with pytest.raises(NnasError, match=named):
        ClutteredDigits(**changes)


@pytest.mark.parametrize("size, micro_batch, micro_batches", [(24, 4, 2), (25, 4, 2), (31, 4, 2), (3, 4, 2), (1, 5, 1)])
def test_every_sample_is_used_every_epoch(size, micro_batch, micro_batches):
    batches = TrainingBatches(Numbered(size), micro_batch, micro_batches, 0)
    assert batches.steps == -(-size // (micro_batch * micro_batches))
    orders = [batches.order("search", epoch) for epoch in range(3)]
    for epoch, order in enumerate(orders):
        assert order.shape == (batches.steps, micro_batches, micro_batch)
        counts = np.bincount(order.ravel(), minlength=size)
        assert counts.min() >= 1 and counts.sum() == order.size
        assert counts.max() <= -(-order.size // size)
        used = []
        for step in range(batches.steps):
            micro = list(batches.step("search", epoch, step))
            assert len(micro) == micro_batches
            for images, labels in micro:
                assert images.shape == (micro_batch, 1, 1, 2) and labels.shape == (micro_batch, 1)
                used += list(images[:, 0, 0, 0].astype(int))
        assert used == list(order.ravel())
    if size > 3:
        assert (orders[0] != orders[1]).any() and (orders[1] != orders[2]).any()


def test_micro_batches_of_an_update_have_draws_of_their_own():
    batches = TrainingBatches(Numbered(64), 8, 4, 0)
    noises = np.concatenate([images[:, 0, 0, 1] for step in range(2) for images, _ in batches.step("search", 0, step)])
    assert len(set(noises)) == 64


@pytest.mark.parametrize("size, batch", [(12, 4), (13, 4), (15, 4), (3, 4), (1, 7), (5, 1)])
def test_evaluation_counts_every_sample_once(size, batch):
    counted = []
    for images, labels, count in evaluation_batches(Numbered(size), batch):
        assert images.shape == (batch, 1, 1, 2) and labels.shape == (batch, 1) and 1 <= count <= batch
        counted += list(images[:count, 0, 0, 0].astype(int))
        np.testing.assert_array_equal(labels[:, 0], images[:, 0, 0, 0] % 10)
    assert counted == list(range(size))


@pytest.mark.parametrize(
    "name, values", [("micro_batch", (0, 1)), ("micro_batch", (2.5, 1)), ("micro_batches", (1, 0))]
)
def test_wrong_batch_sizes_are_named(name, values):
    with pytest.raises(NnasError, match=name):
        TrainingBatches(Numbered(4), *values, 0)


# Batches prepared while others are computed


class Watched(Numbered):
    """Keeps in which thread it was drawn from; draws only when it is let, and fails at an index."""

    def __init__(self, size, fails_at=None):
        super().__init__(size)
        self.threads, self.fails_at = [], fails_at
        self.let = threading.Event()
        self.let.set()

    def draw(self, indices, generator):
        self.let.wait(10)
        self.threads.append(threading.current_thread().name)
        if self.fails_at is not None and self.fails_at in np.asarray(indices):
            raise NnasError("broken.png: it cannot be read")
        return super().draw(indices, generator)


def values(step):
    return [(images.tobytes(), labels.tobytes()) for images, labels in step]


def test_what_is_prepared_is_what_would_be_drawn():
    split = Numbered(40)
    batches = TrainingBatches(split, 4, 2, 3)
    # In order, again, backwards, of other phases and epochs, and past what was prepared.
    places = [("search", 0, step) for step in range(5)] + [("search", 0, 1), ("search", 0, 0), ("warmup", 0, 1)]
    places += [("search", 1, 0), ("search", 1, 1), ("search", 2, 2), ("search", 1, 2)]
    for place in places:
        phase, epoch, step = place
        expected = [
            split.draw(indices, generator(3, *place, number))
            for number, indices in enumerate(TrainingBatches(split, 4, 2, 3).order(phase, epoch)[step])
        ]
        assert values(batches.step(*place)) == values(expected), place


def test_the_next_update_is_prepared_in_one_other_thread():
    split = Watched(40)
    batches = TrainingBatches(split, 4, 2, 0)
    batches.step("search", 0, 0)
    wait_for(lambda: len(split.threads) == 4)
    batches.step("search", 0, 1)
    wait_for(lambda: len(split.threads) == 6)
    assert len(set(split.threads)) == 1 and split.threads[0] != threading.current_thread().name
    for step in (2, 3, 4):
        batches.step("search", 0, step)
    time.sleep(0.05)
    assert len(split.threads) == 10, "an epoch's end prepares nothing, and nothing is drawn twice"


def test_preparing_does_not_wait():
    split = Watched(40)
    batches = TrainingBatches(split, 4, 2, 0)
    batches.step("search", 0, 0)
    wait_for(lambda: len(split.threads) == 4)
    split.let.clear()
    batches.step("search", 0, 1)  # is there already, while the next one cannot be drawn
    split.let.set()


def test_errors_of_the_thread_come_out_where_the_batch_is_asked_for():
    batches = TrainingBatches(Watched(40), 4, 2, 0)
    batches = TrainingBatches(Watched(40, fails_at=batches.order("search", 0)[2, 1, 0]), 4, 2, 0)
    assert len(batches.step("search", 0, 0)) == len(batches.step("search", 0, 1)) == 2
    for _ in range(2):
        with pytest.raises(NnasError, match="broken.png"):
            batches.step("search", 0, 2)
    assert len(batches.step("search", 0, 3)) == 2
    with pytest.raises(NnasError, match="broken.png"):
        list(evaluation_batches(Watched(40, fails_at=23), 4))


def test_evaluation_draws_the_next_batch_meanwhile():
    split = Watched(10)
    batches = evaluation_batches(split, 4)
    next(batches)
    wait_for(lambda: len(split.threads) == 2)
    assert threading.current_thread().name not in split.threads
    threads = threading.active_count()
    batches.close()
    wait_for(lambda: threading.active_count() < threads)


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen")


@pytest.mark.parametrize(
    "end", ["pass", "sys.exit(3)", "raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGINT)"]
)
def test_nothing_hangs_at_the_end(end):
    code = f"""
import os, signal, sys, time
import numpy as np
from nnas.data.batches import TrainingBatches, evaluation_batches
class Slow:
    def __len__(self):
        return 64
    def draw(self, indices, generator):
        time.sleep(0.05)
        return np.zeros((len(indices), 1)), np.zeros((len(indices), 1))
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background ignores it
batches = TrainingBatches(Slow(), 4, 2, 0)
batches.step("search", 0, 0)
evaluation = evaluation_batches(Slow(), 4)
next(evaluation)
{end}
time.sleep(0.2)
"""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode == 0) == (end == "pass")
    assert time.monotonic() - start < 30
