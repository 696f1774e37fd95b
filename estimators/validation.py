"""How far predicted costs are from measured ones."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """How well some figures agree with those that they are to be.

    mape: mean of the relative errors' sizes. rmse: root of the mean square of the errors, in the figures' unit.
    within_5_percent, within_10_percent: shares. bias: mean of the relative errors. kendall_tau: of their orders
    (Kendall, 1938), from -1 to 1; NaN for fewer than two.
    """

    mape: float
    rmse: float
    within_5_percent: float
    within_10_percent: float
    bias: float
    kendall_tau: float


def agreement(predicted, measured):
    """The Agreement of predicted with measured figures: two sequences of one length, in one unit, measured > 0."""
    predicted, measured = np.asarray(predicted, float), np.asarray(measured, float)
    relative = predicted / measured - 1
    return Agreement(
        mape=float(abs(relative).mean()),
        rmse=float(np.sqrt(np.mean((predicted - measured) ** 2))),
        within_5_percent=float((abs(relative) <= 0.05).mean()),
        within_10_percent=float((abs(relative) <= 0.1).mean()),
        bias=float(relative.mean()),
        kendall_tau=_kendall_tau(predicted, measured),
    )


def _kendall_tau(one, other):
    """Tau-a: of all pairs, the share in the same order less the share in the other one; of ties neither."""
    pairs = np.triu_indices(len(one), 1)
    orders = (np.sign(values[:, None] - values)[pairs] for values in (one, other))
    return float(np.mean(np.prod(list(orders), axis=0))) if len(pairs[0]) else float("nan")
