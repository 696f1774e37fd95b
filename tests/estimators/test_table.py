"""Latency tables on disk."""

import json

import pytest

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
        "label": "block a", "median": 2.0, "spread": 1.0, "runs": 30, "rounds": [1.0, 3.0, 2.0],
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
