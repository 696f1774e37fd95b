"""SNAS (Xie, Zheng, Liu, Lin: SNAS: Stochastic Neural Architecture Search, ICLR 2019), by Gumbel-softmax."""

import numpy as np

from nnas.errors import check_number
from nnas.searchers.base import MixtureSearcher


class Gumbel(MixtureSearcher):
    """Learns probabilities by sums of options with random weights z = softmax((log p + G) / temperature), G of a
    standard Gumbel distribution, drawn anew for every decision and step.

    temperature, last_temperature: at the first and the last update, and a geometric series between. hard: the network
    has the largest of z alone, as 1, while the gradient is that of z (straight through; Jang, Gu, Poole, 2017).
    """

    def __init__(
        self,
        space,
        constraints,
        objective,
        make_solver,
        communicator,
        seed,
        temperature=1.0,
        last_temperature=0.1,
        hard=False,
    ):
        super().__init__(space, constraints, objective, make_solver, communicator, seed)
        self._first = check_number("searcher.temperature", temperature, 0, open_below=True)
        self._last = check_number("searcher.last_temperature", last_temperature, 0, open_below=True)
        self._hard = hard

    @property
    def temperature(self):
        """Of the next draw."""
        done = min(self._updates / max(self.planned - 1, 1), 1.0)
        return self._first * (self._last / self._first) ** done

    def weigh(self):
        weights = {}
        for name, logs in self._log_probabilities.items():
            noisy = (logs + self.generator.gumbel(size=len(logs))) / self.temperature
            weights[name] = np.exp(noisy - np.logaddexp.reduce(noisy))
        self._set_gates({name: np.eye(len(z))[z.argmax()] for name, z in weights.items()} if self._hard else weights)
        return weights

    def gradient(self, probabilities, gates, cross_entropy):
        """As of GradientSearcher; probabilities: the drawn weights, whose logarithms change with the alphas' by one
        over the temperature."""
        loss, gradients = super().gradient(probabilities, gates, cross_entropy)
        return loss, {name: gradient / self.temperature for name, gradient in gradients.items()}

    def figures(self):
        return {**super().figures(), "temperature": self.temperature}
