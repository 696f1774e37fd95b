"""The examples work as they stand."""

import importlib
import json
from pathlib import Path

import pytest

from nnas.app import run_command

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = ["search.warmup_epochs=0", "search.epochs=1", "train.epochs=1", "device=cpu", "device.threads=1"]
DIGITS = ["data.validation=100", "data.test=1500", "data.copies=1"]


@pytest.fixture(autouse=True)
def among_the_examples(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small():
    """Settings with which a search takes seconds."""
    return [
        "space.stages=[{channels: 4, blocks: 2, stride: 2}]",
        "space.expansions=[2]",
        "space.kernels=[3, 5]",
        "space.stem={channels: 4, stride: 1}",
        "space.head=8",
        "search.steps_per_update=5",
        "search.validation_batch=16",
        "bound_fraction=0.95",
        "constraints.latency.estimator.rounds=2",
    ]


def test_a_space_and_a_searcher_of_ones_own(capsys):
    command = ["proxyless", f"--config-dir={EXAMPLES / 'conf'}", "space=plain", "searcher=evolution", "run_dir=run"]
    assert run_command([*command, *DIGITS, *SHORT, "constraints.latency.estimator.rounds=2"]) == 0, (
        capsys.readouterr().err
    )
    architecture = json.loads(Path("run/architecture.json").read_text())
    assert architecture["space"] == "plain" and list(architecture["choices"]) == [
        "layer1",
        "layer2",
        "layer3",
        "layer4",
    ]
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["costs"]["latency"]["predicted"] <= summary["costs"]["latency"]["bound"]


def test_a_loss_and_an_estimator_and_then_a_search_elsewhere_that_begins_with_it(capsys, small):
    """The second search is for the device of a table that it is given, under a bound of its own."""
    command = [
        "focal",
        f"--config-dir={EXAMPLES / 'conf'}",
        "constraints=[latency,energy]",
        "constraints.energy.fraction=0.95",
        *DIGITS,
        "run_dir=run",
        *small,
        *SHORT,
    ]
    assert run_command(command) == 0, capsys.readouterr().err
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["costs"]["energy"]["unit"] == "nJ"
    assert all(cost["predicted"] <= cost["bound"] for cost in summary["costs"].values())
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert all(0 < one["probability"] < 1 for one in records if one["phase"] in ("search", "train"))

    (path,) = Path("latency_tables").iterdir()
    table = json.loads(path.read_text())
    processor = next(key for key in table if isinstance(table[key], dict) and "processor" in table[key])
    table[processor]["processor"] = "a phone"
    Path("phone.json").write_text(json.dumps(table))
    command = ["proxyless", "warm_start=run", "table=phone.json", "run_dir=phone", *DIGITS, *small, *SHORT]
    assert run_command(command) == 0, capsys.readouterr().err
    summary = json.loads(Path("phone/summary.json").read_text())
    assert summary["measured_latency"] is None and "warm start: weights and probabilities" in capsys.readouterr().out
    assert run_command(["report", "run_dir=phone"]) == 0
    assert "a phone" in Path("phone/report.md").read_text()


def test_images_of_ones_own(capsys, small):
    importlib.import_module("own_images").main("tiles", 80)
    (Path("tiles") / "china" / "broken.png").write_text("no image")
    assert (
        run_command(
            ["images", "data.path=tiles", "data.size=12", "run_dir=run", *small, *SHORT, "search.steps_per_update=1"]
        )
        == 0
    ), capsys.readouterr().err
    assert "images that cannot be read are skipped: 1" in capsys.readouterr().out
    inputs = json.loads(Path("run/inputs.json").read_text())
    assert inputs["data"]["classes"] == 2 and inputs["data"]["class_names"] == ["china", "flower"]


def test_every_example_is_told():
    told = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if path.name not in told] == []


def test_the_parts_from_python(capsys):
    importlib.import_module("from_python").main(0, 1, 1, validation=100, test=1200, copies=1)
    out = capsys.readouterr().out
    assert "found {" in out and "test accuracy" in out
