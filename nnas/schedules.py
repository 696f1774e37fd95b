"""Learning rates over the steps of a training: functions of (base, step, steps) to the rate of a step.

base: the rate that the configuration gives. step: counted from 0. steps: in all."""

from math import cos, pi

from nnas.errors import NnasError, check_number


def cosine(base, step, steps, least=0.0, warmup=0.0):
    """From `base` to `least` along half a cosine (Loshchilov and Hutter, 2017), after a share `warmup` of the steps in
    which it grows linearly from 0 (Goyal et al., 2017)."""
    warm = round(check_number("schedule.warmup", warmup, 0, 1) * steps)
    if step < warm:
        return base * (step + 1) / warm
    return least + (base - least) * 0.5 * (1 + cos(pi * (step - warm) / (steps - warm)))


def constant(base, step, steps):
    return base


def multistep(base, step, steps, at, factor=0.1):
    """Multiplied by `factor` at each of the shares `at` of all steps, as in at=[0.5, 0.75]."""
    if not isinstance(at, (list, tuple)):
        raise NnasError(f"schedule.at={at!r}: it must be a list of shares of the training, as [0.5, 0.75]")
    return base * factor ** sum(step >= check_number("schedule.at", share, 0, 1) * steps for share in at)
