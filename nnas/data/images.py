"""Image files as arrays of bytes: decoded, scaled and cut to one size."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, UnidentifiedImageError

from nnas.errors import NnasError, check_number, one_line

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
ATTEMPTS = 10  # to find a crop that lies within the image, before the middle is taken


def read_image(path, channels):
    """A PIL image with 1 (grey) or 3 (RGB) channels of 8 bits; an error that names the file where it has none."""
    with _opened(path) as image:
        if image.mode.startswith("I"):
            image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
        return image.convert("L" if channels == 1 else "RGB")


def image_shape(path):
    """(C, H, W) of an image file, with 1 or 3 channels."""
    with _opened(path) as image:
        return (1 if image.mode in ("1", "L", "LA") or image.mode.startswith("I") else 3), image.height, image.width


@contextmanager
def _opened(path):
    try:
        with Image.open(path) as image:
            yield image
    except FileNotFoundError:
        raise NnasError(f"{path}: there is no such image; restore it, or take it off the data set") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise NnasError(
            f"{path}: it cannot be read as an image ({one_line(error)}); restore it, or take it off the data set (a "
            "folder of images has data.corrupted=skip for that)"
        ) from None


@dataclass(frozen=True)
class MiddleView:
    """The middle of an image, as networks are tested on it.

    size: (H, W) of the result. scale: the image is scaled until it covers `scale` times the size, and the middle is
    cut out: 256 / 224 is usual for ImageNet, and 1 keeps as much of the image as has this shape."""

    size: tuple
    scale: float = 1.0

    def __call__(self, image, random):
        return _array(_cut(image, self.size, self.box(image)))

    def box(self, image):
        height, width = self.size
        factor = min(image.width / width, image.height / height) / self.scale
        left, top = (image.width - factor * width) / 2, (image.height - factor * height) / 2
        return left, top, left + factor * width, top + factor * height


class RandomView:
    """A random part of an image with random colours, as networks are trained on it (Szegedy et al., 2015).

    The part has a share of the image's area between least_area and 1 and a ratio of width to height between
    1 / aspect_ratio and aspect_ratio (uniform in its logarithm), and is scaled to the size. It is cut from the file's
    own pixels, of which an image in memory has fewer. brightness, contrast, saturation: each is multiplied by a factor
    in [1 - value, 1 + value].
    """

    def __init__(self, least_area=0.08, aspect_ratio=4 / 3, brightness=0.0, contrast=0.0, saturation=0.0):
        self._least_area = check_number("data.random_view.least_area", least_area, 0, 1, open_below=True)
        self._aspect_ratio = check_number("data.random_view.aspect_ratio", aspect_ratio, 1)
        self._colours = [
            (enhance, check_number(f"data.random_view.{name}", value, 0, 1))
            for name, value, enhance in (
                ("brightness", brightness, ImageEnhance.Brightness),
                ("contrast", contrast, ImageEnhance.Contrast),
                ("saturation", saturation, ImageEnhance.Color),
            )
        ]

    def of_size(self, size):
        """The view as a function of (image, numpy generator)."""
        return lambda image, random: self._view(image, size, random)

    def _view(self, image, size, random):
        image = _cut(image, size, self._box(image, size, random))
        for enhance, value in self._colours:
            if value > 0:
                image = enhance(image).enhance(random.uniform(1 - value, 1 + value))
        return _array(image)

    def _box(self, image, size, random):
        for _ in range(ATTEMPTS):
            area = random.uniform(self._least_area, 1) * image.width * image.height
            ratio = self._aspect_ratio ** random.uniform(-1, 1)
            width, height = (area * ratio) ** 0.5, (area / ratio) ** 0.5
            if width <= image.width and height <= image.height:
                left, top = random.uniform(0, image.width - width), random.uniform(0, image.height - height)
                return left, top, left + width, top + height
        return MiddleView(size).box(image)


def _cut(image, size, box):
    height, width = size
    # Rounding may put a box that is the whole image a hair outside of it.
    left, top, right, bottom = max(box[0], 0), max(box[1], 0), min(box[2], image.width), min(box[3], image.height)
    return image.resize((width, height), Image.Resampling.BILINEAR, box=(left, top, right, bottom))


def _array(image):
    """(C, H, W) uint8."""
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
