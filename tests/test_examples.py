"""The examples work as they stand."""

import importlib
import json
from pathlib import Path

import pytest

from nnas.app import run_command

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = ["search.warmup_epochs=0", "search.epochs=1", "train.epochs=1", "device=cpu"]


@pytest.fixture(autouse=True)
def among_the_examples(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)


def test_a_space_and_a_searcher_of_ones_own(capsys):
    command = ["proxyless", f"--config-dir={EXAMPLES / 'conf'}", "space=plain", "searcher=evolution", "run_dir=run"]
    assert run_command([*command, *SHORT, "constraints.latency.estimator.rounds=2"]) == 0, capsys.readouterr().err
    architecture = json.loads(Path("run/architecture.json").read_text())
    assert architecture["space"] == "plain" and list(architecture["choices"]) == [
        "layer1",
        "layer2",
        "layer3",
        "layer4",
    ]
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["costs"]["latency"]["predicted"] <= summary["costs"]["latency"]["bound"]


def test_the_parts_from_python(capsys):
    importlib.import_module("from_python").main(warmup_epochs=0, epochs=1, train_epochs=1)
    out = capsys.readouterr().out
    assert "found {" in out and "test accuracy" in out
