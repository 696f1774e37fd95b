"""Which baseline of REINFORCE needs fewer samples to the same regret?

A toy in place of the networks: the decisions and MACs of the default space under half the largest network's, and
accuracies that add up over the options, as they looked in the default job after 17 epochs of warm-up (100 random
architectures on 18 minibatches of 64 validation images): deviation over architectures 0.015, some of it in step with
the cost (correlation 0.5); noise of a minibatch 0.044 for all architectures alike and 0.039 for each on its own.

Regret is the best reward within the bound, less that of the architecture that would be derived, both without noise.
Prints for each baseline: samples (mean over the seeds) from which on the regret stays below the threshold, their
deviation and standard error, the share of the seeds where this comes at all (the others count with all samples that
they had), and the mean regret at the end and over all updates; then the ratio of leave-one-out to the moving average.
"""

import argparse
import statistics

import numpy as np

from estimators.macs import MACs
from nnas import config
from nnas.communicator import Alone
from nnas.deciders import listed
from nnas.objectives import constraint
from nnas.pricing import price
from nnas.randomness import generator

ACCURACY, SPREAD, WITH_COST = 0.42, 0.015, 0.5
NOISE_OF_A_BATCH, NOISE_OF_ONE = 0.044, 0.039
BASELINES = {
    "moving_average": ["searcher.baseline=moving_average", "searcher.start_from_first=true"],
    "moving_average_from_zero": ["searcher.baseline=moving_average", "searcher.start_from_first=false"],
    "leave_one_out": ["searcher.baseline=leave_one_out"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three seeds and few updates")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--threshold", type=float, default=0.005, help="of the regret")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.updates = 3, 30
    default = config.load("proxyless", None, [])
    network = config.build(default.space)
    space = listed(network)
    bound, _ = constraint(space, "macs", price(network, space, MACs()), None, default.bound_fraction, None)
    toys = [Toy(space, bound, seed) for seed in range(options.seeds)]
    needed, lines = {}, [("threshold", options.threshold), ("seeds", options.seeds)]
    for name, overrides in BASELINES.items():
        settings = config.load("proxyless", None, overrides)
        regrets = np.array([regrets_of(toy, settings, seed, options.updates) for seed, toy in enumerate(toys)])
        samples = settings.searcher.samples
        needed[name] = [samples * updates_until(one, options.threshold) for one in regrets]
        lines += [
            (f"{name}_samples", statistics.mean(needed[name])),
            (f"{name}_samples_deviation", statistics.stdev(needed[name])),
            (f"{name}_samples_standard_error", statistics.stdev(needed[name]) / len(toys) ** 0.5),
            (f"{name}_reached", float((regrets[:, -1] < options.threshold).mean())),
            (f"{name}_last_regret", float(regrets[:, -1].mean())),
            (f"{name}_mean_regret", float(regrets.mean())),
        ]
    ratio = statistics.mean(needed["leave_one_out"]) / statistics.mean(needed["moving_average"])
    for name, value in [*lines, ("leave_one_out_over_moving_average", ratio)]:
        print(f"{name}: {value:.4g}")


class Toy:
    """Accuracies of architectures, with noise that is drawn as minibatches would be."""

    def __init__(self, space, bound, seed):
        random = generator(seed, "toy")
        self.space, self.bound, self._random = space, bound, random
        self._gains = {}
        for decision in space.decisions:
            costs = np.array([self._cost(decision, option) for option in decision.options])
            gains = WITH_COST * _standard(costs) + (1 - WITH_COST**2) ** 0.5 * _standard(random.normal(size=len(costs)))
            gains *= SPREAD / len(space.decisions) ** 0.5
            self._gains[decision.name] = dict(zip(decision.options, gains, strict=True))
        self.best = max(map(self.accuracy, self._within()))

    def accuracy(self, choices):
        return ACCURACY + sum(self._gains[name][option] for name, option in choices.items())

    def minibatch(self):
        """A function from choices to the accuracy on a minibatch, which is the same for equal choices."""
        shared, own = self._random.normal(0, NOISE_OF_A_BATCH), {}

        def evaluate(choices):
            key = tuple(choices.items())
            if key not in own:
                own[key] = self._random.normal(0, NOISE_OF_ONE)
            return self.accuracy(choices) + shared + own[key]

        return evaluate

    def _within(self):
        """All architectures within the bound, of a space of which no decision is nested."""
        every = [{}]
        for decision in self.space.decisions:
            every = [{**choices, decision.name: option} for choices in every for option in decision.options]
        return [choices for choices in every if self.bound.costs.cost(choices) <= self.bound.bound]

    def _cost(self, decision, option):
        return sum(term.cost for term in self.bound.costs.terms if term.when == ((decision.name, option),))


def _standard(values):
    return (values - values.mean()) / values.std()


def regrets_of(toy, settings, seed, updates):
    """The regret after each update of a searcher."""
    searcher = config.build(settings.searcher)(
        toy.space, [toy.bound], config.build(settings.objective), communicator=Alone(), seed=seed
    )
    regrets = []
    for _ in range(updates):
        searcher.step(toy.minibatch())
        regrets.append(toy.best - toy.accuracy(searcher.best()))
    return regrets


def updates_until(regrets, threshold):
    """The number of updates after which the regret stays below the threshold, or of all of them."""
    above = np.flatnonzero(np.asarray(regrets) >= threshold)
    return min(int(above[-1]) + 2 if len(above) else 1, len(regrets))


if __name__ == "__main__":
    main()
