"""A command once for each combination of swept values, as Hydra's --multirun."""

import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from nnas import config as configuration
from nnas.errors import NnasError
from nnas.rundir import RunFolder
from nnas.terminal import Terminal


def multirun(name, config_dir, overrides):
    """Run the jobs one after another, each in a process of its own; returns the exit status.

    One after another, since latencies that are measured side by side are those of a busy device; the first job
    measures what the latency table lacks, and the others find it there. In the folder of an earlier multirun, given by
    run_dir, what is finished stays as it is."""
    given = [one for one in overrides if one.startswith("run_dir=")]
    jobs = configuration.swept([one for one in overrides if one not in given])
    for job in jobs:  # what is wrong with one of them is found before the first begins
        configuration.load(name, config_dir, [*job.fixed, *job.swept])
    folder = Path(given[-1].partition("=")[2] if given else f"multirun/{datetime.now():%Y-%m-%d_%H-%M-%S}_{name}")
    terminal, failed = Terminal(), []
    terminal.say(f"multirun: {len(jobs)} jobs in {folder}")
    for number, job in enumerate(jobs):
        run = folder / _folder_name(number, job.swept)
        what = f"job {number + 1} of {len(jobs)}: {' '.join(job.swept) or name}"
        if RunFolder(run).summary.exists():
            terminal.say(f"{what}: finished before")
            continue
        terminal.say(f"\n{what}")
        options = [f"--config-dir={config_dir}"] if config_dir else []
        status = _run([name, *options, *job.fixed, *job.swept, f"run_dir={run}"])
        if status >= 128 or status < 0:
            raise KeyboardInterrupt
        if status:
            failed.append(what)
    if failed:
        raise NnasError(
            f"{len(failed)} of {len(jobs)} jobs failed, the first {failed[0]}; the same command with "
            f"run_dir={folder} does what is not finished"
        )
    terminal.say(f"\nnext: nnas compare runs={folder}")
    return 0


def _run(arguments):
    """The exit status of a command in another process, which ends before this one does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-m", "nnas", *arguments], env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt as error:
        # Ctrl-C reaches both; a second signal would end the job without its checkpoint.
        if getattr(error, "number", signal.SIGINT) != signal.SIGINT:
            process.terminate()
        process.wait()
        raise


def _folder_name(number, swept):
    # Of characters that need no quotes in Hydra's grammar, so that the folder can be given to other commands.
    words = [re.sub(r"[^A-Za-z0-9._]+", "-", one) for one in swept]
    return "_".join([str(number), *words])[:120].rstrip("_-.")
