"""Tables as CSV: columns that say what a module is, or its signature, and a value with its unit."""

import csv
import io
import re
from statistics import median

from estimators.base import EstimatorError
from estimators.foreign.base import (
    Figure,
    Format,
    check_rounds,
    deviations,
    known_unit,
    milliseconds,
    shown,
    whole_number,
)
from estimators.foreign.blocks import OPS, Layer, read_shape, show_shape

LAYER = (
    "op",
    "input",
    "output",
    "kernel",
    "stride",
    "expand",
    "pointwise",
    "groups",
    "squeeze",
    "activation",
    "shortcut",
)
COLUMNS = (*LAYER, "signature", "label", "value", "unit", "runs", "rounds", "deviation")
YES, NO = ("1", "true", "yes"), ("0", "false", "no")


class CSV(Format):
    """One row a module. What it is stand in `op` and the columns of a layer (see blocks.Layer; shapes HxWxC, `expand`
    the ratio of middle to input channels), or in `signature`, a signature of ours; empty cells are the defaults.

    columns: {our name of a column: the file's}. ignore: columns of the file that do not matter.
    """

    name = "csv"

    def __init__(self, columns=None, ignore=()):
        unknown = set(columns or {}) - set(COLUMNS)
        if unknown:
            raise EstimatorError(f"format.columns: {', '.join(sorted(unknown))} is none of {', '.join(COLUMNS)}")
        self._names = {file_name: name for name, file_name in (columns or {}).items()}
        self._ignored = set(ignore)

    def read(self, text, unit):
        """See Format."""
        figures, left = [], []
        for number, row in self._rows(text):
            name = row["label"] or f"line {number}"
            if row["unit"] and unit and row["unit"] != unit:
                raise EstimatorError(f"{shown(name)} is in {shown(row['unit'])}, and unit={unit} is asked for")
            figure = _figure(name, row, known_unit(row["unit"] or unit, shown(name)))
            try:
                of = _signature(row) if row["signature"] else _layer(row)
            except EstimatorError as error:
                left.append((name, str(error)))
            else:
                figures.append(Figure(f"line {number}", of, label=name, **figure))
        return figures, left

    def write(self, layers, table):
        """See Format; nothing is left, since what has no words has its signature."""
        given = deviations(table)
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for signature, entry in table.entries.items():
            several = len(entry.rounds) > 1
            row = {
                "label": entry.label,
                "value": repr(median(entry.rounds)),
                "unit": "ms",
                "runs": entry.runs,
                "rounds": " ".join(map(repr, entry.rounds)) if several else "",
                "deviation": repr(given[signature]) if signature in given else "",
            }
            words = layers[signature] and _words(layers[signature])
            writer.writerow(row | (words or {"signature": signature}))
        return text.getvalue() if table.entries else "", []

    def _rows(self, text):
        """(number of the line, {our name: text}) of each row."""
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            header = [self._names.get(name.strip(), name.strip()) for name in next(reader, [])]
            unknown = [name for name in header if name not in COLUMNS and name not in self._ignored]
            if unknown or len(set(header)) < len(header) or "value" not in header:
                raise EstimatorError(
                    f"its columns are {shown(', '.join(header))}; possible are {', '.join(COLUMNS)}, each once, and "
                    "value has to be there; say +format.columns.OURS=THEIRS, or format.ignore=[THEIRS]"
                )
            for row in reader:
                if row and len(row) != len(header):
                    raise EstimatorError(
                        f"line {reader.line_num} has {len(row)} cells, and there are {len(header)} columns"
                    )
                if row:
                    yield (
                        reader.line_num,
                        dict.fromkeys(COLUMNS, "") | dict(zip(header, map(str.strip, row), strict=True)),
                    )
        except csv.Error as error:
            raise EstimatorError(f"line {reader.line_num} is no CSV ({error})") from error


def _figure(name, row, unit):
    value = milliseconds(row["value"], unit, name)
    rounds = tuple(milliseconds(one, unit, name) for one in row["rounds"].split()) or (value,)
    check_rounds(rounds, value, median(rounds), name)
    return {
        "rounds": rounds,
        "runs": whole_number(row["runs"] or 1, name, "the runs"),
        "deviation": milliseconds(row["deviation"], unit, name, zero=True) if row["deviation"] else None,
    }


def _signature(row):
    if not re.fullmatch(r"\w+: v0.*\) -> v[\d.]+.*", row["signature"]):
        raise EstimatorError("its signature is none of ours")
    if any(row[name] for name in LAYER):
        raise EstimatorError("it has a signature and other columns: one of them has to be empty")
    return row["signature"]


def _layer(row):
    if row["op"] not in OPS:
        raise EstimatorError(f"op {row['op'][:80]!r} is not known; there are {', '.join(OPS)}")
    source, output = read_shape(row["input"]), read_shape(row["output"])
    numbers = {name: _number(row, name) for name in ("kernel", "stride", "expand", "groups")}
    flags = {name: _flag(row, name) for name in ("pointwise", "squeeze", "shortcut")}
    return Layer(
        row["op"],
        source,
        output,
        numbers["kernel"],
        numbers["stride"],
        source[0] * numbers["expand"] if row["op"] == "inverted_residual" else None,
        flags["pointwise"],
        numbers["groups"],
        bool(flags["squeeze"]),
        row["activation"] or "relu6",
        flags["shortcut"],
    )


def _number(row, name):
    if row[name] and not re.fullmatch(r"[1-9]\d{0,5}", row[name]):
        raise EstimatorError(f"{name} {row[name][:40]!r} is no whole number from 1 on")
    return int(row[name] or 1)


def _flag(row, name):
    if row[name].lower() not in ("", *YES, *NO):
        raise EstimatorError(f"{name} {row[name][:40]!r} is neither {YES[0]} nor {NO[0]}")
    return None if not row[name] else row[name].lower() in YES


def _words(layer):
    """The cells that say what a layer is, or None where they cannot."""
    words = {
        "op": layer.op,
        "input": show_shape(layer.input),
        "output": show_shape(layer.output),
    }
    if layer.op in ("inverted_residual", "convolution"):
        words |= {"kernel": layer.kernel, "stride": layer.stride, "activation": layer.activation}
    if layer.op == "inverted_residual":
        words |= {"expand": layer.middle // layer.input[0], "groups": layer.groups}
        words |= {name: int(getattr(layer, name)) for name in ("pointwise", "squeeze", "shortcut")}
    again = _layer({name: str(words.get(name, "")) for name in LAYER})
    return words if again == layer else None
