"""ProxylessNAS with gradients (Cai, Zhu, Han: ProxylessNAS, ICLR 2019, sections 3.2 and 3.3)."""

import numpy as np

from nnas.errors import NnasError, nearest
from nnas.searchers.base import GradientSearcher

PATHS = ("full", "two")


class ProxylessGradient(GradientSearcher):
    """Learns a probability of every option from the gradients of binary gates and of the expected costs.

    One option of each decision is active: its gate is 1, the others' are 0. The gradient of the loss for a gate,
    <d loss / d output, what the option returns>, needs what the other options return too. paths: 'full', of all
    options; 'two', of two drawn without replacement, between which the update moves probability and leaves that of
    all others as it was. make_solver: a function to a nnabla solver for the alphas, Adam with betas (0, 0.999) in the
    paper.
    """

    def __init__(self, space, constraints, objective, make_solver, communicator, seed, paths="two"):
        super().__init__(space, constraints, objective, make_solver, communicator, seed)
        if paths not in PATHS:
            raise NnasError(f"searcher.paths={paths!r}: possible are {', '.join(PATHS)}{nearest(paths, PATHS)}")
        self._paths = paths

    def step(self, evaluate):
        """Make one update; evaluate: as in base.Searcher, of a searcher with gates. Returns figures for the record."""
        drawn = {decision.name: self._draw(decision.name) for decision in self.space.decisions}
        probabilities = {name: self._among(name, places) for name, places in drawn.items()}
        for name, gate in self.gates.items():
            active = self.generator.choice(len(probabilities[name]), p=probabilities[name])
            gate.d = np.eye(len(probabilities[name]))[active]
        cross_entropy, error = evaluate.differentiate(
            {decision.name: [decision.options[i] for i in drawn[decision.name]] for decision in self.space.decisions}
        )
        gates = {name: gate.g.astype(np.float64) for name, gate in self.gates.items()}
        loss, gradients = self.gradient(probabilities, gates, cross_entropy)
        before = {name: alpha.d.astype(np.float64) for name, alpha in self._alphas.items()}
        self._move(gradients)
        if self._paths == "two":
            self._rescale(before, drawn)
        return {"objective": loss, "validation_loss": cross_entropy, "validation_error": error}

    def _draw(self, name):
        """The options that an update considers, as sorted places."""
        logs = self._log_probabilities[name]
        if self._paths == "full" or len(logs) <= 2:
            return np.arange(len(logs))
        # The largest of log p + Gumbel noise are a draw without replacement, also where a p is 0 in floating point.
        return np.sort(np.argsort(logs + self.generator.gumbel(size=len(logs)))[-2:])

    def _among(self, name, places):
        """The probabilities of a decision's options given that one of those at `places` is chosen."""
        logs = self._log_probabilities[name][places]
        probabilities = np.zeros_like(self._log_probabilities[name])
        probabilities[places] = np.exp(logs - logs.max())
        return probabilities / probabilities.sum()

    def _rescale(self, before, drawn):
        """Leave all other options as they were: their alphas, and their probabilities by a shift of the pair's."""
        for name, places in drawn.items():
            moved = self._alphas[name].d.astype(np.float64)[places]
            alphas = before[name].copy()
            alphas[places] = moved - np.logaddexp.reduce(moved) + np.logaddexp.reduce(before[name][places])
            self._alphas[name].d = alphas
        self._take_log_probabilities()
