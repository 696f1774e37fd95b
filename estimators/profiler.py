"""Measuring what is given as functions without arguments: interleaved, warmed up, synchronized."""

import gc
import math
import random
import time
from dataclasses import dataclass, field
from statistics import median

# How long one module is run in one round. Other work on the machine comes and goes within tenths of a second, so
# many short rounds agree better between two profilings than a few long ones that take the same time.
ROUND_SECONDS = 0.003
BATCH_SECONDS = 0.0005  # how long it is run between two readings of the clock and of the yardstick
WARM_UP_RUNS = 3


@dataclass(frozen=True)
class Round:
    """What one round gave.

    milliseconds: {key: time of one run}, the median of the round's batches. runs: {key: runs in this round}.
    slowdowns: {key: how many times slower than undisturbed the device was}, already taken out of milliseconds.
    failures: {key: exception} of the modules that failed in this round; they have no figure and take no
    further part.
    """

    milliseconds: dict
    runs: dict
    failures: dict
    slowdowns: dict = field(default_factory=dict)


def profile(
    modules,
    synchronize,
    rounds,
    round_seconds=ROUND_SECONDS,
    seed=0,
    clock=time.perf_counter,
    progress=None,
    slowdown=lambda: 1.0,
):
    """Measure modules; a generator of a Round after every round.

    modules: {key: run}, run() being one run. rounds: {key: how many rounds that module takes part in}.
    synchronize: returns when all that was started is finished. clock: gives seconds.
    progress: optional progress(done, total, key), after every module. slowdown: reads how much the device is slowed
    down; every batch is divided by the mean of the readings before and after it.

    Every round takes all modules in a new order, so that a slow minute of the machine falls on all of them.
    A round runs a module for about round_seconds, at least once: batches of runs of about 0.5 ms, each
    synchronized.
    """
    order = random.Random(seed)
    batches = {}
    waiting = {key: rounds[key] for key in modules if rounds[key] > 0}
    done, total = 0, sum(waiting.values())
    while waiting:
        milliseconds, runs, failures, slowdowns = {}, {}, {}, {}
        keys = list(waiting)
        order.shuffle(keys)
        for key in keys:
            try:
                with _NoCollection():
                    if key not in batches:
                        batches[key] = _warm_up(modules[key], round_seconds, synchronize, clock)
                    seconds, slowdowns[key] = _time(modules[key], *batches[key], synchronize, clock, slowdown)
            except Exception as error:  # whatever one module raises, the others are measured
                failures[key] = error
                done += waiting.pop(key)
            else:
                milliseconds[key] = 1000 * seconds
                runs[key] = math.prod(batches[key])
                waiting[key] -= 1
                done += 1
            if progress is not None:
                progress(done, total, key)
        waiting = {key: left for key, left in waiting.items() if left > 0}
        yield Round(milliseconds, runs, failures, slowdowns)


def _warm_up(run, round_seconds, synchronize, clock):
    """(runs in a batch, batches in a round), after runs of which the first allocate and choose algorithms."""
    seconds = []
    for _ in range(WARM_UP_RUNS):
        synchronize()
        start = clock()
        run()
        synchronize()
        seconds.append(clock() - start)
    one_run = max(min(seconds), 1e-7)
    runs = max(1, round(BATCH_SECONDS / one_run))
    return runs, max(1, round(round_seconds / (runs * one_run)))


def _time(run, runs, batches, synchronize, clock, slowdown):
    """(seconds of one run on the undisturbed device, slowdown), medians over batches."""
    if batches > 1:
        run()  # the caches are another module's; a single long run fills its own
    seconds, slowdowns = [], []
    before = slowdown()
    for _ in range(batches):
        synchronize()
        start = clock()
        for _ in range(runs):
            run()
        synchronize()
        taken, after = clock() - start, slowdown()
        slowdowns.append((before + after) / 2)
        seconds.append(taken / runs / slowdowns[-1])
        before = after
    return median(seconds), median(slowdowns)


class _NoCollection:
    """No garbage collection meanwhile: it would be timed."""

    def __enter__(self):
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self._enabled:
            gc.enable()
