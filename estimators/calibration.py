"""From sums of parts to whole networks: one factor, and its error."""

import math

from estimators.base import EstimatorError


def fit_factor(sums, measured):
    """(factor, error): factor x sum is nearest to the measured cost, by least squares of the relative errors.

    sums, measured: one positive number a network, in the same unit. error: the root mean square of the
    relative errors that remain on these networks. Raises EstimatorError for other numbers, or none.
    """
    sums, measured = list(sums), list(measured)
    if len(sums) != len(measured) or not sums:
        raise EstimatorError(
            "calibration needs as many sums as measured networks, and one at least: "
            f"there are {len(sums)} and {len(measured)}"
        )
    for number in (*sums, *measured):
        if not math.isfinite(number) or number <= 0:
            raise EstimatorError(f"calibration needs positive costs of whole networks, and one is {number}")
    ratios = [total / whole for total, whole in zip(sums, measured, strict=True)]
    factor = sum(ratios) / sum(ratio * ratio for ratio in ratios)
    error = math.sqrt(sum((factor * ratio - 1) ** 2 for ratio in ratios) / len(ratios))
    return factor, error
