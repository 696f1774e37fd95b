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


def half_width(interval, middle):
    """Half an interval, relative to a figure in it; infinite where there is no interval."""
    return inf if interval is None else (interval[1] - interval[0]) / 2 / middle


def scatter(figures):
    """The half_width of the interval of their median."""
    return half_width(median_interval(figures), median(figures))


@cache
def _outside(count):
    """The rank, from either end, of the figures between which the median lies; 0 where there are too few."""
    below, total = 0, 0
    while (total := total + comb(count, below)) * 2 <= (1 - CONFIDENCE) * 2**count:
        below += 1
    return below
