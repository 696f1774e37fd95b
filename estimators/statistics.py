"""How surely a median is known."""

from functools import cache
from math import comb, inf
from statistics import median, quantiles

CONFIDENCE = 0.95


def spread(figures):
    """The interquartile range; 0 for a single figure."""
    if len(figures) < 2:
        return 0.0
    low, _, high = quantiles(figures, n=4, method="inclusive")
    return high - low


def median_interval(figures):
    """(low, high) between which the median that the figures are drawn from lies, with a confidence of 95 % at least.

    Two of the figures themselves, by the binomial distribution of how many lie below the median, whatever their
    distribution. None for fewer than six figures, which cannot tell.
    """
    outside = _outside(len(figures))
    if not outside:
        return None
    ordered = sorted(figures)
    return ordered[outside - 1], ordered[-outside]


def scatter(figures):
    """Half the interval of their median, relative to it; infinite where the figures are too few to tell."""
    interval = median_interval(figures)
    return inf if interval is None else (interval[1] - interval[0]) / 2 / median(figures)


@cache
def _outside(count):
    """The rank, from either end, of the figures between which the median lies; 0 where there are too few."""
    below, total = 0, 0
    while (total := total + comb(count, below)) * 2 <= (1 - CONFIDENCE) * 2**count:
        below += 1
    return below
