"""How far are predicted latencies of whole networks from measured ones, on networks that nothing was fitted on?

On the CPU: two profilings of mobilenet_cifar10, a calibration on 20 random networks, and 30 fresh ones, each measured
twice, interleaved: the noise floor. agreement_percent: entries whose intervals in the two profilings overlap.
Prints `name: value`; the rest of the table of `validate` is in --folder.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from estimators import table as tables


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="mobilenet_cifar10")
    parser.add_argument("--folder", type=Path, default=Path("runs/latency_accuracy"), help="for tables and figures")
    parser.add_argument("--quick", action="store_true", help="few rounds and networks")
    options = parser.parse_args()
    quick = ["estimator.rounds=6"] if options.quick else []
    fitted, fresh = (6, 6) if options.quick else (20, 30)
    seconds, found = [], []
    for name in ("first", "second"):
        folder = options.folder / name
        start = time.monotonic()
        nnas("profile", options.space, folder, *quick)
        seconds.append(time.monotonic() - start)
        (path,) = folder.glob("*.json")
        found.append({text: entry.measurement() for text, entry in tables.read(path).entries.items()})
    nnas("calibrate", options.space, folder, *quick, f"networks={fitted}")
    nnas("validate", options.space, folder, *quick, f"networks={fresh}", f"folder={options.folder / 'validation'}")
    figures = json.loads((options.folder / "validation" / "validation.json").read_text())["agreement"]
    first, second = found
    pairs = [(first[text], second[text]) for text in first.keys() & second.keys()]
    for name, value in (
        ("profiling_seconds", max(seconds)),
        ("agreement_percent", 100 * statistics.mean(overlap(*pair) for pair in pairs)),
        ("repeat_difference_percent", 100 * statistics.median(abs(a.median / b.median - 1) for a, b in pairs)),
        ("mape_percent", 100 * figures["calibrated"]["mape"]),
        ("noise_floor_percent", 100 * figures["noise_floor"]["mape"]),
        ("within_10_percent", 100 * figures["calibrated"]["within_10_percent"]),
        ("kendall_tau", figures["calibrated"]["kendall_tau"]),
        ("kendall_tau_floor", figures["noise_floor"]["kendall_tau"]),
        ("uncalibrated_mape_percent", 100 * figures["uncalibrated"]["mape"]),
    ):
        print(f"{name}: {value:.4g}")


def nnas(command, space, folder, *settings):
    arguments = [command, f"space={space}", "device=cpu", f"estimator.folder={folder}", *settings]
    subprocess.run([sys.executable, "-m", "nnas", *arguments], check=True)


def overlap(first, second):
    return max(first.interval[0], second.interval[0]) <= min(first.interval[1], second.interval[1])


if __name__ == "__main__":
    main()
