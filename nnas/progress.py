"""Loops over epochs: what they yield, and the frame that search and training share."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Progress:
    """Where a loop stands; record: at an epoch's end what metrics.jsonl keeps of it, else None."""

    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    record: dict = None


class EpochLoop(ABC):
    """Iterating yields Progress after every step, from the epoch where the loop stands.

    epochs: in all. batches: data.batches.TrainingBatches, whose steps make an epoch.
    """

    def __init__(self, epochs, batches):
        self._epochs = epochs
        self._batches = batches
        self._epoch = 0

    def __iter__(self):
        steps = self._batches.steps
        for epoch in range(self._epoch, self._epochs):
            phase, start, figures = self._phase(epoch), time.monotonic(), []
            for step in range(steps):
                figures += self._step(phase, epoch, step)
                record = None
                if step + 1 == steps:
                    self._epoch = epoch + 1
                    seconds = round(time.monotonic() - start, 3)
                    record = {
                        "phase": phase,
                        "epoch": epoch + 1,
                        "seconds": seconds,
                        **_means(figures),
                        **self._standing(),
                    }
                yield Progress(phase, epoch + 1, self._epochs, step + 1, steps, record)

    @abstractmethod
    def _phase(self, epoch):
        """The name of the phase that an epoch belongs to."""

    @abstractmethod
    def _step(self, phase, epoch, step):
        """Do one step; returns a list of {name: figure}, of which the epoch's record keeps the means."""

    def _standing(self):
        """Further figures for the record, as they are at the epoch's end."""
        return {}

    def _done(self, epoch, step):
        """(steps before this one, steps in all), for schedules."""
        return epoch * self._batches.steps + step, self._epochs * self._batches.steps


def _means(figures):
    """The means of the figures of each name, over the items that have it."""
    names = dict.fromkeys(name for one in figures for name in one)
    return {name: float(np.mean([one[name] for one in figures if name in one])) for name in names}
