"""The files of a run."""

import fcntl
import json
import os
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import yaml

from nnas import checkpoint
from nnas.errors import NnasError
from nnas.files import (
    append_text,
    leaves,
    leftovers,
    parse_json,
    read_bytes,
    read_json,
    read_yaml,
    remove_leftovers,
    write_bytes,
    write_json,
    write_text,
)


class RunFolder:
    """The folder of one run; see ARCHITECTURE.md for what each file holds.

    writes: whether this process keeps records and checkpoints; of several, the first alone does."""

    def __init__(self, path, writes=True):
        self.path, self.writes = Path(path), writes
        self.config = self.path / "config.yaml"
        self.command = self.path / "command.json"
        self.inputs = self.path / "inputs.json"
        self.space = self.path / "space.json"
        self.costs = self.path / "costs.json"
        self.metrics = self.path / "metrics.jsonl"
        self.samples = self.path / "samples.jsonl"
        self.architecture = self.path / "architecture.json"
        self.supernet = self.path / "supernet.h5"
        self.weights = self.path / "weights.h5"
        self.network = self.path / "network.nnp"
        self.modules = self.path / "modules"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoint"
        self.earlier = self.path / "earlier"

    def checkpoint(self, phase):
        """The folder of the checkpoints of a phase."""
        return self.checkpoints / phase

    def append(self, record, samples=None):
        """Add a record to metrics.jsonl, in place of a last line that was not written to its end; samples: what
        samples.jsonl keeps of the same epoch, {name: values}."""
        if not self.writes:
            return
        records = self.records()
        if self.metrics.exists() and not self.metrics.read_bytes().endswith(b"\n"):
            self._keep_records(len(records))
        if samples:  # first: samples without their record are removed with it
            append_text(self.samples, json.dumps({"epoch": record["epoch"], **samples}, separators=(",", ":")) + "\n")
        append_text(self.metrics, json.dumps(record) + "\n")

    def records(self):
        """The records of metrics.jsonl; a last line that was not written to its end is left out."""
        if not self.metrics.exists():
            return []
        what = "the records of a run"
        lines = read_bytes(self.metrics, what).split(b"\n")[:-1]
        records = [parse_json(line, self.metrics, what) for line in lines]
        for number, record in enumerate(records, start=1):
            if not _is_record(record):
                raise NnasError(f"{self.metrics}: line {number} is damaged; remove that line, or the run folder")
        return records

    def save_checkpoint(self, phase, state):
        if self.writes:
            checkpoint.save(self.checkpoint(phase), {"records": len(self.records()), "state": state})

    def load_checkpoint(self, phase):
        """The state of the newest checkpoint of a phase, or None, and notes on damaged ones.

        Records that are newer than the checkpoint are removed, since they will be written again."""
        state, notes = checkpoint.load(self.checkpoint(phase))
        if state is None:
            return None, notes
        missing = state["records"] - len(self.records())
        if missing > 0:
            notes = [*notes, f"{self.metrics}: {missing} records of epochs before the checkpoint are missing"]
        self._keep_records(state["records"])
        return state["state"], notes

    def forget_records_of(self, phases):
        """Remove the records of phases that start anew."""
        records = self.records()
        self._keep_records(next((i for i, record in enumerate(records) if record["phase"] in phases), len(records)))

    def _keep_records(self, count):
        if not self.writes:
            return
        kept = self.records()[:count]
        write_text(self.metrics, "".join(json.dumps(record) + "\n" for record in kept))
        if self.samples.exists():
            epochs = {record.get("epoch") for record in kept if record["phase"] != "train"}
            lines = read_bytes(self.samples, "the samples of a run").split(b"\n")[:-1]
            read = {line: parse_json(line, self.samples, "the samples of a run") for line in lines}
            write_bytes(self.samples, *(line + b"\n" for line in lines if read[line].get("epoch") in epochs))


@contextmanager
def working_in(run):
    """Make the folder of a run, and keep all other processes out of it while the block runs."""
    run.path.mkdir(parents=True, exist_ok=True)
    folder = os.open(run.path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NnasError(
                f"run_dir={run.path}: {_holder(folder)} is working in it; wait until it has ended, or choose another "
                "run_dir"
            ) from None
        yield
    finally:
        os.close(folder)  # also ends the lock, as does the end of the process


def holder(run):
    """The process that works in the folder of a run, in words, or None."""
    folder = os.open(run.path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _holder(folder)
    finally:
        os.close(folder)


def find_run(path, command, config, growing=()):
    """Return a RunFolder, and write nothing; config: plain values, without run_dir.

    A folder of another configuration is refused, naming what differs; so is one that holds something else. growing:
    {key: phase} of numbers that may be larger than in the folder."""
    run = RunFolder(new_path(command) if path is None else str(path))
    if run.config.exists():
        _grown(run, config, growing)
    # A run that was killed as it began may have left its configuration half written.
    elif run.path.is_dir() and set(run.path.iterdir()) - set(leftovers(run.path)):
        raise NnasError(f"run_dir={path}: the folder holds files that are not of a run; choose another one")
    return run


def start_run(run, config, inputs, growing=()):
    """Make the folder of a run what find_run will resume; returns the phases that go on, those with more epochs now.

    inputs: {name: what identifies the content of something that is read}; it must not change between starts. What a
    phase that goes on had led to is moved to the folder earlier/."""
    remove_leftovers(run.path)
    grown = []
    if run.config.exists():
        _check_inputs(run, inputs)
        grown = _grown(run, config, growing)
        for phase in grown:
            _set_aside(run, phase)
    # The configuration makes the folder that of a run, so it comes first, and is changed when all else is ready.
    if grown or not run.config.exists():
        write_text(run.config, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    if not run.inputs.exists():
        write_json(run.inputs, inputs)
    return grown


def _holder(folder):
    """The process that has locked an open folder, for people; from Linux's table of locks."""
    status = os.fstat(folder)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        number = next(fields[4] for fields in locks if fields[1] == "FLOCK" and fields[5] == place)
        command = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return f"process {number} ({command[:80]})"
    except (OSError, StopIteration, IndexError):
        return "another process"


def _set_aside(run, phase):
    """Move what the end of a phase led to out of the way of its going on: kept in earlier/<number>/."""
    results = [run.weights, *run.path.glob("network.*"), run.modules, run.summary]
    if phase == "search":
        results += [run.checkpoint("train"), run.supernet, run.architecture]
    results = [path for path in results if path.exists()]
    if not results:
        return
    number = 1 + sum(1 for _ in run.earlier.glob("*"))
    folder = run.earlier / str(number)
    folder.mkdir(parents=True)
    write_text(folder / run.metrics.name, run.metrics.read_text(encoding="utf-8"))
    if phase == "search":
        run.forget_records_of(("derived", "train"))
    # The architecture last: without it a run that is killed here is still one whose search goes on.
    for path in results:
        os.replace(path, folder / path.name)


def new_path(command):
    """Where a command keeps its files if nothing else is asked for; not there yet."""
    stem = Path("runs") / f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{command}"
    path, number = stem, 1
    while path.exists():
        number += 1
        path = stem.with_name(f"{stem.name}_{number}")
    return path


def _grown(run, config, growing):
    """The phases of what has grown, as it may, since the configuration in a folder; an error where another thing
    differs."""
    before = read_yaml(run.config, "the configuration of a run")
    old, new = dict(leaves(before)), dict(leaves(config))
    phases, different = set(), []
    for key in sorted(old.keys() | new.keys()):
        if old.get(key, leaves) == new.get(key, leaves):
            continue
        if key in growing and _grows(old.get(key), new.get(key)):
            phases.add(growing[key])
        else:
            different.append(f"{key} (there {_shown(old, key)}, now {_shown(new, key)})")
    if different:
        raise NnasError(
            f"run_dir={run.path}: it belongs to a run of another configuration, which differs in "
            f"{', '.join(different[:5])}; choose another run_dir, or the configuration of that run"
        )
    return sorted(phases)


def _shown(values, key):
    try:
        return str(values.get(key, "absent"))
    except ValueError:
        return "a number of thousands of digits"


def _grows(old, new):
    return all(isinstance(value, int) and not isinstance(value, bool) for value in (old, new)) and new > old


def _check_inputs(run, inputs):
    if not run.inputs.exists():
        return
    before, now = dict(leaves(read_json(run.inputs, "a record of what a run reads"))), dict(leaves(inputs))
    different = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if different:
        key = different[0]
        raise NnasError(
            f"run_dir={run.path}: what the run reads has changed since it began: {key} (there {_shown(before, key)}, "
            f"now {_shown(now, key)}); restore it, or choose another run_dir"
        )


def _is_record(record):
    return (
        isinstance(record, dict)
        and isinstance(record.get("phase"), str)
        and all(type(record.get(key, 0)) in (int, float) for key in ("seconds", "validation_accuracy"))
    )
