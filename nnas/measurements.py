"""Latencies of whole networks that somebody measured elsewhere: a CSV file with one row for each network."""

import csv
import io
from math import isfinite
from statistics import fmean

from nnas.errors import NnasError
from nnas.files import LARGEST_TEXT, read_bytes
from nnas.space import Architecture, are_chosen

FEWEST = 4
MILLISECONDS = {"latency_ms": 1.0, "latency_us": 1e-3, "latency_s": 1e3}


def read_measurements(path, space):
    """The measured architectures of a space, a list of (choices, latency in ms); of repeated ones the mean.

    The file has a header, one of the columns latency_ms, latency_us and latency_s, and either a column `architecture`
    with the paths of architecture files, or a column for each decision; a decision that is not reached stays empty.
    Raises NnasError for what is no such file, for what the space does not have, and for fewer than four networks.
    """
    header, rows = _read(path)
    latencies = [name for name in header if name in MILLISECONDS]
    if len(latencies) != 1 or len(set(header)) < len(header):
        raise NnasError(
            f"{path}: its columns are {', '.join(header)}; it needs one of {', '.join(MILLISECONDS)}, and beside it "
            "'architecture' or the decisions, each once"
        )
    found = {}
    for line, row in rows:
        if len(row) != len(header):
            raise NnasError(f"{path}, line {line}: it has {len(row)} values, and the header has {len(header)}")
        values = dict(zip(header, row, strict=True))
        try:
            milliseconds = _milliseconds(latencies[0], values.pop(latencies[0]))
            choices = _choices(values, space)
        except NnasError as error:
            raise NnasError(f"{path}, line {line}: {error}") from None
        found.setdefault(tuple(choices.items()), []).append(milliseconds)
    if len(found) < FEWEST:
        raise NnasError(f"{path}: it has {len(found)} different networks; measure {FEWEST} at least, better ten")
    return [(dict(choices), fmean(times)) for choices, times in found.items()]


def occurrences(parts, architectures):
    """For each architecture a list of how often each part stands in it: 1 where all that it depends on is chosen.

    parts: objects with `when`, pairs of (decision, option). architectures: a list of choices.
    """
    return [[int(are_chosen(part.when, choices)) for part in parts] for choices in architectures]


def _read(path):
    """(header, [(line number, row), ...]) of a CSV file."""
    what = "a CSV file of measured networks"
    content = read_bytes(path, what, LARGEST_TEXT)
    try:
        # Spreadsheets write a byte order mark.
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header, *rows = [(reader.line_num, [value.strip() for value in row]) for row in reader if row] or [(0, [])]
    except (ValueError, csv.Error) as error:
        raise NnasError(f"{path}: it cannot be read as {what} ({error})") from None
    return header[1], rows


def _milliseconds(column, text):
    try:
        milliseconds = float(text) * MILLISECONDS[column]
    except ValueError:
        milliseconds = 0.0
    if not isfinite(milliseconds) or milliseconds <= 0:
        raise NnasError(f"{column}={text!r}: a latency is a positive number; remove the line, or measure again")
    return milliseconds


def _choices(values, space):
    """The choices of one row, those that are not reached left out."""
    if "architecture" not in values:
        return space.check({decision: option for decision, option in values.items() if option})
    source = values.pop("architecture")
    if values:
        raise NnasError(f"there is 'architecture', and {', '.join(values)} besides: give one or the other")
    architecture = Architecture.load(source)
    if architecture.space != space.name:
        raise NnasError(
            f"{source}: it is an architecture of {architecture.space}, not of {space.name}; add "
            f"space={architecture.space}, or remove the line"
        )
    return space.check(architecture.choices)
