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
# A module is warm when its last runs are no longer faster than those before by more than this share.
WARM_UP_RUNS = 3
MOST_WARM_UP_RUNS = 20
STILL_FASTER = 0.05


@dataclass(frozen=True)
class Round:
    """What one round gave.

    milliseconds: {key: time of one run}, the median of the round's batches. runs: {key: runs in this round}.
    slowdowns: {key: how many times slower than undisturbed the device was}, already taken out of milliseconds.
    loads: {key: seconds that passed for each second of the clock}; above 1, other processes had the core meanwhile.
    failures: {key: exception} of the modules that failed in this round; they have no figure and take no
    further part.
    """

    milliseconds: dict
    runs: dict
    failures: dict
    slowdowns: dict = field(default_factory=dict)
    loads: dict = field(default_factory=dict)


def profile(
    modules,
    synchronize,
    left,
    round_seconds=ROUND_SECONDS,
    seed=0,
    clock=time.perf_counter,
    progress=None,
    slowdown=lambda: 1.0,
):
    """Measure modules; a generator of a Round after every round.

    modules: {key: run}, run() being one run. left: a function of a key that says before every round in how many more
    that module should take part, as far as can be told; it ends when all say 0.
    synchronize: returns when all that was started is finished. clock: gives seconds, those of the thread alone perhaps.
    progress: optional progress(done, total, key), after every module. slowdown: reads how much the device is slowed
    down; every batch is divided by the mean of the readings before and after it.

    Every round takes all modules in a new order, so that a slow minute of the machine falls on all of them.
    A round runs a module for about round_seconds, at least once: batches of runs of about 0.5 ms, each
    synchronized.
    """
    order = random.Random(seed)
    batches, failed, done = {}, set(), 0
    while True:
        remaining = {key: left(key) for key in modules if key not in failed}
        keys = [key for key, rounds in remaining.items() if rounds > 0]
        if not keys:
            return
        expected = done + sum(remaining[key] for key in keys)
        figures = Round({}, {}, {})
        order.shuffle(keys)
        for key in keys:
            try:
                with _NoCollection():
                    if key not in batches:
                        batches[key] = _warm_up(modules[key], round_seconds, synchronize, clock)
                    timed = _time(modules[key], *batches[key], synchronize, clock, slowdown)
            except Exception as error:  # whatever one module raises, the others are measured
                figures.failures[key] = error
                failed.add(key)
                done += remaining[key]
            else:
                seconds, figures.slowdowns[key], figures.loads[key] = timed
                figures.milliseconds[key] = 1000 * seconds
                figures.runs[key] = math.prod(batches[key])
                done += 1
            if progress is not None:
                progress(done, expected, key)
        yield figures


def _warm_up(run, round_seconds, synchronize, clock):
    """(runs in a batch, batches in a round), after runs of which the first allocate and choose algorithms."""
    seconds = []
    while len(seconds) < WARM_UP_RUNS or (
        len(seconds) < MOST_WARM_UP_RUNS and min(seconds[-2:]) < (1 - STILL_FASTER) * min(seconds[:-2])
    ):
        synchronize()
        start = clock()
        run()
        synchronize()
        seconds.append(clock() - start)
    one_run = max(min(seconds), 1e-7)
    runs = max(1, round(BATCH_SECONDS / one_run))
    return runs, max(1, round(round_seconds / (runs * one_run)))


def _time(run, runs, batches, synchronize, clock, slowdown):
    """(seconds of one run on the undisturbed device, slowdown), medians over batches, and the load; see Round."""
    if batches > 1:
        run()  # the caches are another module's; a single long run fills its own
    seconds, slowdowns, passed, counted = [], [], 0.0, 0.0
    before = slowdown()
    for _ in range(batches):
        synchronize()
        wall, start = time.perf_counter(), clock()
        for _ in range(runs):
            run()
        synchronize()
        taken = clock() - start
        passed, counted = passed + time.perf_counter() - wall, counted + taken
        after = slowdown()
        slowdowns.append((before + after) / 2)
        seconds.append(taken / runs / slowdowns[-1])
        before = after
    return median(seconds), median(slowdowns), passed / max(counted, 1e-9)


class _NoCollection:
    """No garbage collection meanwhile: it would be timed."""

    def __enter__(self):
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self._enabled:
            gc.enable()
