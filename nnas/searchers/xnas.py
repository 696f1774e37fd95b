"""XNAS (Nayman et al.: XNAS: Neural Architecture Search with Expert Advice, NeurIPS 2019)."""

from functools import partial
from math import log, sqrt

import nnabla.solvers as S
import numpy as np

from nnas.errors import check_number
from nnas.searchers.base import MixtureSearcher

WIPED_OUT = -1e6  # the logarithm of a weight that is 0 for good


class Xnas(MixtureSearcher):
    """Options are experts with weights v: exponentiated gradients, and those that can no longer win are wiped out.

    v_k <- v_k exp(eta R_k) with the reward R_k = -d loss / d (share of k), within the bound, and
    eta = sqrt(2 ln N / (T bound^2)) for N options and T updates; then every v_k below
    max v exp(-2 eta bound (T - t)) becomes 0. Kept as logarithms. The rewards of a decision are taken relative to their
    mean by the weights, which changes no share.

    bound: of the rewards (the L of the paper). rate: a factor on eta.
    """

    def __init__(self, space, constraints, objective, communicator, seed, bound=1.0, rate=1.0):
        # Nothing is left to a solver; it holds the logarithms as alphas.
        super().__init__(space, constraints, objective, partial(S.Sgd, 1.0), communicator, seed)
        self._bound = check_number("searcher.bound", bound, 0, open_below=True)
        self._rate = check_number("searcher.rate", rate, 0, open_below=True)

    def _learn(self, weights, gates, cross_entropy):
        loss, slopes = self.slopes(weights, gates, cross_entropy)
        left = max(self.planned - self._updates - 1, 0)
        for name, slope in slopes.items():
            rewards = np.clip(weights[name] @ slope - slope, -self._bound, self._bound)
            eta = self._rate * sqrt(2 * log(max(len(slope), 2)) / self.planned) / self._bound
            logs = self._alphas[name].d.astype(np.float64)
            logs = np.where(logs > WIPED_OUT, logs + eta * rewards, WIPED_OUT)
            logs[logs < logs.max() - 2 * eta * self._bound * left - 1e-9] = WIPED_OUT
            # Only differences matter; so they stay where single precision is fine.
            self._alphas[name].d = np.where(logs > WIPED_OUT, logs - logs.max(), WIPED_OUT)
        self._updates += 1
        self._take_log_probabilities()
        return loss
