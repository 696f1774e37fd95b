"""Which searcher finds what, on the same data and space and with as many epochs?

For each searcher and seed a whole run: search, training from scratch, measuring. Prints a line a searcher (accuracy of
the trained network on the test images, mean and deviation over seeds; measured latency over the bound; seconds of the
search), then `name: value`. What is finished in --folder is not done again.
"""

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOMENTUM = "search.solver.make_solver._target_=nnabla.solvers.Momentum"
SEARCHERS = {
    "proxyless": ["proxyless"],
    "darts_1": ["darts"],
    "darts_2": ["darts", "searcher.order=2", MOMENTUM],
    "gumbel": ["gumbel"],
    "pcdarts": ["pcdarts"],
    "xnas": ["xnas"],
    "divnas": ["darts", "finalizer=divnas"],
    "random": ["random"],
}
EPOCHS = ["search.warmup_epochs=3", "search.epochs=6"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="darts_small", help="with mobilenet_small there is no divnas")
    parser.add_argument("--searchers", nargs="+", choices=SEARCHERS, default=list(SEARCHERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs/searchers"), help="where the runs are kept")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each on one thread if more than one")
    parser.add_argument("--quick", action="store_true", help="one seed, one epoch each")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of all configurations")
    options = parser.parse_args()
    epochs = EPOCHS
    if options.quick:
        options.seeds, epochs = 1, ["search.warmup_epochs=0", "search.epochs=1", "train.epochs=1"]
    if options.jobs > 1:
        options.overrides = ["device.threads=1", *options.overrides]
    with ThreadPoolExecutor(options.jobs) as jobs:
        found = {name: [] for name in options.searchers}
        for seed in range(options.seeds):
            for name, results in found.items():
                results.append(jobs.submit(run, options, name, seed, epochs))
    lines = []
    for name, results in found.items():
        runs = [one.result() for one in results]
        accuracies = [one["test_accuracy"] for one in runs]
        latencies = [one["measured_latency"]["median"] / one["costs"]["latency"]["bound"] for one in runs]
        seconds = [one["seconds"].get("warmup", 0) + one["seconds"].get("search", 0) for one in runs]
        deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        print(
            f"{name:10} {statistics.mean(accuracies):.2%} +- {deviation:.2%}  latency / bound "
            f"{statistics.mean(latencies):.3f}  {statistics.mean(seconds):.0f} s",
            flush=True,
        )
        lines += [
            (f"{name}_accuracy", statistics.mean(accuracies)),
            (f"{name}_deviation", deviation),
            (f"{name}_latency_over_bound", statistics.mean(latencies)),
            (f"{name}_search_seconds", statistics.mean(seconds)),
        ]
    for name, value in lines:
        print(f"{name}: {value:.4f}")


def run(options, name, seed, epochs):
    """The summary of a run."""
    folder = options.folder / f"{options.space}_{name}_{seed}"
    if not (folder / "summary.json").exists():
        command, *settings = SEARCHERS[name]
        arguments = [command, f"space={options.space}", f"seed={seed}", f"run_dir={folder}", *settings, *epochs]
        command = [sys.executable, "-m", "nnas", *arguments, *options.overrides]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return json.loads((folder / "summary.json").read_text())


if __name__ == "__main__":
    main()
