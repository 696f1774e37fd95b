"""Measured networks in a CSV file."""

from dataclasses import dataclass

import pytest

from nnas.errors import NnasError
from nnas.measurements import occurrences, read_measurements
from nnas.space import Architecture, Decision, Site, Space

SPACE = Space(
    "small",
    (
        Decision("block", ("k3", "k5", "deep"), (Site((4, 8, 8)),)),
        Decision("inner", ("k3", "k5"), (Site((4, 8, 8), (("block", "deep"),)),)),
        Decision("last", ("k1", "k3"), (Site((4, 8, 8)),)),
    ),
)
ROWS = ["block,inner,last,latency_ms", "k3,,k1,1.5", "k5,,k1,2", "deep,k3,k1,3", "deep,k5,k3,4.5"]
FOUND = [
    ({"block": "k3", "last": "k1"}, 1.5),
    ({"block": "k5", "last": "k1"}, 2.0),
    ({"block": "deep", "inner": "k3", "last": "k1"}, 3.0),
    ({"block": "deep", "inner": "k5", "last": "k3"}, 4.5),
]


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(lines, encoding="utf-8"):
        (tmp_path / "m.csv").write_text("\n".join(lines) + "\n", encoding=encoding)
        return read_measurements("m.csv", SPACE)

    return read


def changed(line, text):
    return [*ROWS[:line], text, *ROWS[line + 1 :]]


def test_a_column_for_each_decision(read):
    assert read(ROWS) == FOUND


def test_architecture_files(read):
    for number, (choices, _) in enumerate(FOUND):
        Architecture("small", choices, {}).save(f"{number}.json")
    rows = [f"{latency},{number}.json" for number, (_, latency) in enumerate(FOUND)]
    assert read(["latency_ms,architecture", *rows]) == FOUND


@pytest.mark.parametrize(("column", "factor"), [("latency_us", 1000), ("latency_s", 0.001)])
def test_units(read, column, factor):
    rows = [f"{start},{float(latency) * factor}" for start, latency in (row.rsplit(",", 1) for row in ROWS[1:])]
    found = read([ROWS[0].replace("latency_ms", column), *rows])
    assert [latency for _, latency in found] == pytest.approx([latency for _, latency in FOUND], rel=1e-12)


def test_a_network_that_was_measured_twice_counts_once_with_the_mean(read):
    assert read([*ROWS, "k3,,k1,2.5"]) == [(FOUND[0][0], 2.0), *FOUND[1:]]


def test_what_spreadsheets_write(read):
    assert read([", ".join(ROWS[0].split(",")), '"k3","",k1," 1.5"', "", *ROWS[2:]], "utf-8-sig") == FOUND


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "needs one of latency_ms, latency_us, latency_s"),
        (ROWS[:1], "0 different networks"),
        (ROWS[:4], "3 different networks; measure 4 at least"),
        ([*ROWS[:4], ROWS[3]], "3 different networks"),
        (changed(0, "block,inner,last,milliseconds"), "needs one of latency_ms"),
        (changed(0, "block,latency_s,last,latency_ms"), "needs one of latency_ms"),
        (changed(0, "block,inner,inner,latency_ms"), "each once"),
        (changed(0, "block,iner,last,latency_ms"), "line 4: .*no decision 'iner', did you mean 'inner'"),
        (changed(2, "k7,,k1,2"), "line 3: block='k7': the space small has k3, k5, deep"),
        (changed(2, ",,k1,2"), "line 3: .*no choice for block"),
        (changed(3, "deep,,k1,3"), "line 4: .*no choice for inner"),
        (changed(2, "k5,,k1"), "line 3: it has 3 values, and the header has 4"),
        (changed(2, "k5,,k1,2,2"), "line 3: it has 5 values"),
        (changed(2, "k5,,k1,0"), "line 3: latency_ms='0': a latency is a positive number"),
        (changed(2, "k5,,k1,-1"), "line 3: latency_ms='-1'"),
        (changed(2, "k5,,k1,nan"), "line 3: latency_ms='nan'"),
        (changed(2, "k5,,k1,inf"), "line 3: latency_ms='inf'"),
        (changed(2, "k5,,k1,"), "line 3: latency_ms=''"),
        (changed(2, "k5,,k1,fast"), "line 3: latency_ms='fast'"),
        (changed(2, 'k5,,"k1,2'), "cannot be read as a CSV file"),
        (["architecture,block,latency_ms", "a.json,k3,1"], "line 2: .*'architecture', and block besides"),
        (["architecture,latency_ms", "a.json,1"], "line 2: a.json: there is no such file"),
        (["architecture,latency_ms", "other.json,1"], "line 2: other.json: .*of large, not of small; add space=large"),
    ],
)
def test_bad_input_is_one_line(read, lines, says):
    Architecture("large", {}, {}).save("other.json")
    with pytest.raises(NnasError, match=says) as caught:
        read(lines)
    assert str(caught.value).startswith("m.csv") and "\n" not in str(caught.value)


def test_files_that_are_none(read, tmp_path):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00block")
    for name, says in (("absent.csv", "no such file"), (".", "regular file"), ("binary.csv", "cannot be read")):
        with pytest.raises(NnasError, match=says):
            read_measurements(name, SPACE)


def test_occurrences():
    @dataclass
    class Part:
        when: tuple

    parts = [Part(()), Part((("block", "deep"), ("inner", "k3"))), Part((("last", "k1"),))]
    choices = [{"block": "k3", "last": "k1"}, {"block": "deep", "inner": "k3", "last": "k3"}]
    assert occurrences(parts, choices) == [[1, 0, 1], [1, 1, 0]]
