"""Intervals of medians, and agreement of figures."""

import numpy as np
import pytest
from scipy.stats import binom, kendalltau

from estimators.base import Measurement
from estimators.statistics import median_interval, spread
from estimators.validation import agreement


@pytest.mark.parametrize("count", [6, 9, 12, 40, 61])
def test_the_interval_is_the_narrowest_of_its_confidence(count):
    """Between the k-th figures from both ends lies the median unless fewer than k lie on one side of it."""
    low, high = median_interval(range(count))
    below = int(low) + 1
    assert high == count - below
    assert 2 * binom.cdf(below - 1, count, 0.5) <= 0.05 < 2 * binom.cdf(below, count, 0.5)


def test_few_figures_tell_nothing():
    assert median_interval([1.0] * 5) is None
    assert Measurement.of([1.0] * 5, 5).error == float("inf") and Measurement.of([1.0] * 6, 6).error == 0


def test_the_interval_holds_the_median_as_often_as_it_says():
    random = np.random.default_rng(0)
    drawn = random.exponential(size=(2000, 15))
    intervals = np.array([median_interval(row) for row in drawn])
    held = np.mean((intervals[:, 0] <= np.log(2)) & (np.log(2) <= intervals[:, 1]))
    assert held + 0.01 >= 0.95 and held < 0.985


def test_the_error_is_half_the_interval():
    assert Measurement.of([10.0, 9.0, 11.0, 10.0, 10.0, 12.0], 6).error == pytest.approx(0.15)
    assert spread([1.0]) == 0


def test_what_was_slowed_down_is_less_sure():
    figures = [10.0, 9.0, 11.0, 10.0, 10.0, 12.0]
    disturbed = Measurement.of(figures, 6, slowdown=2.0)
    assert disturbed.interval == pytest.approx((9 / 1.1, 12 * 1.1)) and disturbed.median == 10.0
    assert Measurement.of(figures, 6, slowdown=0.9).interval == (9.0, 12.0)


def test_agreement_by_hand():
    found = agreement([1.0, 2.08, 3.6, 4.0], [1.0, 2.0, 3.0, 5.0])
    assert found.mape == pytest.approx((0.04 + 0.2 + 0.2) / 4) and found.bias == pytest.approx(0.01)
    assert found.rmse == pytest.approx(((0.08**2 + 0.6**2 + 1) / 4) ** 0.5)
    assert (found.within_5_percent, found.within_10_percent, found.kendall_tau) == (0.5, 0.5, 1.0)


def test_the_order_is_kendalls():
    random = np.random.default_rng(3)
    measured = random.uniform(1, 2, 40)
    predicted = measured + random.normal(0, 0.2, 40)
    assert agreement(predicted, measured).kendall_tau == pytest.approx(kendalltau(predicted, measured).statistic)
    assert np.isnan(agreement([1.0], [1.0]).kendall_tau)
