"""How well does a new device follow from ten networks measured on it, and other devices?

adapt.py FOLDER: with fbnet_latency_ms.csv.gz and nasbench201_latency_ms.csv.gz, a column for each device and batch size
(HELP, Lee and others 2021, measured them).

nasbench201: Spearman correlation over all networks but the ten, mean over columns. The sources are all columns but
those of the target's own device model, or of its whole family (GPUs, Xeons, each phone). ridge: ridge regression of log
latencies on the sources' log latencies; ridge_counts: and on counts of operators, of all and of those that reach the
output. fbnet: a fit to 300 networks of the target without any source, tested on the others. unreachable: the median
relative error of a fit to 300 networks of nasbench201 without any source, where operators that cannot reach the output
are counted, or free; adapt_unreachable_free: the same with ten networks and the sources.
"""

import argparse
import csv
import gzip
import re
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from scipy.stats import kendalltau, spearmanr
from sklearn.linear_model import Ridge

from estimators.adaptation import adapt, posterior_costs, reaching

OPERATORS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
LAYERS, CANDIDATES, SKIP = 22, 9, 8
MEASURED, MEASURED_ADDITIVE = 10, 300


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="2 repeats instead of 20, 1 instead of 5 of the fits to 300"
    )
    options = parser.parse_args()
    repeats, repeats_additive = (2, 1) if options.quick else (20, 5)
    architectures, columns, latencies = read(options.folder / "nasbench201_latency_ms.csv.gz")
    counted, free = cells(architectures)
    from_ten(columns, latencies, counted, free, repeats)
    unreachable(columns, latencies, counted, free, repeats_additive)
    additive(*read(options.folder / "fbnet_latency_ms.csv.gz"), repeats_additive)


def read(path):
    """(architectures, columns, latencies (networks, columns) in ms)"""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return [row[0] for row in rows], header[1:], np.array([row[1:] for row in rows], float)


def cells(architectures):
    """Counts of the operators, (networks, 1 + operators), the first of what every network has: all that are there, and
    only those that can reach the output."""
    operators = np.array([[OPERATORS.index(name) for name in re.findall(r"(\w+)~", text)] for text in architectures])
    carries = operators != OPERATORS.index("none")
    reach = reaching(EDGES, carries, 3)
    connected = (reach & carries)[:, [edge for edge, (start, _) in enumerate(EDGES) if start == 0]].any(1)

    def counts(there, always):
        return np.stack([always, *(((operators == one) & there).sum(1) for one in range(len(OPERATORS)))], 1).astype(
            float
        )

    # Where nothing connects input and output, such a runtime computes nothing at all.
    return counts(True, np.ones(len(operators))), counts(reach, np.ones(len(operators))) * connected[:, None]


def device_model(column):
    return re.sub(r"_(1|32|64|256)$", "", column)


def family(column):
    model = device_model(column)
    return "Xeons" if model.startswith(("gold", "silver")) else "GPUs" if re.match("titan|.*ti$", model) else model


def operator_costs(counts, latencies):
    """(costs, relative error) of the operators on a source, all of whose networks are known: least squares."""
    weights = 1 / (latencies + 0.1 * np.median(latencies))
    costs, _ = nnls(counts * weights[:, None], latencies * weights)
    return costs, np.median(np.abs(counts @ costs / latencies - 1))


def from_ten(columns, latencies, counted, free, repeats):
    sources = [
        min((operator_costs(one, column) for one in (counted, free)), key=lambda one: one[1])[0]
        for column in latencies.T
    ]
    logs = np.log(latencies)

    def adaptation(counts):
        def predict(given, target, measured):
            given = [sources[one] for one in given]
            return counts @ posterior_costs(counts[measured], latencies[measured, target], given, ())

        return predict

    def ridge(features):
        def predict(given, target, measured):
            x = np.concatenate([logs[:, given], *features], 1)
            x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
            return Ridge(1.0).fit(x[measured], logs[measured, target]).predict(x)

        return predict

    methods = {
        "ridge": ridge([]),
        "ridge_counts": ridge([counted, free]),
        "adapt": adaptation(counted),
        "adapt_unreachable_free": adaptation(free),
    }
    for left_out, group in (("model", device_model), ("family", family)):
        for name, predict in methods.items():
            found = {}
            for target, column in enumerate(columns):
                given = [one for one, other in enumerate(columns) if group(other) != group(column)]
                random = np.random.default_rng([0, target])
                found[column] = np.mean([
                    rank_correlation(predict(given, target, measured), latencies[:, target], measured)
                    for measured in (random.choice(len(logs), MEASURED, replace=False) for _ in range(repeats))
                ])  # fmt: skip
            report(f"nasbench201_{name}_without_{left_out}", found, family if left_out == "family" else device_model)
    honesty(columns, latencies, counted, sources)


def rank_correlation(predicted, latencies, measured):
    others = np.delete(np.arange(len(latencies)), measured)
    return spearmanr(predicted[others], latencies[others])[0]


def report(name, found, group):
    members = {}
    for column, value in found.items():
        members.setdefault(group(column), []).append(value)
    means = {one: np.mean(values) for one, values in members.items()}
    print(f"{name}: {np.mean(list(found.values())):.4f}")
    print(f"{name}_mean_of_groups: {np.mean(list(means.values())):.4f}")
    for one, value in means.items():
        print(f"{name}_{one}: {value:.4f}")


def honesty(columns, latencies, counted, sources, repeats=3):
    """The error by cross-validation on the ten, and that on all other networks; without the target's family."""
    claimed, true = [], []
    for target, column in enumerate(columns):
        given = [sources[one] for one, other in enumerate(columns) if family(other) != family(column)]
        random = np.random.default_rng([1, target])
        for _ in range(repeats):
            measured = random.choice(len(counted), MEASURED, replace=False)
            adaptation = adapt(counted[measured], latencies[measured, target], given)
            errors = np.delete(counted @ adaptation.costs / latencies[:, target] - 1, measured)
            claimed.append(adaptation.error)
            true.append(np.sqrt(np.mean(np.square(np.clip(errors, -1, 1)))))
    print(f"nasbench201_adapt_error_by_cross_validation: {np.median(claimed):.4f}")
    print(f"nasbench201_adapt_error_on_the_others: {np.median(true):.4f}")


def unreachable(columns, latencies, counted, free, repeats):
    for target, column in enumerate(columns):
        for name, counts in (("counted", counted), ("free", free)):
            errors = []
            for repeat in range(repeats):
                order = np.random.default_rng([2, target, repeat]).permutation(len(counts))
                fitted, tested = np.split(order, [MEASURED_ADDITIVE])
                costs = posterior_costs(counts[fitted], latencies[fitted, target], (), ())
                errors.append(np.median(np.abs(counts[tested] @ costs / latencies[tested, target] - 1)))
            print(f"unreachable_{name}_{column}: {np.mean(errors):.4f}")


def additive(architectures, columns, latencies, repeats):
    chosen = np.array([text.split("-") for text in architectures], int)
    pairs = [(layer, option) for option in range(CANDIDATES) if option != SKIP for layer in range(LAYERS)]
    counts = np.stack([np.ones(len(chosen)), *(chosen[:, layer] == option for layer, option in pairs)], 1)
    groupings = [(-1, *(pair[which] for pair in pairs)) for which in (0, 1)]
    within, taus = {}, {}
    for target, column in enumerate(columns):
        found = []
        for repeat in range(repeats):
            fitted, tested = np.split(
                np.random.default_rng([3, target, repeat]).permutation(len(counts)), [MEASURED_ADDITIVE]
            )
            costs = posterior_costs(counts[fitted], latencies[fitted, target], (), groupings)
            predicted, true = counts[tested] @ costs, latencies[tested, target]
            found.append((np.mean(np.abs(predicted / true - 1) < 0.1), kendalltau(predicted, true)[0]))
        within[column], taus[column] = np.mean(found, axis=0)
        print(f"fbnet_within_10_percent_{column}: {within[column]:.4f}")
        print(f"fbnet_kendall_tau_{column}: {taus[column]:.4f}")
    judged = [column for column in columns if family(column) == "GPUs" and column.endswith(("_32", "_64"))]
    print(f"fbnet_within_10_percent: {np.mean([within[column] for column in judged]):.4f}")
    print(f"fbnet_within_10_percent_least: {min(within[column] for column in judged):.4f}")
    print(f"fbnet_kendall_tau: {np.mean([taus[column] for column in judged]):.4f}")
    print(f"fbnet_kendall_tau_least: {min(taus[column] for column in judged):.4f}")


if __name__ == "__main__":
    main()
