"""A fixed piece of work, timed beside every measurement, which tells how much the device is slowed down just then."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import nnabla as nn
import nnabla.functions as F
import numpy as np

RUNS = 2  # in one reading
REFERENCE_SECONDS = 1.0
REFERENCE_QUANTILE = 0.05


@dataclass(frozen=True)
class Yardstick:
    """run: does the work once. reference: seconds of the clock that it takes on the undisturbed device.

    On shared machines the speed changes by up to a factor of two within tenths of a second, and all that is computed
    changes alike. A time divided by the slowdown that the yardstick shows just before and after it is the time of
    the undisturbed device; the reference of a table makes measurements of different days agree.
    """

    run: Callable
    reference: float
    clock: Callable

    def slowdown(self):
        """How many times longer than its reference the work takes now."""
        return _read(self.run, self.clock) / self.reference


def yardstick(device, reference=None):
    """The Yardstick of a device; without a reference, in seconds, that is measured now: nearly the shortest time that
    is seen within a second."""

    def run():
        work.forward(clear_no_need_grad=True)
        device.synchronize()

    with nn.context_scope(device.context):
        work = _inverted_residual()
        for _ in range(20):
            run()
        if reference is None:
            readings, end = [], time.perf_counter() + REFERENCE_SECONDS
            while time.perf_counter() < end:
                readings.append(_read(run, device.clock))
            reference = float(np.quantile(readings, REFERENCE_QUANTILE))
    return Yardstick(run, reference, device.clock)


def _read(run, clock):
    start = clock()
    for _ in range(RUNS):
        run()
    return (clock() - start) / RUNS


def _inverted_residual():
    """What mobile networks consist of: an expanding, a depthwise and a projecting convolution; about 0.1 ms."""
    random = np.random.default_rng(0)

    def filled(*shape):
        return nn.Variable.from_numpy_array(random.normal(size=shape).astype(np.float32))

    y = F.relu6(F.convolution(filled(1, 16, 8, 8), filled(48, 16, 1, 1), filled(48)))
    y = F.relu6(F.depthwise_convolution(y, filled(48, 3, 3), filled(48), pad=(1, 1)))
    return F.convolution(y, filled(16, 48, 1, 1), filled(16))
