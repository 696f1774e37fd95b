"""Images and labels in HDF5 files."""

from pathlib import Path

import h5py
import numpy as np

from nnas.data.dataset import DataSet, origins_and_sizes
from nnas.data.samples import IN_MEMORY_BYTES, ArraySamples, Samples, checked_labels, digest
from nnas.errors import NnasError, check_positive_integer, nearest, one_line

ROWS = 1024


class Hdf5(DataSet):
    """training: a file with the data sets x, (n, C, H, W) or (n, H, W), bytes or numbers, and y, (n,) or (n, 1).
    validation, test: files too, or a number of the training samples, or a share of them. x, y: names of the data sets.
    classes: None for one more than the largest label. Bytes are divided by 255. What takes more than 1 GiB is read
    when it is drawn.
    """

    def __init__(self, training, validation, test, x="x", y="y", classes=None, split_seed=0, augmentation=()):
        if classes is not None:
            check_positive_integer("data.classes", classes, least=2)
        files, held_out = origins_and_sizes(training, validation, test)
        opened = {name: _opened(Path(path), x, y) for name, path in files.items()}
        images = [pair[0] for pair in opened.values()]
        for path, one in zip(files.values(), images, strict=True):
            if (one.shape[1:], one.dtype) != (images[0].shape[1:], images[0].dtype):
                raise NnasError(
                    f"{path}: images of {one.shape[1:]} {one.dtype}, where {training} has {images[0].shape[1:]} "
                    f"{images[0].dtype}; all files must be alike"
                )
        labels = np.concatenate([pair[1] for pair in opened.values()])
        labels, classes = checked_labels(labels, classes, training)
        counts = {name: len(one) for (name, _), one in zip(opened.items(), images, strict=True)}
        samples = Hdf5Samples(images, labels)
        if len(labels) * int(np.prod(samples.shape)) * samples.dtype.itemsize <= IN_MEMORY_BYTES:
            samples = ArraySamples(samples.read(np.arange(len(labels))), labels)
        super().__init__("hdf5", training, samples, classes, counts, held_out, split_seed, augmentation)


class Hdf5Samples(Samples):
    """images: HDF5 data sets of one shape, read when they are drawn."""

    def __init__(self, images, labels):
        self._images, self.labels = images, labels
        self.shape = images[0].shape[1:] if images[0].ndim == 4 else (1, *images[0].shape[1:])
        self.dtype = np.dtype(np.uint8 if images[0].dtype == np.uint8 else np.float32)
        self._starts = np.cumsum([0, *map(len, images)])

    @property
    def digests(self):
        for start in range(0, len(self.labels), ROWS):
            for image in self.read(np.arange(start, min(start + ROWS, len(self.labels)))):
                yield digest(image)

    def read(self, indices, generator=None):
        indices = np.asarray(indices)
        images = np.empty((len(indices), *self.shape), self.dtype)
        for one, start in zip(self._images, self._starts[:-1], strict=True):
            inside = np.flatnonzero((start <= indices) & (indices < start + len(one)))
            if len(inside):
                # HDF5 takes each row once, in ascending order.
                rows, back = np.unique(indices[inside] - start, return_inverse=True)
                images[inside] = one[rows][back].reshape(len(inside), *self.shape)
        return images


def _opened(path, x, y):
    """(data set of images, array of labels)."""
    if not path.is_file():
        raise NnasError(f"{path}: there is no such HDF5 file; data.training, data.validation and data.test take some")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise NnasError(f"{path}: it cannot be read as HDF5 ({one_line(error)})") from None
    for name in (x, y):
        if not isinstance(file.get(name), h5py.Dataset):
            raise NnasError(
                f"{path}: it has no data set {name!r}{nearest(name, file)} (there are {', '.join(file)}); give the "
                "names by data.x and data.y"
            )
    images, labels = file[x], file[y][()]
    if images.ndim not in (3, 4) or images.dtype.kind not in "iufb":
        raise NnasError(
            f"{path}: {x} has {images.shape} {images.dtype}; it must be numbers of (n, C, H, W) or (n, H, W)"
        )
    if labels.size != len(images) or labels.dtype.kind not in "iufb":
        raise NnasError(
            f"{path}: {x} has {len(images)} images, {y} {labels.size} labels ({labels.dtype}); each image needs one"
        )
    return images, labels.reshape(-1)
