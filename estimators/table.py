"""Latency tables: one JSON file for a device, a data type and a batch size."""

import errno
import fcntl
import glob
import hashlib
import json
import math
import os
import re
import shlex
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from estimators.base import EstimatorError, Measurement

FORMAT = 1
UNIT = "ms"
LARGEST = 64 * 2**20  # bytes of a table's file
LONGEST_INTEGER = 300  # digits; a longer one is no float
LONGEST_WORDS = 80  # characters of a processor in a file's name
PARTIAL = ".tmp"


@dataclass(frozen=True)
class Entry:
    """The measurements of one signature.

    label: for people. rounds: tuple of the rounds' figures, ms. runs: forward passes in all of them. slowdowns: how
    many times slower than undisturbed the device was in each round, or () where nobody knows.
    """

    label: str
    rounds: tuple
    runs: int
    slowdowns: tuple = ()

    def measurement(self):
        """The Measurement that the rounds make; ms."""
        return Measurement.of(self.rounds, self.runs, median(self.slowdowns or (1.0,)))

    def with_round(self, milliseconds, runs, slowdown=None):
        """The entry with one more round."""
        slowdowns = () if slowdown is None else (*self.slowdowns, slowdown)
        return replace(self, rounds=(*self.rounds, milliseconds), runs=self.runs + runs, slowdowns=slowdowns)


@dataclass(frozen=True)
class Calibration:
    """From parts to whole networks.

    factor: from sums to wholes. error: relative. networks: how many were measured. fitted_on: a digest of the parts of
    the space and of what they cost. costs: {signature: ms} in place of what a part takes by itself, or empty.
    """

    factor: float
    error: float
    networks: int
    fitted_on: str
    costs: dict = field(default_factory=dict)


@dataclass
class Table:
    """A latency table.

    fingerprint: of the device. entries: {signature: Entry}. calibration: {space name: Calibration}.
    yardstick: seconds that a fixed piece of work takes on the undisturbed device, to which all figures are scaled
    (see estimators.yardstick); None where nothing was measured yet.
    conditions: clocks, power mode and load when it was last measured, as far as they can be read ({name: value}).
    created, changed: dates, ISO 8601, UTC. origin: of a table that was not measured here, where it is from, as a JSON
    object with the `file`, and where others made it its `format` (see estimators.foreign, estimators.adapted); None: it
    was measured here.
    """

    fingerprint: dict
    dtype: str = "float32"
    batch: int = 1
    entries: dict = field(default_factory=dict)
    calibration: dict = field(default_factory=dict)
    yardstick: float = None
    conditions: dict = field(default_factory=dict)
    created: str = ""
    changed: str = ""
    origin: dict = None

    def __post_init__(self):
        self.created = self.created or _now()
        self._written, self._written_calibration = {}, {}

    def add_round(self, signature, label, milliseconds, runs, slowdown=None):
        """Put one round's figure under a signature."""
        entry = self.entries.get(signature) or Entry(label, (), 0)
        self.entries[signature] = entry.with_round(milliseconds, runs, slowdown)

    def write(self, path):
        """Put what is new since the table was read or written into its file, beside what other processes put there.

        The table then is as the file. It is there as a whole or as it was before. Raises EstimatorError.
        """
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                if path.exists():
                    self._merge(read(path), path)
                self.changed = _now()
                _write_atomically(path, json.dumps(self._as_json(), indent=1, allow_nan=False) + "\n")
                self._note_as_written()
        except OSError as error:
            raise EstimatorError(
                f"the latency table {path} cannot be written ({error.strerror}): make room or the folder writable, "
                "or give another one; what it holds is kept"
            ) from error

    def _note_as_written(self):
        self._written, self._written_calibration = dict(self.entries), dict(self.calibration)

    def _merge(self, theirs, path):
        """Take over what the file holds; theirs: the Table in it."""
        if (theirs.fingerprint, theirs.dtype, theirs.batch) != (self.fingerprint, self.dtype, self.batch):
            raise EstimatorError(
                f"the latency table {path} became one of another device, data type or batch size while this one was "
                "measured; move it away and measure again"
            )
        entries = dict(theirs.entries)
        for signature in self._written.keys() - self.entries.keys():
            entries.pop(signature, None)
        for signature, entry in self.entries.items():
            before = self._written.get(signature)
            if entry != before:
                entries[signature] = _added(entries.get(signature), entry, before)
        new = {name: one for name, one in self.calibration.items() if one != self._written_calibration.get(name)}
        self.entries, self.calibration = entries, theirs.calibration | new
        self.created = theirs.created
        if theirs.yardstick is not None:
            self.yardstick = theirs.yardstick

    def _as_json(self):
        entries = {}
        for signature, entry in sorted(self.entries.items()):
            measured = entry.measurement()
            entries[signature] = {
                "label": entry.label,
                "median": measured.median,
                "interval": measured.interval,
                "spread": measured.spread,
                "runs": entry.runs,
                "rounds": list(entry.rounds),
                "slowdowns": list(entry.slowdowns),
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
            "conditions": self.conditions,
            "origin": self.origin,
            "calibration": {name: asdict(values) for name, values in sorted(self.calibration.items())},
            "entries": entries,
        }


def file_name(fingerprint, dtype, batch):
    """The name of the table's file: readable, and different for every device, data type and batch size."""
    identity = json.dumps([fingerprint, dtype, batch], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:6]
    processor, backend = (
        re.sub(r"[^a-z0-9]+", "-", str(fingerprint[key]).lower())[:LONGEST_WORDS].strip("-")
        for key in ("processor", "backend")
    )
    return f"{processor}-{backend}-{digest}.json"


def read(path):
    """The Table in a file.

    Raises EstimatorError, in one line, for a file that is missing, damaged, of another format or unit, or
    that has a figure which is no latency.
    """
    path = Path(path)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise _damaged(path, f"is no regular file of at most {LARGEST} bytes")
        content = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_without_duplicates, parse_int=_integer
        )
    except FileNotFoundError as error:
        raise EstimatorError(
            f"there is no latency table {path}: check the path, or measure one with {command()}"
        ) from error
    except OSError as error:
        raise EstimatorError(f"the latency table {path} cannot be read: {error.strerror}") from error
    except EstimatorError:
        raise
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"is not whole JSON ({error})") from error
    if not isinstance(content, dict) or "format" not in content:
        raise _damaged(path, "is not a latency table: it has no 'format'")
    if content["format"] != FORMAT:
        raise _damaged(path, f"has format {content['format']!r}, and this version reads format {FORMAT}")
    if content.get("unit") != UNIT:
        raise _damaged(path, f"has the unit {content.get('unit')!r}, and a latency table is in {UNIT!r}")
    try:
        table = _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged: {error}"
        raise _damaged(path, what) from error
    table._note_as_written()
    return table


def command(space_name="SPACE", backend="DEVICE"):
    """The command that measures what a table lacks."""
    # Quoted: the backend of a table that came from elsewhere stands in a line that people copy into a shell.
    return f"python main.py --config-name=profile space={shlex.quote(space_name)} device={shlex.quote(backend)}"


def _damaged(path, what):
    return EstimatorError(f"the latency table {path} {what}; restore it, or move it away and measure again")


def _added(theirs, ours, before):
    """The entry of the file with what `ours` has more than it had `before`; the latter may be None, and the first."""
    before = before or Entry(ours.label, (), 0)
    if theirs is None or ours.rounds[: len(before.rounds)] != before.rounds:
        return ours
    new = len(before.rounds)
    slowdowns = theirs.slowdowns + ours.slowdowns[new:] if ours.slowdowns else ()
    return Entry(ours.label, theirs.rounds + ours.rounds[new:], theirs.runs + ours.runs - before.runs, slowdowns)


def _without_duplicates(pairs):
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError(f"a key is there twice, of {', '.join(sorted(value)[:5])} and perhaps more")
    return value


def _integer(text):
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer has more than {LONGEST_INTEGER} digits")
    return int(text)


def _from_json(content):
    fingerprint = content["device"]
    if not isinstance(fingerprint, dict) or not {"processor", "backend"} <= fingerprint.keys():
        raise ValueError("'device' has no 'processor' and 'backend'")
    for key, value in fingerprint.items():
        if type(value) is not int or key in ("processor", "backend"):
            _check_word(value, f"device.{key}")
    if type(content["batch"]) is not int or content["batch"] < 1:
        raise ValueError(f"the batch size is {content['batch']!r}")
    for key in ("dtype", "created", "changed"):
        _check_word(content[key], key)
    yardstick = content["yardstick_seconds"]
    if yardstick is not None:
        _check_positive(yardstick, "yardstick_seconds")
    conditions = content.get("conditions", {})
    for key, value in conditions.items():
        if type(value) not in (int, float, bool):
            _check_word(value, f"conditions.{key}")
    origin = content.get("origin")
    if origin is not None and not (isinstance(origin, dict) and str(origin.get("file")).isprintable()):
        raise ValueError("'origin' does not say which file it is from")
    return Table(
        fingerprint=fingerprint,
        dtype=content["dtype"],
        batch=content["batch"],
        entries={signature: _entry(values) for signature, values in content["entries"].items()},
        calibration={name: _calibration(name, values) for name, values in content["calibration"].items()},
        created=content["created"],
        changed=content["changed"],
        yardstick=yardstick,
        conditions=conditions,
        origin=origin,
    )


def _entry(values):
    label = values["label"]
    _check_word(label, "label")
    rounds = values["rounds"]
    if not isinstance(rounds, list) or not rounds:
        raise ValueError(f"{label!r} has no rounds")
    for figure in (*rounds, values["median"], values["runs"]):
        _check_positive(figure, label)
    if type(values["runs"]) is not int:
        raise ValueError(f"{label!r} has {values['runs']!r} runs")
    if not math.isclose(values["median"], median(rounds), rel_tol=1e-9):
        raise ValueError(f"{label!r} has the median {values['median']}, which is not that of its rounds")
    slowdowns = values.get("slowdowns", [])
    for figure in slowdowns:
        _check_positive(figure, f"{label}, slowdowns")
    if len(slowdowns) not in (0, len(rounds)):
        raise ValueError(f"{label!r} has {len(rounds)} rounds and {len(slowdowns)} slowdowns")
    return Entry(label, tuple(rounds), values["runs"], tuple(slowdowns))


def _calibration(name, values):
    _check_positive(values["factor"], f"the factor of {name}")
    if type(values["error"]) is bool or values["error"] != 0:
        _check_positive(values["error"], f"the factor's error of {name}")
    if type(values["networks"]) is not int or values["networks"] < 1:
        raise ValueError(f"the factor of {name} is of {values['networks']!r} networks")
    _check_word(values["fitted_on"], f"'fitted_on' of {name}")
    costs = values.get("costs", {})
    for signature, cost in costs.items():
        _check_positive(cost, f"{signature} in the calibration of {name}")
    return Calibration(values["factor"], values["error"], values["networks"], values["fitted_on"], costs)


def _check_positive(figure, label):
    if type(figure) not in (int, float) or not math.isfinite(figure) or figure <= 0:
        raise ValueError(f"{label!r} has the figure {figure!r}")


def _check_word(value, name):
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{name} is {value!r}, and has to be a word of printable characters")


@contextmanager
def _locked(path):
    """Wait until no other process changes the file, and keep others out."""
    lock = path.with_name(f".{path.name}.lock")
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Whoever had the lock may have removed this file.
            if lock.exists() and os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                break
        except FileNotFoundError:
            pass
        except OSError as error:
            # Some network file systems have no locks; there, as before, one process at a time has to measure.
            if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                os.close(descriptor)
                raise
            break
        os.close(descriptor)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _write_atomically(path, text):
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        # Of a process that was killed here: no other one writes while this one has the lock.
        leftover.unlink(missing_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
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
