"""Where images come from: held in memory, or read from their files when they are drawn.

Samples have `shape` (C, H, W), `labels` (n,), and read(indices, generator) -> images (n, C, H, W), uint8 or float32;
with a generator, images may be another random view each time. divisor: what full ink is, 255 for bytes and 1 for
numbers that are used as they are. in_memory: whether reading them all is quick. digests: one for each sample, of what
digest_of says. how: the way from file to image, in words.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nnas.data.bars import bar
from nnas.data.images import read_image
from nnas.errors import NnasError
from nnas.files import hashed

IN_MEMORY_BYTES = 2**30  # images that take more are read when they are drawn
HASHED_BYTES = 2**30  # files that take more are known by their names and sizes
WORKERS = 16  # at most, which decode images


class Samples:
    """Images with labels: `labels` (n,), `shape` (C, H, W), `dtype` uint8 or float32, `digests`, one an image, and
    read(indices, generator) -> (n, C, H, W). how: words on the way in which images are read."""

    in_memory = False
    digest_of = "content"
    how = ""

    @property
    def divisor(self):
        """The largest value that an image may have."""
        return 255 if self.dtype == np.uint8 else 1


class ArraySamples(Samples):
    """images: (n, C, H, W), uint8 or float32. labels: (n,)."""

    in_memory = True

    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.shape, self.dtype = images.shape[1:], images.dtype
        self.digests = [digest(np.ascontiguousarray(image)) for image in images]

    def read(self, indices, generator=None):
        return self.images[indices]


class FileSamples(Samples):
    """Image files, decoded when they are drawn, on several threads.

    paths: of the files. labels: (n,). shape: (C, H, W) of what is read. view: (image, generator) -> (C, H, W) uint8;
    random_view: the same for draws with a generator, or None.
    """

    dtype = np.uint8

    def __init__(self, paths, labels, shape, view, random_view=None):
        self._paths, self.labels, self.shape = paths, labels, shape
        self._view, self._random_view, self.how = view, random_view, repr(view)
        self._threads = ThreadPoolExecutor(min(WORKERS, len(os.sched_getaffinity(0))), "images")
        sizes = [os.stat(path).st_size for path in bar(paths, "looking at files")]
        if sum(sizes) <= HASHED_BYTES:
            self.digests = [hashed(path, _hash()).digest() for path in bar(paths, "reading files")]
        else:
            self.digest_of = "names and sizes"
            parent = os.path.commonpath([os.path.dirname(path) for path in paths])
            self.digests = [
                digest(f"{os.path.relpath(path, parent)} {size}".encode())
                for path, size in zip(paths, sizes, strict=True)
            ]

    def read(self, indices, generator=None):
        view, seeds = self._view, [None] * len(indices)
        if generator is not None and self._random_view is not None:
            # A seed for each image, so that it does not matter which thread is first.
            view, seeds = self._random_view, generator.integers(2**63, size=len(indices))
        return np.stack(list(self._threads.map(lambda index, seed: self._read(index, seed, view), indices, seeds)))

    def _read(self, index, seed, view):
        image = read_image(self._paths[index], self.shape[0])
        return view(image, None if seed is None else np.random.default_rng(seed))

    def loaded(self):
        """The same samples in memory, in the view for tests."""
        images = np.empty((len(self._paths), *self.shape), np.uint8)
        with bar(text="decoding images", total=len(images)) as progress:
            for start in range(0, len(images), 256):
                indices = np.arange(start, min(start + 256, len(images)))
                images[indices] = self.read(indices)
                progress.update(len(indices))
        return ArraySamples(images, self.labels)


def file_samples(paths, labels, shape, view, random_view=None):
    """Samples of image files: in memory where they fit and are not seen in random views."""
    samples = FileSamples(paths, labels, shape, view, random_view)
    fits = len(paths) * int(np.prod(shape)) <= IN_MEMORY_BYTES
    return samples.loaded() if fits and random_view is None else samples


def checked_labels(labels, classes, source):
    """(n,) int32 from numbers, and the number of classes; classes: as given, or None for one more than the largest."""
    labels = np.asarray(labels)
    whole = labels.astype(np.int32)
    if labels.ndim != 1 or not len(labels) or (whole != labels).any() or whole.min() < 0:
        raise NnasError(f"{source}: labels must be whole numbers of at least 0, one for each of at least one image")
    classes = classes or int(whole.max()) + 1
    if whole.max() >= classes:
        raise NnasError(f"{source}: it has the label {whole.max()}, but data.classes={classes}; labels begin at 0")
    return whole, classes


def digest(content):
    return _hash(content).digest()


def _hash(content=b""):
    return hashlib.blake2b(content, digest_size=16)
