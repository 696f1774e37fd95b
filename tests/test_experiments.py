"""The experiments in the dimensions of the papers, each started for two steps on made-up images of its shape."""

import json

import numpy as np
import pytest

from nnas import app
from nnas.commands import shipping
from nnas.config import load

SMALL = ["data=synthetic", "data.training=2", "data.validation=2", "data.test=2", "device=cpu", "device.kernels=fast"]
SMALL += ["estimator@constraints.latency.estimator=macs", "searcher.samples=2"]
SMALL += ["search.warmup_epochs=1", "search.epochs=1", "search.validation_batch=2", "search.steps_per_update=1"]
SMALL += [f"{phase}.{key}" for phase in ("search", "train") for key in ("micro_batch=2", "micro_batches=1")]


@pytest.mark.parametrize(
    "experiment, shape, classes, epochs",
    [("proxyless_cifar10", [3, 32, 32], 10, 1), ("proxyless_imagenet", [3, 224, 224], 1000, 0)],
)
def test_an_experiment_starts(experiment, shape, classes, epochs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Measuring the exported network has tests of its own.
    monkeypatch.setattr(shipping, "_measured", lambda *_: None)
    status = app.run_command([experiment, *SMALL, f"train.epochs={epochs}", "run_dir=run"])
    told = capsys.readouterr()
    assert status == 0, told.err
    assert "warning: the data are synthetic" in told.out
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    phases = [record["phase"] for record in records]
    assert phases == ["costs", "warmup", "search", "derived"] + ["train"] * epochs
    assert all(np.isfinite(record["loss"]) for record in records if "loss" in record)
    assert "reward" in records[2]
    config = load(experiment, None, SMALL)
    assert (config.data.shape, config.data.classes) == (shape, classes)
    assert len(json.loads((tmp_path / "run" / "architecture.json").read_text())["choices"]) == 21
    # The command `train` has another space and other data: what is proposed must work.
    first, *others = json.loads((tmp_path / "run" / "summary.json").read_text())["next"]
    assert first.endswith(f" resume run_dir=run train.epochs={2 * epochs or 1}")
    assert not [command for command in others if "config-name=train" in command or " train " in command]


@pytest.mark.parametrize(
    "experiment, samples, batch, epochs",
    [("proxyless_cifar10", 5000, (64, 96), (40, 120, 600)), ("proxyless_imagenet", 50000, (256, 256), (40, 120, 300))],
)
def test_experiments_are_in_the_dimensions_of_the_paper(experiment, samples, batch, epochs):
    config = load(experiment, None, ["data.path=somewhere"])
    assert config.data.validation == samples
    assert tuple(config[phase].micro_batch * config[phase].micro_batches for phase in ("search", "train")) == batch
    assert (config.search.warmup_epochs, config.search.epochs, config.train.epochs) == epochs
    assert config.searcher.samples == 10 and config.search.solver.make_solver.momentum == 0.9
    assert config.search.task.label_smoothing == config.train.task.label_smoothing == 0.1
