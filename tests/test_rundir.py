"""The files of a run: whose they are, and what a resumed run finds."""

import os
import subprocess
import sys

import numpy as np
import pytest
import yaml

from nnas.errors import NnasError
from nnas.files import write_text
from nnas.rundir import RunFolder, find_run, start_run, working_in

CONFIG = {
    "command": "search",
    "seed": 0,
    "bound_ms": None,
    "space": {"_target_": "x.Y", "stages": [{"channels": 4, "blocks": 2}], "rate": 1e-05},
    "search": {"epochs": 3, "solver": {"decay": 1.0e-4, "clip": 5.0}},
    "constraints": {},
    "name": "ünï: #code",
}


INPUTS = {"data": {"samples": 3}, "weights": None}
GROWING = {"search.epochs": "search", "train.epochs": "train"}


def open_run(path, command, config, inputs=INPUTS):
    run = find_run(path, command, config, GROWING)
    resumed = run.config.exists()
    with working_in(run):
        start_run(run, config, inputs, GROWING)
    return run, resumed


def changed(**changes):
    return {**CONFIG, **changes}


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "run", "search", CONFIG)[0]


def record(phase, epoch):
    return {"phase": phase, "epoch": epoch, "loss": 0.1 * epoch}


def test_a_new_folder_keeps_the_configuration(tmp_path):
    run, resumed = open_run(tmp_path / "deep" / "run", "search", CONFIG)
    assert not resumed and run.path == tmp_path / "deep" / "run"
    assert yaml.safe_load(run.config.read_text(encoding="utf-8")) == CONFIG
    assert set(run.path.iterdir()) == {run.config, run.inputs}


def test_the_same_configuration_is_resumed(tmp_path, run):
    before = run.config.read_bytes()
    again, resumed = open_run(str(tmp_path / "run"), "search", dict(reversed(CONFIG.items())))
    assert resumed and again.path == run.path and run.config.read_bytes() == before


@pytest.mark.parametrize(
    "config, shown",
    [
        (changed(seed=1), "seed (there 0, now 1)"),
        (changed(seed="0"), "seed"),
        (changed(bound_ms=0.2), "bound_ms (there None, now 0.2)"),
        (changed(search={"epochs": 2, "solver": {"decay": 1.0e-4, "clip": 5.0}}), "search.epochs (there 3, now 2)"),
        (changed(search={"epochs": 3, "solver": {"decay": 1.0e-4}}), "search.solver.clip (there 5.0, now absent)"),
        (changed(extra=None), "extra (there absent, now None)"),
        (changed(command="train"), "command (there search, now train)"),
        (
            changed(space={"_target_": "x.Y", "stages": [{"channels": 4, "blocks": 3}], "rate": 1e-05}),
            "space.stages",
        ),
    ],
)
def test_a_run_of_another_configuration_is_refused(tmp_path, run, config, shown):
    before = run.config.read_bytes()
    with pytest.raises(NnasError) as caught:
        open_run(tmp_path / "run", "search", config)
    text = str(caught.value)
    assert shown in text and str(tmp_path / "run") in text and "another configuration" in text and "\n" not in text
    assert run.config.read_bytes() == before


def test_all_differences_are_named_up_to_a_few(tmp_path, run):
    with pytest.raises(NnasError) as caught:
        open_run(tmp_path / "run", "search", changed(seed=3, bound_ms=1.0, command="train"))
    assert all(key in str(caught.value) for key in ("seed", "bound_ms", "command"))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(NnasError, match="files that are not of a run"):
        open_run(tmp_path / "mine", "search", CONFIG)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    assert open_run(tmp_path / "empty", "search", CONFIG)[1] is False


@pytest.mark.parametrize(
    "content", [b"", b"a: [", b"\xff\xfe", b"- 1\n- 2\n", b"just words", b"!!python/object:os.system x"]
)
def test_a_damaged_configuration_is_refused(tmp_path, run, content):
    run.config.write_bytes(content)
    with pytest.raises(NnasError, match="config.yaml|another configuration") as caught:
        open_run(tmp_path / "run", "search", CONFIG)
    assert "\n" not in str(caught.value)
    assert run.config.read_bytes() == content


@pytest.mark.parametrize("path", ["file", "file/run"])
def test_a_file_in_the_way_is_an_error(tmp_path, path):
    (tmp_path / "file").write_text("x")
    with pytest.raises((NnasError, OSError)):
        open_run(tmp_path / path, "search", CONFIG)
    assert (tmp_path / "file").read_text() == "x"


def test_a_run_that_was_killed_as_it_began_begins_again(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.k2j4abcd.partial").write_text("comm")
    run, resumed = open_run(tmp_path / "run", "search", CONFIG)
    assert not resumed and {path.name for path in run.path.iterdir()} == {"config.yaml", "inputs.json"}


def test_folders_without_a_name_of_their_own_are_all_new(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {open_run(None, "search", CONFIG)[0].path for _ in range(3)}
    assert len(paths) == 3 and all(path.parent.name == "runs" and "search" in path.name for path in paths)


def test_records_round_trip(run):
    assert run.records() == []
    for epoch in range(3):
        run.append(record("warmup", epoch))
    assert run.records() == [record("warmup", epoch) for epoch in range(3)]


def test_a_half_written_last_line_is_left_out(run):
    for epoch in range(3):
        run.append(record("warmup", epoch))
    whole = run.metrics.read_text()
    last = len(whole.splitlines(keepends=True)[-1])
    for cut in range(1, last):
        run.metrics.write_text(whole[:-cut])
        assert run.records() == [record("warmup", 0), record("warmup", 1)], cut


def test_appending_after_a_half_written_line_loses_no_record(run):
    run.append(record("warmup", 0))
    with open(run.metrics, "a") as file:
        file.write('{"phase": "war')
    run.append(record("warmup", 1))
    assert run.records() == [record("warmup", 0), record("warmup", 1)]


def test_a_damaged_line_in_the_middle_is_named(run):
    write_text(run.metrics, '{"phase": "warmup"}\n{"pha\n{"phase": "search"}\n')
    with pytest.raises(NnasError, match="metrics.jsonl"):
        run.records()


def test_records_newer_than_the_checkpoint_are_dropped(run):
    for epoch in range(2):
        run.append(record("warmup", epoch))
    run.save_checkpoint("search", {"epoch": 2, "weights": np.ones(3)})
    run.append(record("warmup", 2))
    with open(run.metrics, "a") as file:
        file.write('{"phase": "war')
    state, notes = run.load_checkpoint("search")
    assert state["epoch"] == 2 and notes == []
    np.testing.assert_array_equal(state["weights"], np.ones(3))
    assert run.records() == [record("warmup", 0), record("warmup", 1)]
    run.append(record("search", 2))
    assert run.metrics.read_text().count("\n") == 3 and run.records()[-1] == record("search", 2)


def test_a_damaged_newest_checkpoint_takes_its_records_along(run):
    for epoch in range(3):
        run.append(record("warmup", epoch))
        run.save_checkpoint("search", {"epoch": epoch + 1})
    newest = sorted(run.checkpoint("search").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-50])
    state, notes = run.load_checkpoint("search")
    assert state == {"epoch": 2} and len(notes) == 1 and newest.name in notes[0]
    assert run.records() == [record("warmup", 0), record("warmup", 1)]


def test_a_checkpoint_of_another_phase_is_not_taken(run):
    run.append(record("search", 1))
    run.save_checkpoint("search", {"epoch": 1})
    run.append({"phase": "derived"})
    run.append(record("train", 1))
    assert run.load_checkpoint("train")[0] is None
    run.forget_records_of(("train",))
    assert [one["phase"] for one in run.records()] == ["search", "derived"]
    assert run.load_checkpoint("search")[0] == {"epoch": 1}


def test_records_of_a_phase_that_starts_anew_are_forgotten(run):
    for one in (record("warmup", 1), record("search", 2), {"phase": "derived"}, record("train", 1)):
        run.append(one)
    run.forget_records_of(("warmup", "search"))
    assert run.records() == []


def test_a_phase_that_starts_anew_keeps_its_new_checkpoints(run):
    """After the later phases' checkpoints, whose numbers are higher: say, someone removed architecture.json."""
    for number in (7, 8):
        run.save_checkpoint("train", {"epoch": number})
    assert run.load_checkpoint("search")[0] is None
    run.forget_records_of(("warmup", "search"))
    run.append(record("warmup", 1))
    run.save_checkpoint("search", {"epoch": 1})
    assert run.load_checkpoint("search")[0] == {"epoch": 1}


def test_the_names_of_the_files(tmp_path):
    names = {path.name for key, path in vars(RunFolder(tmp_path)).items() if key not in ("path", "writes")}
    assert names >= {
        "config.yaml",
        "space.json",
        "costs.json",
        "metrics.jsonl",
        "architecture.json",
        "weights.h5",
        "network.nnp",
        "summary.json",
        "checkpoint",
    }


def longer(phase, **epochs):
    return changed(search={**CONFIG["search"], **({"epochs": 5} if phase == "search" else {})}, **epochs)


def finished(run):
    """Fill a folder with what a run leaves; returns {name: content} of its results."""
    for one in (record("costs", 0), record("search", 1), {"phase": "derived"}, record("train", 1)):
        run.append(one)
    run.save_checkpoint("search", {"epoch": 3})
    run.save_checkpoint("train", {"epoch": 1})
    results = (run.architecture, run.supernet, run.weights, run.network, run.summary)
    for path in results:
        write_text(path, path.name)
    return {path.name: path.read_bytes() for path in results}


def test_a_search_goes_on_to_more_epochs_and_keeps_what_the_fewer_led_to(run):
    results = finished(run)
    again, resumed = open_run(run.path, "search", longer("search"))
    assert resumed and yaml.safe_load(again.config.read_text(encoding="utf-8")) == longer("search")
    kept = {path.name: path.read_bytes() for path in (run.earlier / "1").iterdir() if path.name in results}
    assert kept == results
    assert (run.earlier / "1" / "train").is_dir() and (run.earlier / "1" / "metrics.jsonl").read_text().count("\n") == 4
    assert not any((run.path / name).exists() for name in results)
    assert run.load_checkpoint("search")[0] == {"epoch": 3} and run.load_checkpoint("train")[0] is None
    assert [one["phase"] for one in run.records()] == ["costs", "search"]
    open_run(run.path, "search", longer("search"))
    assert len(list(run.earlier.iterdir())) == 1


def test_a_training_goes_on_to_more_epochs_and_its_search_stays(tmp_path):
    config = changed(train={"epochs": 1})
    run, _ = open_run(tmp_path / "run", "search", config)
    results = finished(run)
    open_run(run.path, "search", changed(train={"epochs": 2}))
    assert {path.name for path in (run.earlier / "1").iterdir()} == {
        *("weights.h5", "network.nnp", "summary.json", "metrics.jsonl")
    }
    assert run.architecture.read_bytes() == results["architecture.json"]
    assert run.load_checkpoint("train")[0] == {"epoch": 1}
    with pytest.raises(NnasError, match=r"train.epochs \(there 2, now 1\)"):
        open_run(run.path, "search", config)


@pytest.mark.parametrize("moved", range(7))
def test_killed_while_results_are_moved_nothing_is_lost(run, moved, monkeypatch):
    results, replace, done = finished(run), os.replace, []

    def dying(source, target):
        if "earlier" in str(target) and not str(target).endswith("metrics.jsonl"):
            if len(done) == moved:
                raise KeyboardInterrupt
            done.append(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying)
    try:
        open_run(run.path, "search", longer("search"))
    except KeyboardInterrupt:
        assert find_run(run.path, "search", CONFIG).path == run.path  # the old configuration still holds
    monkeypatch.setattr(os, "replace", replace)
    open_run(run.path, "search", longer("search"))
    kept = {path.name: path.read_bytes() for path in run.earlier.glob("*/*") if path.name in results}
    assert kept == results
    assert run.load_checkpoint("search")[0] == {"epoch": 3} and run.load_checkpoint("train")[0] is None


def test_what_a_run_reads_must_not_change(run):
    with pytest.raises(NnasError, match=r"data.samples \(there 3, now 4\)"):
        open_run(run.path, "search", CONFIG, {**INPUTS, "data": {"samples": 4}})
    open_run(run.path, "search", CONFIG)


def test_a_second_process_in_a_folder_is_refused_and_told_which_is_first(run):
    code = (
        "import sys; from nnas.rundir import RunFolder, working_in\n"
        "with working_in(RunFolder(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "in\n"
        with pytest.raises(NnasError, match=f"process {first.pid} .*is working in it"), working_in(run):
            pytest.fail("two processes in one folder")
        first.kill()
        first.wait()
    with working_in(run):
        pass
