"""Latency tables: one JSON file for a device, a data type and a batch size."""

import hashlib
import json
import math
import os
import re
import tempfile
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median, quantiles

from estimators.base import EstimatorError, Measurement

FORMAT = 1
UNIT = "ms"


@dataclass(frozen=True)
class Entry:
    """The measurements of one signature.

    label: for people. rounds: tuple of the rounds' figures, ms. runs: forward passes in all of them.
    """

    label: str
    rounds: tuple
    runs: int

    def measurement(self):
        """The Measurement that the rounds make; ms."""
        return Measurement(median(self.rounds), spread(self.rounds), len(self.rounds), self.runs, UNIT)

    def with_round(self, milliseconds, runs):
        """The entry with one more round."""
        return replace(self, rounds=(*self.rounds, milliseconds), runs=self.runs + runs)


@dataclass(frozen=True)
class Calibration:
    """From sums of parts to whole networks: factor, its relative error, how many networks gave it, and a digest of
    what these networks and the sums of their parts were."""

    factor: float
    error: float
    networks: int
    fitted_on: str


@dataclass
class Table:
    """A latency table.

    fingerprint: of the device. entries: {signature: Entry}. calibration: {space name: Calibration}.
    yardstick: seconds that a fixed piece of work takes on the undisturbed device, to which all figures are scaled
    (see estimators.yardstick); None where nothing was measured yet.
    created, changed: dates, ISO 8601, UTC. origin: of a table that was not measured here, where it is from, as a JSON
    value (see estimators.adapted); None: it was measured here.
    """

    fingerprint: dict
    dtype: str = "float32"
    batch: int = 1
    entries: dict = field(default_factory=dict)
    calibration: dict = field(default_factory=dict)
    yardstick: float = None
    created: str = ""
    changed: str = ""
    origin: dict = None

    def __post_init__(self):
        self.created = self.created or _now()

    def add_round(self, signature, label, milliseconds, runs):
        """Put one round's figure under a signature."""
        entry = self.entries.get(signature) or Entry(label, (), 0)
        self.entries[signature] = entry.with_round(milliseconds, runs)

    def write(self, path):
        """Write the table: it is there as a whole or as it was before. Raises EstimatorError."""
        self.changed = _now()
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, json.dumps(self._as_json(), indent=1, allow_nan=False) + "\n")
        except OSError as error:
            raise EstimatorError(
                f"the latency table {path} cannot be written ({error.strerror}): make the folder writable, "
                "or give another one"
            ) from error

    def _as_json(self):
        entries = {}
        for signature, entry in sorted(self.entries.items()):
            measured = entry.measurement()
            entries[signature] = {
                "label": entry.label,
                "median": measured.median,
                "spread": measured.spread,
                "runs": entry.runs,
                "rounds": list(entry.rounds),
            }
        return {
            "format": FORMAT,
            "unit": UNIT,
            "device": self.fingerprint,
            "dtype": self.dtype,
            "batch": self.batch,
            "created": self.created,
            "changed": self.changed,
            "yardstick_seconds": self.yardstick,
            "origin": self.origin,
            "calibration": {name: asdict(values) for name, values in sorted(self.calibration.items())},
            "entries": entries,
        }


def file_name(fingerprint, dtype, batch):
    """The name of the table's file: readable, and different for every device, data type and batch size."""
    identity = json.dumps([fingerprint, dtype, batch], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:6]
    words = re.sub(r"[^a-z0-9]+", "-", str(fingerprint["processor"]).lower()).strip("-")
    return f"{words}-{fingerprint['backend']}-{digest}.json"


def read(path):
    """The Table in a file.

    Raises EstimatorError, in one line, for a file that is missing, damaged, of another format or unit, or
    that has a figure which is no latency.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EstimatorError(
            f"there is no latency table {path}: check the path, or measure one with {command()}"
        ) from error
    except OSError as error:
        raise EstimatorError(f"the latency table {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _damaged(path, f"is not whole JSON ({error})") from error
    if not isinstance(content, dict) or "format" not in content:
        raise _damaged(path, "is not a latency table: it has no 'format'")
    if content["format"] != FORMAT:
        raise _damaged(path, f"has format {content['format']!r}, and this version reads format {FORMAT}")
    if content.get("unit") != UNIT:
        raise _damaged(path, f"has the unit {content.get('unit')!r}, and a latency table is in {UNIT!r}")
    try:
        return _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged: {error}"
        raise _damaged(path, what) from error


def command(space_name="SPACE", backend="DEVICE"):
    """The command that measures what a table lacks."""
    return f"python main.py --config-name=profile space={space_name} device={backend}"


def spread(figures):
    """The interquartile range; 0 for a single figure."""
    if len(figures) < 2:
        return 0.0
    low, _, high = quantiles(figures, n=4, method="inclusive")
    return high - low


def _damaged(path, what):
    return EstimatorError(f"the latency table {path} {what}; restore it, or move it away and measure again")


def _from_json(content):
    fingerprint = content["device"]
    if not isinstance(fingerprint, dict) or not {"processor", "backend"} <= fingerprint.keys():
        raise ValueError("'device' has no 'processor' and 'backend'")
    if type(content["batch"]) is not int or content["batch"] < 1:
        raise ValueError(f"the batch size is {content['batch']!r}")
    yardstick = content["yardstick_seconds"]
    if yardstick is not None:
        _check_positive(yardstick, "yardstick_seconds")
    return Table(
        fingerprint=fingerprint,
        dtype=content["dtype"],
        batch=content["batch"],
        entries={signature: _entry(values) for signature, values in content["entries"].items()},
        calibration={name: _calibration(name, values) for name, values in content["calibration"].items()},
        created=content["created"],
        changed=content["changed"],
        yardstick=yardstick,
        origin=content.get("origin"),
    )


def _entry(values):
    label = values["label"]
    rounds = values["rounds"]
    if not isinstance(rounds, list) or not rounds:
        raise ValueError(f"{label!r} has no rounds")
    for figure in (*rounds, values["median"], values["runs"]):
        _check_positive(figure, label)
    if not math.isclose(values["median"], median(rounds), rel_tol=1e-9):
        raise ValueError(f"{label!r} has the median {values['median']}, which is not that of its rounds")
    return Entry(label, tuple(rounds), values["runs"])


def _calibration(name, values):
    _check_positive(values["factor"], f"the factor of {name}")
    if values["error"] != 0:
        _check_positive(values["error"], f"the factor's error of {name}")
    return Calibration(values["factor"], values["error"], values["networks"], str(values["fitted_on"]))


def _check_positive(figure, label):
    if type(figure) not in (int, float) or not math.isfinite(figure) or figure <= 0:
        raise ValueError(f"{label!r} has the figure {figure!r}")


def _write_atomically(path, text):
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's files are for their owner alone; tables are shared.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _now():
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
