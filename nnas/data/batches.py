"""Batches of a split, decided by the seed and the place of use alone.

A split has a length and draw(indices, generator) -> (images (n, C, H, W) float32, labels (n, 1) int32); the
generator is for augmentation, and is not used by splits that are fixed.
"""

from concurrent.futures import ThreadPoolExecutor
from math import ceil

import numpy as np

from nnas.errors import check_positive_integer
from nnas.randomness import generator


class TrainingBatches:
    """Batches over a split in a new order each epoch.

    micro_batch samples are computed at once, micro_batches of them make one update. The last update of an epoch is
    filled up with samples from the epoch's start, so that every sample is used. While one update is computed, a thread
    prepares the next one of the epoch; what it draws is decided by the place as ever. section: of the configuration,
    for errors. communicator: of processes that share the micro-batches of each update, so that each reads its own
    samples alone; None: there is one process.
    """

    def __init__(self, split, micro_batch, micro_batches, seed, section="batches", communicator=None):
        self._split = split
        self._micro_batch = check_positive_integer(f"{section}.micro_batch", micro_batch)
        self._micro_batches = check_positive_integer(f"{section}.micro_batches", micro_batches)
        self._mine = range(micro_batches)
        if communicator is not None:
            communicator.check_batch(section, micro_batch, micro_batches)
            self._mine = communicator.share(micro_batches)
        self._seed = seed
        self.steps = ceil(len(split) / (micro_batch * micro_batches))
        self._thread = ThreadPoolExecutor(1, "batches")
        self._order = None, None
        self._next = None, None

    def order(self, phase, epoch):
        """The sample indices of an epoch's updates: (steps, micro_batches, micro_batch)."""
        epoch_kept, order = self._order
        if epoch_kept != (phase, epoch):
            shuffled = generator(self._seed, phase, epoch).permutation(len(self._split))
            order = np.resize(shuffled, (self.steps, self._micro_batches, self._micro_batch))
            self._order = (phase, epoch), order
        return order

    def step(self, phase, epoch, step):
        """The micro-batches of one update: a list of (images, labels), or None for those of other processes."""
        prepared, following = self._next
        self._next = None, None
        if prepared != (phase, epoch, step):
            if following is not None:
                following.cancel()
            following = self._thread.submit(self._drawn, phase, epoch, step)
        micro_batches = following.result()
        if step + 1 < self.steps:
            place = phase, epoch, step + 1
            self._next = place, self._thread.submit(self._drawn, *place)
        return micro_batches

    def _drawn(self, phase, epoch, step):
        return [
            self._split.draw(indices, generator(self._seed, phase, epoch, step, number))
            if number in self._mine
            else None
            for number, indices in enumerate(self.order(phase, epoch)[step])
        ]


def evaluation_batches(split, size, share=range):
    """Yield (images, labels, count) over a fixed split in its order; the last batch is filled up to `size` by
    repeating samples, of which only the first `count` are to be counted. The next batch is drawn meanwhile.

    share: a function of the number of batches to those that are asked for; all by default."""
    starts = [number * size for number in share(ceil(len(split) / size))]

    def drawn(start):
        indices = np.arange(start, min(start + size, len(split)))
        return *split.draw(np.resize(indices, size), None), len(indices)

    with ThreadPoolExecutor(1, "evaluation") as thread:
        following = thread.submit(drawn, starts[0]) if starts else None
        for start in [*starts[1:], None]:
            if following is None:
                return
            batch = following.result()
            following = None if start is None else thread.submit(drawn, start)
            yield batch
