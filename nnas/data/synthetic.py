"""Images that are made up: to try a command without data, or to time it."""

import numpy as np

from nnas.data.dataset import DataSet
from nnas.data.samples import ArraySamples
from nnas.errors import NnasError, check_number, check_positive_integer
from nnas.randomness import generator


class Synthetic(DataSet):
    """A random pattern for each class, with normal noise of deviation `noise` where the pattern has 1.

    shape: [C, H, W]. training, validation, test: numbers of images. Accuracies on it say nothing about real images.
    """

    def __init__(self, shape, classes, training, validation, test, noise=1.0, split_seed=0, augmentation=()):
        if not isinstance(shape, (list, tuple)) or len(shape) != 3:
            raise NnasError(f"data.shape={shape}: it must be [channels, height, width]")
        shape = tuple(check_positive_integer("data.shape", size) for size in shape)
        check_positive_integer("data.classes", classes, least=2)
        check_number("data.noise", noise, 0)
        sizes = {"training": training, "validation": validation, "test": test}
        for name, size in sizes.items():
            check_positive_integer(f"data.{name}", size)
        random = generator(check_positive_integer("data.split_seed", split_seed, least=0), "synthetic")
        labels = np.concatenate([random.permutation(np.arange(size) % classes) for size in sizes.values()])
        # Only the patterns of classes that are there: a thousand large ones would take long.
        present, number = np.unique(labels, return_inverse=True)
        patterns = random.standard_normal((len(present), *shape), np.float32)
        images = patterns[number] + np.float32(noise) * random.standard_normal((len(labels), *shape), np.float32)
        samples = ArraySamples(images, labels)
        super().__init__("synthetic", None, samples, classes, sizes, {}, split_seed, augmentation)
        self.notices.append("the data are synthetic: accuracies say nothing about real images")
