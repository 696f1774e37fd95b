"""How good are the architectures that the main job finds? The table of README.

For each of three latency bounds: the main job over several seeds, random architectures within the same bound trained
alike, and the largest network of the space. What is finished in --folder is not done again.

Prints, per bound (a share of the largest network's latency) and over all of them, `name: value`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnabla.utils.nnp_graph import NnpLoader

from estimators.latency import Latency
from nnas import config
from nnas.costs import load_costs
from nnas.deciders import listed
from nnas.randomness import generator
from nnas.space import Architecture

# Of the largest network's latency, with the number of seeds that are searched with.
BOUNDS = {0.5: 5, 0.35: 3, 0.7: 3}
LARGEST_SEEDS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs/search_quality", help="where the runs are kept")
    parser.add_argument(
        "--quick", action="store_true", help="one bound, one seed, three random architectures, one epoch each"
    )
    parser.add_argument("--bounds", type=float, nargs="+", choices=BOUNDS, default=list(BOUNDS), help="only these")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--picture", help="write the table as a picture to this file")
    options = parser.parse_args()
    scope = (
        Scope.quick(options) if options.quick else Scope(options, {bound: BOUNDS[bound] for bound in options.bounds})
    )
    nnas("profile")
    pool = ThreadPoolExecutor(options.jobs)
    # The bounds of the random architectures are those of the first searches.
    searches = list(scope.searches())
    first, others = [job for seed, job in searches if seed < 2], [job for seed, job in searches if seed >= 2]
    list(pool.map(lambda job: job(), first))
    list(pool.map(lambda job: job(), [*others, *scope.trainings()]))
    scope.report()


class Scope:
    """What is compared, and where its runs are."""

    def __init__(self, options, bounds, randoms=20, overrides=(), search_overrides=()):
        self.folder, self.picture = Path(options.folder), options.picture
        self.bounds, self.randoms = bounds, randoms
        # Jobs at the same time share the cores.
        threads = max(1, len(os.sched_getaffinity(0)) // options.jobs)
        self.overrides = [f"device.threads={threads}", *overrides]
        self.search_overrides = search_overrides
        self.seeds = range(max(bounds.values()))

    @classmethod
    def quick(cls, options):
        options.folder += "_quick"
        return cls(options, {0.5: 1}, 3, ["train.epochs=1"], ["search.warmup_epochs=1", "search.epochs=1"])

    def searches(self):
        for bound, seeds in self.bounds.items():
            for seed in range(seeds):
                yield (
                    seed,
                    lambda bound=bound, seed=seed: run(
                        self.found(bound, seed),
                        "proxyless",
                        f"bound_fraction={bound}",
                        f"seed={seed}",
                        *self.search_overrides,
                        *self.overrides,
                    ),
                )

    def trainings(self):
        for name, architecture, seed in self._others():
            path = self.folder / f"{name}.json"
            architecture.save(path)
            yield lambda path=path, name=name, seed=seed: run(
                self.folder / name, "train", f"architecture={path}", f"seed={seed}", *self.overrides
            )

    def found(self, bound, seed):
        return self.folder / f"found_{bound}_{seed}"

    def _others(self):
        space, costs = self._space(), self._costs()
        largest = {
            decision.name: max(decision.options, key=lambda option, name=decision.name: cost_of(costs, name, option))
            for decision in space.decisions
        }
        for bound in self.bounds:
            limit = self._bound(bound)
            random = generator(0, "random architectures", int(bound * 1000))
            drawn = []
            while len(drawn) < self.randoms:
                choices = space.sample(random)
                if costs.cost(choices) <= limit and choices not in drawn:
                    drawn.append(choices)
            for number, choices in enumerate(drawn):
                yield f"random_{bound}_{number}", Architecture(space.name, choices, {}), number % len(self.seeds)
        for seed in self.seeds[:LARGEST_SEEDS]:
            yield f"largest_{seed}", Architecture(space.name, largest, {}), seed

    def _space(self):
        return listed(config.build(config.load("proxyless", None, []).space))

    def _costs(self):
        return load_costs(self.found(next(iter(self.bounds)), 0) / "costs.json")["latency"]

    def _bound(self, bound):
        return summary(self.found(bound, 0))["costs"]["latency"]["bound"]

    def report(self):
        largest = [summary(self.folder / f"largest_{seed}")["test_accuracy"] for seed in self.seeds[:LARGEST_SEEDS]]
        rows, lines = [], []
        for bound in sorted(self.bounds):
            found = [summary(self.found(bound, seed)) for seed in range(self.bounds[bound])]
            latencies = measured([self.found(bound, seed) for seed in range(self.bounds[bound])])
            random = [
                summary(self.folder / f"random_{bound}_{number}")["test_accuracy"] for number in range(self.randoms)
            ]
            accuracies = [one["test_accuracy"] for one in found]
            limit = found[0]["costs"]["latency"]["bound"]
            median, deviation = statistics.median(random), statistics.stdev(random)
            rows.append((bound, accuracies, random, limit))
            lines += [
                (f"bound_{bound}_ms", limit),
                (f"found_accuracy_mean_{bound}", statistics.mean(accuracies)),
                (f"found_accuracy_min_{bound}", min(accuracies)),
                (f"random_accuracy_median_{bound}", median),
                (f"random_accuracy_deviation_{bound}", deviation),
                (f"margin_in_deviations_mean_{bound}", (statistics.mean(accuracies) - median) / deviation),
                (f"margin_in_deviations_min_{bound}", (min(accuracies) - median) / deviation),
                (f"measured_over_bound_max_{bound}", max(latencies) / limit),
                (
                    f"measured_over_predicted_{bound}",
                    statistics.mean(
                        latency / one["costs"]["latency"]["predicted"]
                        for latency, one in zip(latencies, found, strict=True)
                    ),
                ),
                (
                    f"predicted_over_bound_min_{bound}",
                    min(one["costs"]["latency"]["predicted"] for one in found) / limit,
                ),
                (f"seconds_max_{bound}", max(sum(one["seconds"].values()) for one in found)),
            ]
        lines += [("largest_accuracy_mean", statistics.mean(largest))]
        if self.picture:
            draw(self.picture, rows, largest)
        for name, value in lines:
            print(f"{name}: {value:.4f}")


def nnas(*arguments):
    subprocess.run([sys.executable, "-m", "nnas", *arguments], check=True)


def run(folder, command, *arguments):
    if not (folder / "summary.json").exists():
        nnas(command, f"run_dir={folder}", *arguments)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def cost_of(costs, decision, option):
    return sum(term.cost for term in costs.terms if term.when == ((decision, option),))


def measured(folders):
    """The latencies of exported networks in ms, measured now that nothing else runs."""
    estimator = Latency("auto")
    figures = []
    for folder in folders:
        network = NnpLoader(str(folder / "network.nnp")).get_network("mobilenet_small", batch_size=1)
        (logits,) = network.outputs.values()
        figures.append(estimator.measure((logits,), str(folder)).median)
    return figures


def draw(path, rows, largest):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for place, (_, found, random, _) in enumerate(rows):
        axes.scatter(
            [place - 0.12] * len(random),
            [100 * one for one in random],
            color="0.6",
            label="random" if not place else None,
        )
        axes.scatter(
            [place + 0.12] * len(found), [100 * one for one in found], color="C0", label="found" if not place else None
        )
    axes.axhline(100 * statistics.mean(largest), color="C3", linestyle="--", label="largest network, no bound")
    axes.set_xticks(range(len(rows)), [f"{limit:.2f} ms\n({bound:.0%} of the largest)" for bound, _, _, limit in rows])
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_xlabel("latency bound")
    axes.set_ylabel("test accuracy, %")
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
