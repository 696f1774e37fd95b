"""Where a run stands; what terminals and TensorBoard show of it while it runs."""

import importlib
import sys
from types import SimpleNamespace

import pytest
from PIL import Image
from test_report import write_run

from nnas import tensorboard
from nnas.app import run_command
from nnas.errors import NnasError
from nnas.rundir import RunFolder, working_in
from nnas.tensorboard import TensorBoard, scalars
from nnas.terminal import shortened, standing_text


def test_finished_stopped_and_running_runs(tmp_path, capsys):
    path = write_run(tmp_path / "run", search={"warmup_epochs": 2, "epochs": 5}, train={"epochs": 1})
    command = ["status", f"run_dir={path}"]

    def said():
        assert run_command(command) == 0
        return capsys.readouterr().out

    assert "state: finished" in said()
    (path / "summary.json").unlink()
    (path / "metrics.jsonl").write_text("".join((path / "metrics.jsonl").read_text().splitlines(True)[:3]))
    stopped = said()
    assert f"stopped, nobody works in it; nnas resume run_dir={path}" in stopped
    assert "the search: 3 of 7 epochs, about 4 s more" in stopped and "best after epoch 3: latency 2.75 ms" in stopped
    with working_in(RunFolder(path)):
        assert "state: running: process" in said()


def test_lines_fit_the_terminal():
    line = "search 3/28 | sampled: reward 0.5 | latency ms: best 0.28"
    assert shortened(line, 80) == line
    assert shortened(line, 40) == "search 3/28 | sampled: reward 0.5"
    assert shortened("a word that is long", 10) == "a word ..."
    assert (
        standing_text({"best_cost": {"latency": 0.28}, "best": {"first": "k3", "last": "skip"}}) == "best 0.28 k3 skip"
    )
    assert standing_text({"loss": 1.0}) == ""


def test_scalars_are_all_numbers_of_a_record():
    record = {"phase": "search", "epoch": 2, "loss": 1.5, "baseline": None, "best_cost": {"latency": 2, "macs": 3}}
    record["probabilities"] = {"first": [0.5, 0.5]}
    assert dict(scalars(record)) == {"loss": 1.5, "best_cost/latency": 2.0, "best_cost/macs": 3.0}


def test_tensorboard_gets_scalars_histograms_and_pictures(tmp_path, monkeypatch):
    run = RunFolder(tmp_path)
    (tmp_path / "report").mkdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "report" / "a.png")
    hook = TensorBoard()
    hook.start_run(run)
    loop = SimpleNamespace(searcher=SimpleNamespace(state=lambda: {"alphas": {"first": [0.0, 1.0]}}))
    hook.end_epoch(SimpleNamespace(record={"phase": "search", "epoch": 1, "loss": 1.25}, epoch=1), loop)
    hook.end_run(run, {})
    (path,) = (tmp_path / "tensorboard").iterdir()
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    found = {}
    for content in records_of(path.read_bytes()):
        for value in event.FromString(content).summary.value:
            found[value.tag] = value
    assert found["search/loss"].simple_value == 1.25
    assert found["alphas/first"].histo.num == 2 and (found["a"].image.width, found["a"].image.height) == (3, 2)


def records_of(content):
    """The records of a TFRecord file: length, its checksum, content, its checksum."""
    while content:
        length = int.from_bytes(content[:8], "little")
        yield content[12 : 12 + length]
        content = content[16 + length :]


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(NnasError, match=r"nnas\[tensorboard\]"):
        tensorboard.TensorBoard()


def test_it_is_one_word_of_configuration(capsys):
    assert run_command(["proxyless", "+hooks=tensorboard", "--cfg", "job"]) == 0
    assert "nnas.tensorboard.TensorBoard" in capsys.readouterr().out
