"""The files of a run."""

import json
from datetime import datetime
from pathlib import Path

import yaml

from nnas import checkpoint
from nnas.errors import NnasError
from nnas.files import append_text, leftovers, parse_json, read_bytes, read_yaml, remove_leftovers, write_text


class RunFolder:
    """The folder of one run; see ARCHITECTURE.md for what each file holds."""

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.space = self.path / "space.json"
        self.costs = self.path / "costs.json"
        self.metrics = self.path / "metrics.jsonl"
        self.architecture = self.path / "architecture.json"
        self.supernet = self.path / "supernet.h5"
        self.weights = self.path / "weights.h5"
        self.network = self.path / "network.nnp"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoint"

    def append(self, record):
        """Add a record to metrics.jsonl, in place of a last line that was not written to its end."""
        records = self.records()
        if self.metrics.exists() and not self.metrics.read_bytes().endswith(b"\n"):
            self._keep_records(len(records))
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
        checkpoint.save(self.checkpoints, {"phase": phase, "records": len(self.records()), "state": state})

    def load_checkpoint(self, phase):
        """The state of the newest checkpoint of a phase, or None, and notes on damaged ones.

        Records that are newer than the checkpoint are removed, since they will be written again."""
        state, notes = checkpoint.load(self.checkpoints)
        if state is None or state["phase"] != phase:
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
        write_text(self.metrics, "".join(json.dumps(record) + "\n" for record in self.records()[:count]))


def find_run(path, command, config):
    """Return (RunFolder, whether it is resumed), and write nothing; config: plain values, without run_dir.

    A folder of another configuration is refused, naming what differs; so is one that holds something else."""
    run = RunFolder(_new_path(command) if path is None else str(path))
    if run.config.exists():
        _check_same(run, config)
        return run, True
    # A run that was killed as it began may have left its configuration half written.
    if run.path.is_dir() and set(run.path.iterdir()) - set(leftovers(run.path)):
        raise NnasError(f"run_dir={path}: the folder holds files that are not of a run; choose another one")
    return run, False


def start_run(run, config):
    """Make the folder of a run what find_run will resume."""
    run.path.mkdir(parents=True, exist_ok=True)
    remove_leftovers(run.path)
    if not run.config.exists():
        write_text(run.config, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def _new_path(command):
    stem = Path("runs") / f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{command}"
    path, number = stem, 1
    while path.exists():
        number += 1
        path = stem.with_name(f"{stem.name}_{number}")
    return path


def _check_same(run, config):
    before = read_yaml(run.config, "the configuration of a run")
    old, new = dict(_leaves(before)), dict(_leaves(config))
    different = sorted(key for key in old.keys() | new.keys() if old.get(key, _leaves) != new.get(key, _leaves))
    if different:
        shown = ", ".join(
            f"{key} (there {old.get(key, 'absent')}, now {new.get(key, 'absent')})" for key in different[:5]
        )
        raise NnasError(
            f"run_dir={run.path}: it belongs to a run of another configuration, which differs in {shown}; choose "
            "another run_dir, or the configuration of that run"
        )


def _is_record(record):
    return (
        isinstance(record, dict)
        and isinstance(record.get("phase"), str)
        and all(type(record.get(key, 0)) in (int, float) for key in ("seconds", "validation_accuracy"))
    )


def _leaves(value, key=""):
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
