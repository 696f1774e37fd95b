"""Latency tables on disk."""

import fcntl
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import EstimatorError
from estimators import table as tables
from estimators.table import Calibration, Table

HERE = {"processor": "AMD EPYC (family 25, model 1)", "backend": "cpu", "nnabla": "1.39.0", "threads": 1}


@pytest.fixture
def table():
    table = Table(HERE, batch=2)
    for figure in (1.0, 3.0, 2.0):
        table.add_round("float32: a", "block a", figure, 10)
    table.add_round("float32: b", "block b", 0.5, 20)
    table.calibration["space"] = Calibration(1.17, 0.01, 5, "abc")
    return table


@pytest.fixture
def path(table, tmp_path):
    path = tmp_path / "tables" / "device.json"
    table.write(path)
    return path


def test_round_trip(table, path):
    assert tables.read(path) == table


def test_where_a_table_is_from_is_kept_and_may_be_missing(table, path):
    assert tables.read(path).origin is None
    table.origin = {"file": "theirs.yaml", "not_taken": [["a", "why"]]}
    table.write(path)
    assert tables.read(path) == table
    content = json.loads(path.read_text())
    del content["origin"]
    path.write_text(json.dumps(content))
    assert tables.read(path).origin is None


def test_the_file_says_what_it_holds(path):
    content = json.loads(path.read_text())
    assert content["unit"] == "ms" and content["device"] == HERE and content["batch"] == 2
    assert content["entries"]["float32: a"] == {
        "label": "block a", "median": 2.0, "interval": None, "spread": 1.0, "runs": 30, "rounds": [1.0, 3.0, 2.0],
        "slowdowns": [],
    }  # fmt: skip


def test_a_later_write_keeps_the_date_of_creation(path):
    again = tables.read(path)
    created = again.created
    again.write(path)
    assert tables.read(path).created == created


def test_a_write_that_fails_leaves_the_old_file_alone(table, path, monkeypatch):
    before = path.read_text()
    monkeypatch.setattr(tables.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    table.add_round("float32: c", "block c", 1.0, 1)
    with pytest.raises(EstimatorError, match="No space left"):
        table.write(path)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_an_error(table, path):
    with pytest.raises(EstimatorError, match="cannot be written.*give another"):
        table.write(path / "below" / "a_file.json")


def damage(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 99}, "format 99"),
        ({"unit": "s"}, "'s'"),
        ({"device": "a laptop"}, "processor"),
        ({"batch": 0}, "batch size is 0"),
        ({"origin": "by mail"}, "origin"),
        ({"origin": {"file": "a\nb"}}, "origin"),
        ({"entries": []}, "damaged"),
        ({"entries": {"x": {"label": "x"}}}, "lacks 'rounds'"),
        ({"calibration": {"space": {"factor": -1, "error": 0, "networks": 5}}}, "factor of space"),
    ],
)
def test_a_damaged_table_is_one_clear_line(path, changes, says):
    damage(path, **changes)
    with pytest.raises(EstimatorError, match=says) as caught:
        tables.read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["device", "dtype", "batch", "created", "entries", "calibration"])
def test_a_table_without_a_field_says_which(path, key):
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))
    with pytest.raises(EstimatorError, match=f"lacks '{key}'"):
        tables.read(path)


@pytest.mark.parametrize("figure", [0, -1.0, float("nan"), float("inf"), "fast", None, True])
@pytest.mark.parametrize("place", ["median", "rounds"])
def test_a_figure_that_is_no_latency_is_refused(path, figure, place):
    entry = {"label": "block a", "median": 1.0, "spread": 0.0, "runs": 1, "rounds": [1.0]}
    entry[place] = [1.0, figure] if place == "rounds" else figure
    damage(path, entries={"a": entry})
    with pytest.raises(EstimatorError, match="block a.*figure"):
        tables.read(path)


def test_an_entry_without_rounds_is_refused(path):
    """What was ended before it measured anything has no mean, whatever stands as its median."""
    damage(path, entries={"a": {"label": "block a", "median": 1.0, "spread": 0.0, "runs": 1, "rounds": []}})
    with pytest.raises(EstimatorError, match="block a.*no rounds"):
        tables.read(path)


def test_a_half_written_table_is_refused(path):
    path.write_text(path.read_text()[:200])
    with pytest.raises(EstimatorError, match="not whole JSON"):
        tables.read(path)


def test_a_missing_table_says_how_to_measure_one(tmp_path):
    with pytest.raises(EstimatorError, match="no latency table.*--config-name=profile"):
        tables.read(tmp_path / "absent.json")


def test_file_names_are_readable_and_tell_devices_apart():
    name = tables.file_name(HERE, "float32", 1)
    assert name.startswith("amd-epyc-family-25-model-1-cpu-") and name.endswith(".json")
    assert name == tables.file_name(dict(reversed(HERE.items())), "float32", 1)
    others = [(HERE | {"nnabla": "1.40"}, "float32", 1), (HERE, "float16", 1), (HERE, "float32", 2)]
    assert len({name, *(tables.file_name(*other) for other in others)}) == 4


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(processor=st.text(), backend=st.text())
def test_no_name_of_a_device_leaves_the_folder(processor, backend):
    name = tables.file_name(HERE | {"processor": processor, "backend": backend}, "float32", 1)
    assert re.fullmatch(r"[a-z0-9-]*-[0-9a-f]{6}\.json", name) and len(name) < 200


def test_the_command_in_an_error_is_safe_to_copy():
    assert "device='cpu; rm -rf x'" in tables.command("s", "cpu; rm -rf x")


# Several processes fill one table


def test_a_write_adds_to_what_others_wrote_meanwhile(table, path):
    ours, theirs = tables.read(path), tables.read(path)
    theirs.add_round("float32: a", "block a", 5.0, 10)
    theirs.add_round("float32: theirs", "block c", 1.0, 10)
    theirs.calibration["theirs"] = Calibration(1.0, 0, 5, "t")
    theirs.write(path)
    ours.add_round("float32: a", "block a", 4.0, 7)
    ours.add_round("float32: ours", "block d", 2.0, 10)
    ours.calibration["space"] = Calibration(1.2, 0.01, 5, "new")
    del ours.entries["float32: b"]
    ours.write(path)
    merged = tables.read(path)
    assert merged == ours
    assert merged.entries["float32: a"] == tables.Entry("block a", (1.0, 3.0, 2.0, 5.0, 4.0), 47)
    assert merged.entries.keys() == {"float32: a", "float32: theirs", "float32: ours"}
    assert merged.calibration == {"space": Calibration(1.2, 0.01, 5, "new"), "theirs": Calibration(1.0, 0, 5, "t")}
    # What was written once is not added again.
    ours.write(path)
    assert tables.read(path).entries == merged.entries


def test_slowdowns_go_with_their_rounds(path):
    ours, theirs = tables.read(path), tables.read(path)
    for table, first in ((theirs, 1.0), (ours, 3.0)):
        for number in range(7):
            table.add_round("float32: new", "block", 2.0, 1, first + number / 10)
    theirs.write(path)
    ours.write(path)
    ours.add_round("float32: new", "block", 2.0, 1, 5.0)
    ours.write(path)
    entry = tables.read(path).entries["float32: new"]
    assert entry.slowdowns == (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6, 5.0)
    assert entry.measurement().slowdown == 3.0 and entry.measurement().interval == pytest.approx((2 / 1.2, 2 * 1.2))


def test_the_reference_of_the_first_process_holds(path):
    first, second = tables.read(path), tables.read(path)
    first.yardstick, second.yardstick = 1e-4, 2e-4
    first.write(path)
    second.write(path)
    assert second.yardstick == tables.read(path).yardstick == 1e-4


def test_a_table_that_was_damaged_meanwhile_is_not_overwritten(table, path):
    path.write_text("half a ta")
    with pytest.raises(EstimatorError, match="not whole JSON"):
        table.write(path)
    assert path.read_text() == "half a ta" and list(path.parent.iterdir()) == [path]


def test_a_table_that_became_another_devices_is_not_overwritten(table, path):
    path.unlink()
    Table(HERE | {"processor": "Another"}, batch=2).write(path)
    before = path.read_text()
    with pytest.raises(EstimatorError, match="another device"):
        table.write(path)
    assert path.read_text() == before


WRITER = """
import sys
from estimators import table as tables
for number in range(int(sys.argv[3])):
    table = tables.read(sys.argv[1])
    table.add_round("shared", "shared", 1.0, 1)
    table.add_round(f"{sys.argv[2]}{number}", "own", 1.0, 1)
    table.write(sys.argv[1])
"""


def test_two_processes_lose_nothing_of_each_other(path):
    count = 40
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name, str(count)]) for name in ("x", "y")]
    # A reader meanwhile sees whole tables only, with never less in them.
    seen = [0]
    while any(writer.poll() is None for writer in writers):
        seen.append(len(tables.read(path).entries))
    assert seen == sorted(seen)
    assert [writer.returncode for writer in writers] == [0, 0]
    table = tables.read(path)
    assert table.entries.keys() >= {f"{name}{number}" for name in "xy" for number in range(count)}
    assert table.entries["shared"].rounds == (1.0,) * 2 * count
    assert list(path.parent.iterdir()) == [path]


def test_a_write_waits_for_the_lock_and_removes_what_a_killed_one_left(table, path):
    lock = path.with_name(f".{path.name}.lock")
    (path.parent / f".{path.name}.abc.tmp").write_text("half")
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path, "x", "1"])
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(2)
    assert writer.wait(20) == 0 and "x0" in tables.read(path).entries
    assert list(path.parent.iterdir()) == [path]


def test_a_clock_that_was_set_back_changes_nothing_but_dates(path, monkeypatch):
    table = tables.read(path)
    monkeypatch.setattr(tables, "_now", lambda: "1999-01-01T00:00:00+00:00")
    table.add_round("float32: a", "block a", 4.0, 7)
    table.write(path)
    again = tables.read(path)
    assert again.entries["float32: a"].rounds == (1.0, 3.0, 2.0, 4.0)
    assert again.created == table.created > again.changed
