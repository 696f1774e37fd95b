"""Random changes of training images, inside the graph: functions of a variable (N, C, H, W), drawn for each sample.

They use nnabla's generator of random functions, which is seeded for every micro-batch (randomness.seed_functions).
Images are normalized before them, so that a fill of 0 is the mean of the training split.
"""

from math import log

import nnabla as nn
import nnabla.functions as F
import numpy as np

from nnas.errors import check_number, check_positive_integer


class PadAndCrop:
    """Pads images by `pad` pixels of 0 on all sides and cuts their size out at a random place (He et al., 2016)."""

    def __init__(self, pad=4):
        self._pad = check_positive_integer("data.augmentation.pad", pad)

    def __call__(self, x):
        return F.random_crop(F.pad(x, (self._pad,) * 4), shape=x.shape[1:])


class Flip:
    """Mirrors half of the images: left becomes right."""

    def __call__(self, x):
        return F.random_flip(x, axes=(3,))


class Cutout:
    """Sets a square of `size` pixels around a random pixel of each image to 0; it may reach beyond the image
    (DeVries and Taylor, 2017). F.random_erase draws rectangles inside the image, of sizes that vary by a pixel."""

    def __init__(self, size=16):
        self._size = check_positive_integer("data.augmentation.size", size)

    def __call__(self, x):
        rows, columns = (self._covered(x.shape[0], x.shape[axis], axis) for axis in (2, 3))
        return x * (1 - rows * columns)

    def _covered(self, samples, length, axis):
        """1 where a pixel's place along an axis is within the square, else 0: (N, 1, H, 1) or (N, 1, 1, W)."""
        shape = [1, 1, 1, 1]
        shape[axis] = length
        places = nn.Variable.from_numpy_array(np.arange(length, dtype=np.float32).reshape(shape))
        first = F.floor(F.rand(0, length, shape=(samples, 1, 1, 1))) - self._size // 2
        distance = places - first
        return F.greater_equal_scalar(distance, 0) * F.less_scalar(distance, self._size)


class RandomResizedCrop:
    """Scales a random part of each image up to its size, linearly (Szegedy et al., 2015).

    The part has a share of the image's area, uniform between least_area and 1, and a ratio of width to height between
    1 / aspect_ratio and aspect_ratio, uniform in its logarithm; a side that would be longer than the image's is cut to
    it. F.image_augmentation draws the scale of a side instead, with small images as likely as large ones.
    """

    def __init__(self, least_area=0.08, aspect_ratio=4 / 3):
        self._least_area = check_number("data.augmentation.least_area", least_area, 0, 1, open_below=True)
        self._log_ratio = log(check_number("data.augmentation.aspect_ratio", aspect_ratio, 1))

    def __call__(self, x):
        column = (x.shape[0], 1)
        area = 1 - (1 - self._least_area) * F.rand(shape=column)
        ratio = F.exp(self._log_ratio * F.rand(-1, 1, shape=column))
        # Sides as shares of the image's, of any shape: with H != W the ratio is that to the image's own.
        width, height = F.minimum_scalar((area * ratio) ** 0.5, 1), F.minimum_scalar((area / ratio) ** 0.5, 1)
        zero = F.constant(0, column)
        left, top = (F.rand(-1, 1, shape=column) * (1 - side) for side in (width, height))
        rows = (width, zero, left), (zero, height, top)
        theta = F.reshape(F.concatenate(*rows[0], *rows[1], axis=1), (x.shape[0], 2, 3))
        # "repeat" of the edge, since half a pixel around it lies outside of the outermost centres.
        grid = F.affine_grid(theta, x.shape[2:])
        return F.warp_by_grid(x, grid, padding_mode="repeat")
