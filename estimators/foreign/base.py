"""Between the tables of others and ours: units, figures, signatures, and what cannot be taken over."""

import hashlib
import os
import stat
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from math import isclose, isfinite
from pathlib import Path

from estimators import table as tables
from estimators.base import EstimatorError
from estimators.foreign.blocks import Layer, recognized

LARGEST = 16 * 2**20  # bytes of a file
SHOWN = 5
# Powers of ten, so that a figure in seconds becomes the same float as one in milliseconds.
UNITS = {"s": 3, "ms": 0, "us": -3, "ns": -6}


@dataclass(frozen=True)
class Figure:
    """One figure of a foreign table.

    name: what the file calls it. of: a Layer, or a signature of ours. rounds: ms, their median is the figure.
    runs: forward passes behind it. deviation: the standard deviation that the file gives, ms, or None.
    label: for people; None: the name.
    """

    name: str
    of: object
    rounds: tuple
    runs: int = 1
    deviation: float = None
    label: str = None


class Format(ABC):
    """A file format of tables.

    name: of the format. unit: of its figures where nobody says, or None. repeats: whether figures of one module that
    differ are measurements of it, made anew for every layer; else they are an error.
    """

    name: str
    unit: str = None
    repeats: bool = False

    @abstractmethod
    def read(self, text, unit):
        """(figures, left): the Figures of a text, and a list of (name, why) of what it holds besides.

        unit: of the figures, one of UNITS, or None for that of the format. Raises EstimatorError, whose text goes
        behind the name of the file, for a figure that is no latency and for what is not of this format.
        """

    @abstractmethod
    def write(self, layers, table):
        """(text, left): the text of a table in ms, and (label, why) of the entries that the format has no words for.

        layers: {signature: Layer, or None where it is none}. Raises EstimatorError.
        """


def import_table(source, form, unit, processor, backend, batch=1, dtype="float32", came_from=None):
    """(Table, left) of a file of others; left: a list of (name, why) of what is not taken over.

    form: a Format. unit: of the file's figures; None: that of the format. processor, backend: on what was measured.
    came_from: where the file was had, for people. Raises EstimatorError, in one line, for a file that is not of the
    format, for a figure that is no latency, and for two figures of one module that disagree.
    """
    if unit is not None and unit not in UNITS:
        raise EstimatorError(f"unit={unit!r}: a latency is in one of {', '.join(UNITS)}")
    for name, value in (("processor", processor), ("backend", backend), ("came_from", came_from or "-")):
        if not isinstance(value, str) or not value or not value.isprintable():
            raise EstimatorError(f"{name}={value!r}: it must be words of printable characters")
    if type(batch) is not int or batch < 1:
        raise EstimatorError(f"batch={batch!r}: it must be a whole number from 1 on")
    content = _content(source)
    try:
        figures, left = form.read(content.decode("utf-8-sig"), unit)
        by_signature, unbuilt = _by_signature(figures, batch, dtype)
        entries = {text: _entry(group, form.repeats) for text, group in by_signature.items()}
    except UnicodeDecodeError as error:
        raise EstimatorError(f"{source}: it is no text in UTF-8; give a table in the format {form.name}") from error
    except EstimatorError as error:
        raise EstimatorError(f"{source}: {error}") from error
    left = left + unbuilt
    if not entries:
        raise EstimatorError(
            f"{source}: in the format {form.name} none of its modules can be taken over, of {left_text(left)}; choose "
            "another format"
        )
    origin = {
        "format": form.name,
        "file": Path(source).name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "unit": unit or form.unit,
        "came_from": came_from,
        "not_taken": left,
        "deviations": {
            text: group[0].deviation for text, group in by_signature.items() if group[0].deviation is not None
        },
    }
    table = tables.Table({"processor": processor, "backend": backend}, dtype, batch, entries, origin=origin)
    return table, left


def export_table(table, form):
    """(text, left) of a Table in the Format `form`; left: a list of (label, why). Raises EstimatorError."""
    layers = {text: recognized(text, table.batch, table.dtype) for text in table.entries}
    text, left = form.write(layers, table)
    if not text:
        raise EstimatorError(f"the format {form.name} has no words for any of the modules, of {left_text(left)}")
    return text, left


def write_new(path, write):
    """Make a file that is not there yet, as a whole or not at all; write: a function of the path to write to."""
    path = Path(path)
    if path.exists():
        raise EstimatorError(f"{path} is there already, and is kept: give another name, or move it away")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            temporary = Path(folder) / path.name
            write(temporary)
            os.replace(temporary, path)
    except OSError as error:
        raise EstimatorError(f"{path} cannot be written ({error.strerror}): give another path") from error


def milliseconds(value, unit, name, zero=False):
    """A number, or its text, as ms: above 0, or zero: from 0 on. Raises EstimatorError."""
    try:
        number = float(Decimal(str(value).strip()).scaleb(UNITS[unit]))
    except ArithmeticError:
        number = None
    if number is None or not isfinite(number) or number < 0 or (number == 0 and not zero):
        least = "from 0 on" if zero else "above 0"
        raise EstimatorError(f"{shown(name)} has the figure {shown(value)}, and it must be a number {least}")
    return number


def whole_number(value, name, what):
    """A number from 1 on, or its text. Raises EstimatorError."""
    if not str(value).isascii() or not str(value).isdigit() or not 1 <= len(str(value)) <= 18 or int(value) < 1:
        raise EstimatorError(f"{shown(name)} has {what} {shown(value)}, and it must be a whole number from 1 on")
    return int(value)


def known_unit(unit, name):
    """One of UNITS. Raises EstimatorError."""
    if unit not in UNITS:
        raise EstimatorError(
            f"{name} has the unit {shown(unit)}; a latency is in one of {', '.join(UNITS)}"
            if unit
            else f"{name} has no unit; add unit= with one of {', '.join(UNITS)}"
        )
    return unit


def check_rounds(rounds, figure, expected, name):
    """Raise EstimatorError where a file's figure is not what its own rounds say; expected: by their rule."""
    if not isclose(figure, expected, rel_tol=1e-6):
        raise EstimatorError(
            f"{shown(name)} has the figure {figure:g} ms, but its {len(rounds)} rounds {expected:g} ms"
        )


def shown(value):
    """Words of a file for a message: short, and in one line."""
    text = str(value)
    return repr(text if len(text) <= 120 else f"{text[:120]}…")


def deviations(table):
    """{signature: the standard deviation that others gave, ms} of a Table."""
    found = (table.origin or {}).get("deviations")
    return found if isinstance(found, dict) else {}


def left_text(left):
    """How many are in a list of (name, why), and the first of them, for a message."""
    first = [f"{shown(name)} ({why})" for name, why in left[:SHOWN]]
    more = [f"and {len(left) - SHOWN} more"] if len(left) > SHOWN else []
    return f"{len(left)}" + (": " if left else "") + "; ".join(first + more)


def repeated_text(table):
    """One line on modules of a Table that have several figures, whose median counts; an empty string if none has."""
    several = [entry.rounds for entry in table.entries.values() if len(entry.rounds) > 1]
    apart = max((max(rounds) / min(rounds) - 1 for rounds in several), default=0)
    return (
        f"{len(several)} modules have several figures, up to {apart:.0%} apart; their median counts" if several else ""
    )


def _content(source):
    try:
        status = os.stat(source)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise EstimatorError(f"{source}: it is no regular file of at most {LARGEST} bytes")
        return Path(source).read_bytes()
    except OSError as error:
        raise EstimatorError(f"{source}: it cannot be read ({error.strerror}); check source=") from error


def _by_signature(figures, batch, dtype):
    """({signature: Figures}, a list of (name, why it cannot be built))."""
    found, unbuilt = {}, []
    for figure in figures:
        try:
            text = figure.of.signature(batch, dtype) if isinstance(figure.of, Layer) else figure.of
            if not text.startswith(f"{dtype}: ") or f"x0({batch}," not in text:
                raise EstimatorError(f"its signature is not of {dtype} and batch size {batch}")
            if not f"{text}{figure.label or figure.name}".isprintable():
                raise EstimatorError("its name has characters that cannot be shown")
        except EstimatorError as error:
            unbuilt.append((figure.name, str(error)))
            continue
        found.setdefault(text, []).append(figure)
    return found, unbuilt


def _entry(group, repeats):
    """The table's entry of all figures of one module."""
    first = group[0]
    label = first.label or first.name
    other = next((figure for figure in group if figure.rounds != first.rounds), None)
    if other is None:
        return tables.Entry(label, first.rounds, first.runs)
    if not repeats:
        raise EstimatorError(
            f"{shown(first.name)} and {shown(other.name)} are the same module, but have {_median(first):g} and "
            f"{_median(other):g} ms; keep the right one of them"
        )
    rounds = tuple(one for figure in group for one in figure.rounds)
    return tables.Entry(label, rounds, sum(figure.runs for figure in group))


def _median(figure):
    return tables.Entry("", figure.rounds, figure.runs).measurement().median
