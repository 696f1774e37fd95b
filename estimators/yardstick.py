"""A fixed piece of work, timed beside every measurement, which tells how much the device is slowed down just then."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nnabla as nn
import nnabla.functions as F
import numpy as np

RUNS = 2  # in one reading
REFERENCE_SECONDS = 1.0
REFERENCE_QUANTILE = 0.05
MOST_SLOWDOWN = 4.0  # that is believed of a machine


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
    """The Yardstick of a device.

    reference: seconds; without it, the shortest time known of this device: nearly the shortest within a second now, or
    that of an earlier day, since a machine may be slow for minutes.
    """

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
            reference = _shortest(device, float(np.quantile(readings, REFERENCE_QUANTILE)))
    return Yardstick(run, reference, device.clock)


def _read(run, clock):
    start = clock()
    for _ in range(RUNS):
        run()
    return (clock() - start) / RUNS


def _shortest(device, seconds):
    """The shorter of these and what was seen on earlier days, which is kept in the user's cache folder."""
    name = hashlib.sha256(json.dumps(device.fingerprint, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder() / f"yardstick-{name}"
    try:
        known = float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        known = 0.0
    # Damaged, or of another machine of this name, where it is far from what is seen now.
    if seconds / MOST_SLOWDOWN < known <= seconds:
        return known
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(repr(seconds), encoding="ascii")
        partial.replace(path)
    except OSError:
        pass  # then only this table has it
    return seconds


def cache_folder():
    """Where what is known of this machine's devices is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nnas" / "devices"


def _inverted_residual():
    """What mobile networks consist of: an expanding, a depthwise and a projecting convolution; about 0.1 ms."""
    random = np.random.default_rng(0)

    def filled(*shape):
        return nn.Variable.from_numpy_array(random.normal(size=shape).astype(np.float32))

    y = F.relu6(F.convolution(filled(1, 16, 8, 8), filled(48, 16, 1, 1), filled(48)))
    y = F.relu6(F.depthwise_convolution(y, filled(48, 3, 3), filled(48), pad=(1, 1)))
    return F.convolution(y, filled(16, 48, 1, 1), filled(16))
