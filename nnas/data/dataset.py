"""What the data sets of files share: splits, normalization, and the description of their content."""

import hashlib
import os
from contextlib import suppress

import numpy as np

from nnas.data.bars import bar
from nnas.data.download import cache_folder
from nnas.errors import NnasError, check_number, check_positive_integer
from nnas.files import read_json, write_json
from nnas.randomness import generator

SPLITS = ("training", "validation", "test")
MEASURED = 4096  # images that mean and deviation are taken of, where reading them all would take long
CHUNK = 256


class DataSet:
    """Splits of one set of samples, normalized by the mean and deviation of the training split.

    kind, path: what the data are and where they lie, for people. samples: see samples.py. counts: {split: how many of
    the samples are given for it}, in the order of the samples. held_out: {split: how many samples, or which share, to
    take out of those given for training}. augmentation: functions of a variable (N, C, H, W), used in training only.
    balance: how far rare classes are made up for by repetition in what is trained on: a class of n images counts as
    n (largest / n) ** balance; 0: not at all, 1: as many of each class. facts: {name: value} to add to the description.
    Splits are decided by split_seed and the content alone; images of equal content are in one split.
    """

    def __init__(
        self, kind, path, samples, classes, counts, held_out, split_seed, augmentation=(), balance=0.0, **facts
    ):
        check_positive_integer("data.split_seed", split_seed, least=0)
        self.shape, self.classes = tuple(samples.shape), classes
        self.augmentation = chained(augmentation)
        self.notices = []
        digests = list(samples.digests)
        groups = _groups(digests)
        indices = _divided(counts, held_out, samples.labels, groups, split_seed)
        if samples.digest_of == "content":
            self.notices += _repetitions(indices, groups)
        digest = _digest_of(samples, digests)
        normalization = _kept_normalization(samples, indices["training"], digest)
        self._description = {
            "kind": kind,
            "path": None if path is None else str(path),
            "shape": list(self.shape),
            "classes": classes,
            "samples": {name: len(indices[name]) for name in SPLITS},
            "split_seed": split_seed,
            "digest": digest,
            "digest_of": samples.digest_of,
            "normalization": normalization.to_json(),
            **facts,
        }
        if check_number("data.balance", balance, 0, 1):
            self._description["balance"] = balance
        indices["retraining"] = np.concatenate([indices["training"], indices["validation"]])
        for name in ("training", "retraining"):
            indices[name] = _balanced(indices[name], samples.labels, balance, generator(split_seed, "balance"))
        self.training, self.retraining, self.validation, self.test = (
            Split(samples, indices[name], normalization, varied=name in ("training", "retraining"))
            for name in ("training", "retraining", "validation", "test")
        )

    def description(self):
        """Plain values that are equal for equal data: a digest of the content, and how images are normalized: a network
        takes (values / divisor - mean) / deviation, by channel."""
        return self._description


class Split:
    """Some of the samples. varied: whether draws with a generator may see other views of them."""

    def __init__(self, samples, indices, normalization, varied):
        self._samples, self._indices, self._normalization, self._varied = samples, indices, normalization, varied
        self._labels = samples.labels[indices].astype(np.int32).reshape(-1, 1)

    def __len__(self):
        return len(self._indices)

    def draw(self, indices, generator):
        images = self._samples.read(self._indices[indices], generator if self._varied else None)
        return self._normalization(images), self._labels[indices]


class Normalization:
    """(values / divisor - mean) / deviation; mean, deviation: (C,). images: how many they were taken of."""

    def __init__(self, divisor, mean, deviation, images):
        self._values = {"divisor": divisor, "mean": mean, "deviation": deviation, "images": images}
        shape = (len(mean), 1, 1)
        self._offset = np.reshape(np.multiply(mean, divisor), shape).astype(np.float32)
        self._factor = np.reshape(1 / np.multiply(deviation, divisor), shape).astype(np.float32)

    def __call__(self, images):
        """(n, C, H, W) to float32 of mean 0 and deviation 1."""
        return (images - self._offset) * self._factor

    def to_json(self):
        return dict(self._values)


def chained(augmentation):
    """One function that applies all of them in order, or None."""
    functions = list(augmentation or ())
    for function in functions:
        if not callable(function):
            raise NnasError(f"data.augmentation: {function!r} is no function of images; see nnas.data.augmentation")

    def apply(x):
        for function in functions:
            x = function(x)
        return x

    return apply if functions else None


def origins_and_sizes(training, validation, test):
    """({split: where its own samples lie}, {split: number or share of the training samples}) of what a user gives.

    The test split comes first among the sizes, and is then the same for any number of validation samples."""
    given = {"training": training, "validation": validation, "test": test}
    origins = {name: value for name, value in given.items() if isinstance(value, (str, os.PathLike))}
    if "training" not in origins:
        raise NnasError(f"data.training={training}: it must be the place of the training samples")
    return origins, {name: checked_size(name, given[name]) for name in ("test", "validation") if name not in origins}


def checked_size(split, value):
    """A number of samples, or a share of them as a float."""
    if isinstance(value, float):
        return check_number(f"data.{split}", value, 0, 1, open_below=True)
    if value is None:
        raise NnasError(f"data.{split} is not given; give samples of its own, a number of samples, or a share")
    return check_positive_integer(f"data.{split}", value)


def _balanced(indices, labels, balance, random):
    """The indices, those of rare classes several times; which of a class come once more is drawn."""
    if not balance:
        return indices
    classes = [indices[labels[indices] == label] for label in np.unique(labels[indices])]
    largest = max(map(len, classes))
    wanted = [(own, round(len(own) * (largest / len(own)) ** balance)) for own in classes]
    return np.concatenate([np.resize(random.permutation(own), count) for own, count in wanted])


def _groups(digests):
    """(n,): equal numbers for equal content."""
    numbers = {}
    return np.array([numbers.setdefault(digest, len(numbers)) for digest in digests])


def _divided(counts, held_out, labels, groups, seed):
    """{split: its indices}. What is held out has each class in the proportion of the whole."""
    ends = np.cumsum(list(counts.values()))
    indices = {name: np.arange(end - count, end) for (name, count), end in zip(counts.items(), ends, strict=True)}
    pool = indices["training"]
    distinct, first, members = np.unique(groups[pool], return_index=True, return_inverse=True)
    order = _stratified(labels[pool[first]], generator(seed, "splits"))
    sizes = {
        name: max(1, round(size * len(distinct))) if isinstance(size, float) else size
        for name, size in held_out.items()
    }
    if sum(sizes.values()) >= len(distinct):
        shown = " and ".join(f"data.{name}={size}" for name, size in held_out.items())
        raise NnasError(f"{shown} leave no training image of {len(distinct)} different ones; take fewer")
    place = np.empty(len(distinct), int)
    place[order] = np.arange(len(distinct))
    place, start = place[members], 0
    for name, size in sizes.items():
        indices[name] = pool[(start <= place) & (place < start + size)]
        start += size
    indices["training"] = pool[place >= start]
    return indices


def _stratified(labels, random):
    """A random order of which every beginning has each class in the proportion of the whole, to one sample."""
    order = random.permutation(len(labels))
    shares = np.empty(len(labels))
    for label in np.unique(labels):
        members = order[labels[order] == label]
        shares[members] = (np.arange(len(members)) + random.uniform()) / len(members)
    return order[np.argsort(shares[order], kind="stable")]


def _repetitions(indices, groups):
    """Notices on images that are there more than once."""
    used = {name: groups[chosen] for name, chosen in indices.items()}
    everything = np.concatenate(list(used.values()))
    repeated = len(everything) - len(np.unique(everything))
    if not repeated:
        return []
    across = sum(
        int(np.isin(used[name], np.concatenate([used[other] for other in SPLITS[:number]])).sum())
        for number, name in enumerate(SPLITS)
        if number
    )
    text = f"{repeated} images are copies of others"
    text += f"; {across} of them stand in another split too, as the data give it" if across else ", all in one split"
    return [text]


def _digest_of(samples, digests):
    digest = hashlib.blake2b(digest_size=16)
    for one in digests:
        digest.update(one)
    digest.update(np.ascontiguousarray(samples.labels, np.int32))
    digest.update(repr((samples.shape, samples.divisor, samples.how)).encode())
    return digest.hexdigest()


def _kept_normalization(samples, indices, digest):
    """The normalization of a split; kept in the cache folder where measuring it takes long."""
    if samples.in_memory:
        return _measured(samples, indices)
    chosen = hashlib.blake2b(indices.tobytes(), digest_size=8).hexdigest()
    path = cache_folder() / "statistics" / f"{digest}-{chosen}.json"
    if path.exists():
        return Normalization(**read_json(path, "the mean and deviation of a data set"))
    found = _measured(samples, generator(0, "statistics").permutation(indices)[:MEASURED])
    with suppress(OSError):  # a cache folder that cannot be written costs time, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found.to_json())
    return found


def _measured(samples, indices):
    count, total, squares = 0, 0.0, 0.0
    for start in bar(range(0, len(indices), CHUNK), "mean and deviation"):
        images = samples.read(indices[start : start + CHUNK]).astype(np.float64)
        count += len(images)
        total = total + images.sum(axis=(0, 2, 3))
        squares = squares + (images**2).sum(axis=(0, 2, 3))
    if not np.isfinite(squares).all():
        raise NnasError("the training images have values that are no finite numbers; mend or remove those images")
    pixels = count * images.shape[2] * images.shape[3]
    mean = total / pixels
    deviation = np.sqrt(np.maximum(squares / pixels - mean**2, 0))
    deviation[deviation < 1e-8 * samples.divisor] = samples.divisor  # a channel that is the same everywhere
    divisor = samples.divisor
    return Normalization(divisor, (mean / divisor).tolist(), (deviation / divisor).tolist(), count)
