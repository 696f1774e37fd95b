"""Handwritten digits among fragments of other digits: small real images on which the architecture matters."""

import hashlib
from dataclasses import asdict, dataclass

import numpy as np
from sklearn.datasets import load_digits

from nnas.errors import NnasError, check_number, check_positive_integer
from nnas.randomness import generator

DIGIT = 8  # height and width of scikit-learn's digits


@dataclass(frozen=True)
class Clutter:
    """How a digit is hidden: the canvas is (canvas, canvas) pixels, with `fragments` pieces of other digits of
    (fragment, fragment) pixels and normal noise of deviation `noise`, where a digit's full ink is 1."""

    canvas: int
    fragments: int
    fragment: int
    noise: float

    def draw(self, digits, others, random):
        """digits: (n, 8, 8) to show; others: (m, 8, 8) to take fragments from. Returns (n, 1, canvas, canvas)."""
        images = np.zeros((len(digits), self.canvas, self.canvas), np.float32)
        _stamp(images, digits, random)
        for _ in range(self.fragments):
            pieces = others[random.integers(len(others), size=len(digits))]
            _stamp(images, _crop(pieces, self.fragment, random), random)
        images += random.normal(0, self.noise, images.shape).astype(np.float32)
        return images[:, None]


class ClutteredDigits:
    """The 1,797 digits that scikit-learn ships (Alpaydin and Kaynak, 1998), each placed at a random offset among
    clutter, in the tradition of cluttered MNIST (Mnih et al., 2014).

    No original digit is in two splits, and fragments come from the split's own digits. Training images are drawn
    anew every time; each validation and test digit is drawn `copies` times, once for all runs. Nothing is flipped,
    since mirrored digits are others.
    """

    classes = 10
    augmentation = None
    notices = ()

    def __init__(self, canvas=12, fragments=2, fragment=4, noise=0.1, validation=300, test=450, copies=4, split_seed=0):
        check_positive_integer("data.canvas", canvas, least=DIGIT)
        check_positive_integer("data.fragment", fragment)
        if fragment > DIGIT:
            raise NnasError(f"data.fragment={fragment}: a fragment is at most {DIGIT} pixels wide")
        check_positive_integer("data.fragments", fragments, least=0)
        check_number("data.noise", noise, 0)
        check_positive_integer("data.copies", copies)
        check_positive_integer("data.split_seed", split_seed, least=0)
        clutter = Clutter(canvas, fragments, fragment, noise)
        digits, labels = load_digits(return_X_y=True)
        digits = (digits.reshape(-1, DIGIT, DIGIT) / 16).astype(np.float32)
        rest = (
            len(digits)
            - check_positive_integer("data.validation", validation)
            - check_positive_integer("data.test", test)
        )
        if rest < 1:
            raise NnasError(
                f"data.validation={validation} and data.test={test} leave no training digit of {len(digits)}"
            )
        order = generator(split_seed, "cluttered digits").permutation(len(digits))
        parts = {
            "training": order[:rest],
            "validation": order[rest : rest + validation],
            "test": order[rest + validation :],
        }

        def drawn(*names):
            indices = np.concatenate([parts[name] for name in names])
            return DrawnSplit(digits[indices], labels[indices], clutter)

        self._clutter, self._split_seed, self._copies = clutter, split_seed, copies
        self._digest = hashlib.blake2b(digits.tobytes() + labels.astype(np.int32).tobytes(), digest_size=16).hexdigest()
        self.shape = (1, canvas, canvas)
        self.training = drawn("training")
        self.retraining = drawn("training", "validation")
        self.validation = drawn("validation").fixed(copies, generator(split_seed, "validation"))
        self.test = drawn("test").fixed(copies, generator(split_seed, "test"))

    def description(self):
        """As that of dataset.DataSet; digest: of scikit-learn's digits. Images are taken as they are drawn."""
        return {
            "kind": "cluttered_digits",
            "path": None,
            "shape": list(self.shape),
            "classes": self.classes,
            "samples": {name: len(getattr(self, name)) for name in ("training", "validation", "test")},
            "split_seed": self._split_seed,
            "digest": self._digest,
            "digest_of": "content",
            "normalization": {"divisor": 1, "mean": [0.0], "deviation": [1.0], "images": 0},
            "copies": self._copies,
            **asdict(self._clutter),
        }


class DrawnSplit:
    """Digits whose images are drawn anew every time."""

    def __init__(self, digits, labels, clutter):
        self.digits = digits
        self._labels = labels.astype(np.int32).reshape(-1, 1)
        self._clutter = clutter

    def __len__(self):
        return len(self.digits)

    def draw(self, indices, generator):
        return self._clutter.draw(self.digits[indices], self.digits, generator), self._labels[indices]

    def fixed(self, copies, generator):
        return FixedSplit(*self.draw(np.tile(np.arange(len(self)), copies), generator))


class FixedSplit:
    """Images that stay as they are."""

    def __init__(self, images, labels):
        self._images, self._labels = images, labels

    def __len__(self):
        return len(self._images)

    def draw(self, indices, generator):
        return self._images[indices], self._labels[indices]


def _crop(digits, size, random):
    """A square of `size` pixels at a random place of each digit."""
    rows, columns = (random.integers(DIGIT - size + 1, size=(2, len(digits))))[:, :, None] + np.arange(size)
    return digits[np.arange(len(digits))[:, None, None], rows[:, :, None], columns[:, None, :]]


def _stamp(images, pieces, random):
    """Lay each piece at a random place of its image, where ink covers ink of less strength."""
    room = images.shape[1] - pieces.shape[1] + 1
    rows, columns = random.integers(room, size=(2, len(images)))[:, :, None] + np.arange(pieces.shape[1])
    place = np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]
    images[place] = np.maximum(images[place], pieces)
