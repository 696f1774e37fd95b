"""Loops over epochs: what they yield, and the frame that search and training share."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Progress:
    """Where a loop stands. epoch, step: those just done, counted from 1, or in `EpochLoop.upcoming` those to be done
    next. record: at an epoch's end what metrics.jsonl keeps of it, else None."""

    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    record: dict = None


class EpochLoop(ABC):
    """Iterating yields Progress after every step, from the step where the loop stands.

    epochs: in all. batches: data.batches.TrainingBatches, whose steps make an epoch. communicator: of the processes
    that do it together. samples: what else the run keeps of an epoch that has just ended, or None.
    """

    samples = None

    def __init__(self, epochs, batches, communicator):
        self._communicator = communicator
        self._epochs = epochs
        self._batches = batches
        self._epoch = self._steps_done = 0
        self._figures, self._seconds = [], 0.0

    def __iter__(self):
        start = time.monotonic() - self._seconds
        while (place := self.upcoming) is not None:
            self._figures += self._step(place.phase, self._epoch, self._steps_done)
            self._steps_done += 1
            record, self._seconds = None, time.monotonic() - start
            if place.step == place.steps:
                record = self._end_epoch(place, start)
                start = time.monotonic()
            yield replace(place, record=record)

    @property
    def upcoming(self):
        """The Progress of the next step, or None at the end."""
        if self._epoch >= self._epochs:
            return None
        steps = self._batches.steps
        return Progress(self._phase(self._epoch), self._epoch + 1, self._epochs, self._steps_done + 1, steps)

    def state(self):
        """All that `restore` needs to go on as if nothing had happened, at the end of any step."""
        place = {"epoch": self._epoch, "step": self._steps_done, "figures": self._figures, "seconds": self._seconds}
        return place | self._state()

    def restore(self, state):
        self._epoch, self._steps_done = state["epoch"], state["step"]
        self._figures, self._seconds = list(state["figures"]), state["seconds"]
        self._restore(state)

    @abstractmethod
    def _phase(self, epoch):
        """The name of the phase that an epoch belongs to."""

    @abstractmethod
    def _step(self, phase, epoch, step):
        """Do one step; returns a list of {name: figure}, of which the epoch's record keeps the means."""

    @abstractmethod
    def _state(self):
        """What belongs to the state besides the place."""

    @abstractmethod
    def _restore(self, state):
        """Take up what `_state` returned."""

    @abstractmethod
    def digest(self):
        """A word that is the same on all processes as long as they do the same."""

    def _standing(self):
        """Further figures for the record, as they are at the epoch's end."""
        return {}

    def _done(self, epoch, step):
        """(steps before this one, steps in all), for schedules."""
        return epoch * self._batches.steps + step, self._epochs * self._batches.steps

    def _end_epoch(self, place, start):
        figures = _means(self._figures)
        self._epoch, self._steps_done, self._figures, self._seconds = self._epoch + 1, 0, [], 0.0
        self._communicator.check_alike(f"{place.phase} epoch {place.epoch}: what is learnt", self.digest)
        figures |= self._standing()
        seconds = round(time.monotonic() - start, 3)
        return {"phase": place.phase, "epoch": place.epoch, "seconds": seconds, **figures}


def _means(figures):
    """The means of the figures of each name, over the items that have it."""
    names = dict.fromkeys(name for one in figures for name in one)
    return {name: float(np.mean([one[name] for one in figures if name in one])) for name in names}
