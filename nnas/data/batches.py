"""Batches of a split, decided by the seed and the place of use alone.

A split has a length and draw(indices, generator) -> (images (n, C, H, W) float32, labels (n, 1) int32); the
generator is for augmentation, and is not used by splits that are fixed.
"""

from math import ceil

import numpy as np

from nnas.errors import check_positive_integer
from nnas.randomness import generator


class TrainingBatches:
    """Batches over a split in a new order each epoch.

    micro_batch samples are computed at once, micro_batches of them make one update. The last update of an epoch is
    filled up with samples from the epoch's start, so that every sample is used. section: of the configuration, for
    errors.
    """

    def __init__(self, split, micro_batch, micro_batches, seed, section="batches"):
        self._split = split
        self._micro_batch = check_positive_integer(f"{section}.micro_batch", micro_batch)
        self._micro_batches = check_positive_integer(f"{section}.micro_batches", micro_batches)
        self._seed = seed
        self.steps = ceil(len(split) / (micro_batch * micro_batches))

    def order(self, phase, epoch):
        """The sample indices of an epoch's updates: (steps, micro_batches, micro_batch)."""
        shuffled = generator(self._seed, phase, epoch).permutation(len(self._split))
        shape = (self.steps, self._micro_batches, self._micro_batch)
        return np.resize(shuffled, shape)

    def step(self, phase, epoch, step):
        """Yield the micro-batches of one update as (images, labels)."""
        for number, indices in enumerate(self.order(phase, epoch)[step]):
            yield self._split.draw(indices, generator(self._seed, phase, epoch, step, number))


def evaluation_batches(split, size):
    """Yield (images, labels, count) over a fixed split in its order; the last batch is filled up to `size` by
    repeating samples, of which only the first `count` are to be counted."""
    for start in range(0, len(split), size):
        indices = np.arange(start, min(start + size, len(split)))
        images, labels = split.draw(np.resize(indices, size), None)
        yield images, labels, len(indices)
