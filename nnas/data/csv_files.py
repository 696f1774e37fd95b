"""Data sets in nnabla's CSV convention, as its Neural Network Console writes them."""

import csv
from pathlib import Path

import numpy as np

from nnas.data.bars import bar
from nnas.data.dataset import DataSet, origins_and_sizes
from nnas.data.images import EXTENSIONS, MiddleView, image_shape
from nnas.data.samples import ArraySamples, checked_labels, file_samples
from nnas.errors import NnasError, check_positive_integer, nearest, one_line


class CsvFiles(DataSet):
    """training: a CSV file. validation, test: CSV files too, or a number of the training samples, or a share of them.

    Columns are headed `name`, `name:label` or, for vectors, `name__0`, `name__1`, ...; those that begin with # are
    comments. A value is a number or the path, from the CSV file's folder, of an image, an .npy file or a CSV file of
    a matrix. x, y: the names of images and labels. shape: [C, H, W], to which images are scaled and of which other
    values are; None: that of the first sample. classes: None for one more than the largest label.
    """

    def __init__(
        self, training, validation, test, x="x", y="y", shape=None, classes=None, split_seed=0, augmentation=()
    ):
        if classes is not None:
            check_positive_integer("data.classes", classes, least=2)
        files, held_out = origins_and_sizes(training, validation, test)
        tables = {name: _Table(Path(path), x, y) for name, path in files.items()}
        everything = [row for table in tables.values() for row in table.rows]
        labels, classes = checked_labels([row.label for row in everything], classes, training)
        samples = _samples(everything, labels, shape and tuple(shape))
        counts = {name: len(table.rows) for name, table in tables.items()}
        super().__init__("csv", training, samples, classes, counts, held_out, split_seed, augmentation)


class _Row:
    """values: numbers, or one path. place: for errors."""

    def __init__(self, values, label, place):
        self.values, self.label, self.place = values, label, place

    @property
    def path(self):
        return self.values[0] if isinstance(self.values[0], Path) else None

    @property
    def is_image(self):
        return self.path is not None and self.path.suffix.lower() in EXTENSIONS


class _Table:
    def __init__(self, path, x, y):
        if not path.is_file():
            raise NnasError(
                f"{path}: there is no such CSV file; data.training, data.validation and data.test take some"
            )
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                header, *lines = list(csv.reader(file)) or [[]]
        except (csv.Error, UnicodeDecodeError) as error:
            raise NnasError(f"{path}: it cannot be read as CSV ({one_line(error)})") from None
        names = [column.split(":")[0].split("__")[0] for column in header]
        columns = [[index for index, name in enumerate(names) if name == wanted] for wanted in (x, y)]
        for wanted, found in zip((x, y), columns, strict=True):
            if not found:
                raise NnasError(
                    f"{path}: it has no column {wanted!r}{nearest(wanted, names)} (there are {', '.join(names)}); give "
                    "the names of images and labels by data.x and data.y"
                )
        self.rows = [
            self._row(path, columns, len(header), line, number) for number, line in enumerate(lines, start=2) if line
        ]

    def _row(self, path, columns, width, line, number):
        place = f"{path}, line {number}"
        if len(line) != width:
            raise NnasError(f"{place}: it has {len(line)} values in {width} columns")
        values = [_value(line[index], path.parent) for index in columns[0]]
        if len(values) > 1 and any(isinstance(value, Path) for value in values):
            raise NnasError(f"{place}: {next(v for v in values if isinstance(v, Path))} is no number")
        label = [_value(line[index], path.parent) for index in columns[1]]
        if len(label) != 1 or isinstance(label[0], Path):
            raise NnasError(f"{place}: the label must be one number, not {', '.join(map(str, label))}")
        return _Row(values, label[0], place)


def _value(text, folder):
    try:
        return float(text)
    except ValueError:
        return folder / text.replace("\\", "/")


def _samples(rows, labels, shape):
    images = [row.is_image for row in rows]
    if all(images):
        shape = shape or image_shape(rows[0].path)
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise NnasError(f"data.shape={list(shape)}: images are [1 or 3, height, width]")
        return file_samples([row.path for row in rows], labels, shape, MiddleView(tuple(shape[1:])))
    if any(images):
        raise NnasError(f"{rows[images.index(False)].place}: it is no image, but others are; use one kind of file")
    arrays = [_array(row, shape) for row in bar(rows, "reading files")]
    for row, array in zip(rows, arrays, strict=True):
        if array.shape != arrays[0].shape:
            raise NnasError(
                f"{row.place}: it has the shape {array.shape}, the first one {arrays[0].shape}; all must be alike"
            )
    return ArraySamples(np.stack(arrays), labels)


def _array(row, shape):
    """(C, H, W) float32 of a row whose x is no image."""
    try:
        if row.path is None:
            array = np.array(row.values)
        elif row.path.suffix.lower() == ".npy":
            array = np.load(row.path)  # refuses arrays of objects, which would be unpickled
        elif row.path.suffix.lower() == ".csv":
            array = np.loadtxt(row.path, delimiter=",", ndmin=2)
        else:
            raise NnasError(f"{row.place}: {row.path} is neither a number nor an image, .npy or .csv file")
        array = array.astype(np.float32)
        array = array.reshape(shape) if shape else array[None] if array.ndim == 2 else array
    except (OSError, ValueError, TypeError) as error:
        raise NnasError(f"{row.place}: {row.path or 'the vector'} cannot be read: {one_line(error)}") from None
    if array.ndim != 3 or not np.isfinite(array).all():
        problem = f"has the shape {array.shape}" if array.ndim != 3 else "has values that are no numbers"
        raise NnasError(f"{row.place}: x {problem}; images are (C, H, W), or (H, W), or of data.shape=[C, H, W]")
    return array
