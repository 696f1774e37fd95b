"""Does a search land on its target? The default job's space, for three latency targets, by REINFORCE with
objective=absolute or, with --command, by another search and the objective of its configuration.

Prints per target, a share of the largest network's latency: the mean cost of 200 architectures that are drawn from the
probabilities at the end, the predicted and the measured cost of the derived network, each over the target, and the
entropy of the decisions at the start and the end. The measured network has the weights it starts from, on which its
latency does not depend.
"""

import argparse
import statistics

import nnabla as nn

from estimators.device import find
from nnas import config
from nnas.communicator import Alone
from nnas.deciders import listed
from nnas.export import shipped_network
from nnas.kernels.loading import load
from nnas.objectives import constraint
from nnas.pricing import price
from nnas.search import Search

DRAWN = 200


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one target, one epoch of warm-up and one of search")
    parser.add_argument("--targets", type=float, nargs="+", default=[0.35, 0.5, 0.7])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of the CPU kernels; all of this process's if not given")
    parser.add_argument("--command", default="proxyless", help="the configuration of the search")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the configuration")
    options = parser.parse_args()
    if options.quick:
        options.targets = options.targets[:1]
        options.overrides = ["search.warmup_epochs=1", "search.epochs=1", *options.overrides]
    kernels = load(options.threads)
    lines = [
        (f"{name}_{target}" + (f"_seed_{seed}" if options.seeds > 1 else ""), value)
        for target in options.targets
        for seed in range(options.seeds)
        for name, value in found(options.command, target, seed, kernels, options.overrides)
    ]
    for name, value in lines:
        print(f"{name}: {value:.4f}")


def found(command, target, seed, kernels, overrides):
    """Figures of one search."""
    own = ["objective=absolute"] if command == "proxyless" else []
    given = ["space=mobilenet_small", f"bound_fraction={target}", *own, *overrides]
    settings = config.load(command, None, given)
    nn.set_default_context(find(settings.device.backend).context)
    network, data = config.build(settings.space), config.build(settings.data)
    space = listed(network)
    estimator = config.build(settings.constraints.latency.estimator)
    one, _ = constraint(
        space, "latency", price(network, space, estimator), None, target, settings.constraints.latency.weight
    )
    shared = {"communicator": Alone(), "seed": seed}
    searcher = config.build(settings.searcher)(space, [one], config.build(settings.objective), **shared)
    entropy = searcher.figures()["entropy"]
    for progress in Search(
        network, data, searcher=searcher, kernels=kernels, **shared, **config.build(settings.search)
    ):
        if progress.record and progress.phase == "search":
            print(
                f"target {target} seed {seed} epoch {progress.epoch}: entropy {progress.record['entropy']:.2f} "
                f"expected / target {progress.record['expected_cost']['latency'] / one.bound:.3f}",
                flush=True,
            )
    drawn = [one.costs.cost(searcher.sample()) for _ in range(DRAWN)]
    choices = searcher.best()
    x, outputs, _ = shipped_network(network, choices, estimator.batch)
    measured = estimator.measure(tuple(outputs.values()), f"target {target}", inputs=(x,)).median
    return [
        ("target_ms", one.bound),
        ("sampled_over_target", statistics.mean(drawn) / one.bound),
        ("sampled_deviation_over_target", statistics.stdev(drawn) / one.bound),
        ("derived_predicted_over_target", one.costs.cost(choices) / one.bound),
        ("derived_measured_over_target", measured / one.bound),
        ("entropy_start", entropy),
        ("entropy_end", searcher.figures()["entropy"]),
    ]


if __name__ == "__main__":
    main()
