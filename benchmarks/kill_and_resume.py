"""Does a run that is killed at any moment, and started again, end in the same bytes?

The default job with few epochs: once undisturbed, then --kills times ended by SIGKILL and started again until it is
done; a quarter of these runs is killed once more on the way. Every second kill is at a random moment of the whole
command, the others wait from such a moment on until a file is being written. Equal means: the architecture, every array
of the trained weights and of the supernet, all records but for their seconds, and the accuracies.

Prints where each run was killed, then `kills` (runs that were killed), `equal` of them, `during_a_save` (kills that
left a half-written file behind) and `killed_twice`. Exit status 1 where a run ended in other bytes; its folder is kept.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from nnas.checkpoint import read_arrays
from nnas.files import PARTIAL

EPOCHS = ["search.warmup_epochs=3", "search.epochs=4", "train.epochs=6"]
QUICK_EPOCHS = ["search.warmup_epochs=1", "search.epochs=1", "train.epochs=2"]
POLL_SECONDS = 0.0005


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many runs are killed")
    parser.add_argument("--quick", action="store_true", help="four kills, and fewer epochs")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", default="runs/kill_and_resume", help="where the runs are; what is in it is removed")
    parser.add_argument("overrides", nargs="*", help="further settings of the job, as device.threads=1")
    options = parser.parse_args()
    folder, kills = Path(options.folder), 4 if options.quick else options.kills
    shutil.rmtree(folder, ignore_errors=True)
    job = Job([*(QUICK_EPOCHS if options.quick else EPOCHS), *options.overrides])
    # Whatever is not in the table is measured here, so that all runs have the same costs.
    job.finish(folder / "whole")
    seconds = job.finish(folder / "timed")
    draw, outcomes = random.Random(options.seed), Counter()
    outcomes["equal undisturbed"] = not differences(folder / "whole", folder / "timed")
    for number in range(kills):
        run = folder / f"killed_{number}"
        for attempt in range(2 if number % 4 == 3 else 1):
            place, saving = killed(job, run, draw, seconds, during_a_save=number % 2 == 1)
            outcomes["during_a_save"] += saving
            outcomes["killed_twice"] += attempt
            print(f"run {number}: killed in {place}{' while it wrote a file' if saving else ''}", flush=True)
        job.finish(run)
        different = differences(folder / "whole", run)
        if different:
            print(f"run {number}: other bytes in {', '.join(different[:5])}; kept in {run}", flush=True)
        else:
            outcomes["equal"] += 1
            shutil.rmtree(run)
    print(f"equal_undisturbed: {outcomes['equal undisturbed']}")
    print(f"kills: {kills}")
    print(f"equal: {outcomes['equal']}")
    print(f"during_a_save: {outcomes['during_a_save']}")
    print(f"killed_twice: {outcomes['killed_twice']}")
    sys.exit(outcomes["equal"] < kills or not outcomes["equal undisturbed"])


class Job:
    """A command that goes on in its run folder."""

    def __init__(self, overrides):
        self._arguments = [sys.executable, "-m", "nnas", "proxyless", "device=cpu", *overrides]

    def start(self, run):
        return subprocess.Popen(
            [*self._arguments, f"run_dir={run}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self, run):
        """Run the command to its end; returns the seconds that it took."""
        start = time.monotonic()
        process = self.start(run)
        output, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"the command in {run} ended with status {process.returncode}:\n{output}")
        return time.monotonic() - start


def killed(job, run, draw, seconds, during_a_save):
    """Start the command and kill it; returns (where it was, whether it left a half-written file)."""
    while True:
        process = job.start(run)
        time.sleep(draw.uniform(0, seconds))
        while during_a_save and process.poll() is None and not half_written(run):
            time.sleep(POLL_SECONDS)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            return standing(run), half_written(run)
        # It was done by then.
        shutil.rmtree(run)


def half_written(run):
    return any(run.rglob(f".*{PARTIAL}")) if run.exists() else False


def standing(run):
    """What a run that was killed was at, for people."""
    if not (run / "config.yaml").exists():
        return "the start"
    if (run / "weights.h5").exists():
        return "the export"
    lines = (run / "metrics.jsonl").read_text().split("\n")[:-1] if (run / "metrics.jsonl").exists() else []
    if not lines:
        return "the start"
    last = json.loads(lines[-1])
    return f"{last['phase']} after epoch {last['epoch']}" if "epoch" in last else f"what follows {last['phase']}"


def differences(whole, run):
    """The names of what is not equal in two finished runs."""
    found = []
    if (whole / "architecture.json").read_bytes() != (run / "architecture.json").read_bytes():
        found.append("architecture.json")
    for name in ("supernet.h5", "weights.h5"):
        (one, _), (other, _) = (read_arrays(path / name, "weights") for path in (whole, run))
        found += [
            f"{name}:{array}"
            for array in sorted(one.keys() | other.keys())
            if array not in one or array not in other or one[array].tobytes() != other[array].tobytes()
        ]
    if records(whole) != records(run):
        found.append("metrics.jsonl")
    one, other = (json.loads((path / "summary.json").read_text()) for path in (whole, run))
    found += [key for key in ("test_accuracy", "validation_accuracy") if one[key] != other[key]]
    return found


def records(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


if __name__ == "__main__":
    main()
