"""The commands, from end to end, and what they say about bad input."""

import contextlib
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import h5py
import nnabla as nn
import numpy as np
import pytest
import yaml
from nnabla.utils.nnp_graph import NnpLoader

from nnas import files
from nnas.app import run_command
from nnas.checkpoint import read_arrays, write_arrays
from nnas.config import build, load
from nnas.costs import load_costs
from nnas.deciders import Fixed, listed
from nnas.hooks import Hook
from nnas.layers import EVALUATION
from nnas.rundir import RunFolder, working_in
from nnas.search import Search
from nnas.space import Architecture
from nnas.updates import set_parameters

SPACE = [
    "space.name=tiny",
    "space.stages=[{channels: 4, blocks: 1, stride: 2}, {channels: 6, blocks: 2, stride: 2}]",
    "space.expansions=[2, 3]",
    "space.kernels=[3, 5]",
    "space.stem={channels: 4, stride: 1}",
    "space.head=8",
]
DATA = ["data.validation=100", "data.test=1000", "data.copies=1"]
ROUNDS = "constraints.latency.estimator.rounds=1"
BATCHES = [f"{phase}.{key}" for phase in ("search", "train") for key in ("micro_batch=16", "micro_batches=1")]
SEARCH = ["proxyless", *SPACE, *DATA, *BATCHES, "search.steps_per_update=6", "search.validation_batch=32"]
SEARCH += ["device=cpu", "bound_fraction=0.8", ROUNDS]
SHORT = ["search.warmup_epochs=1", "search.epochs=1", "train.epochs=1"]
TRAIN = ["train", *SPACE, *DATA, *BATCHES[2:], "device=cpu", "estimator.rounds=1", "train.epochs=1"]


def call(arguments):
    """Run a command in this process; returns its status and what it wrote to both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run_command(arguments)
    return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())


def contents(folder):
    """{path: bytes} of all files below a folder."""
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def check_error(done, *parts):
    """One line on standard error that says what is wrong, and a status that is not 0."""
    assert done.status not in (0, None)
    assert done.err.startswith("error: ") and done.err.endswith("\n") and done.err.count("\n") == 1, done.err
    for part in parts:
        assert part in done.err, done.err


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder where all commands of this file run, with the latency table that the first of them makes."""
    folder, before, path = tmp_path_factory.mktemp("home"), os.getcwd(), list(sys.path)
    os.chdir(folder)
    yield folder
    os.chdir(before)
    sys.path[:] = path


@pytest.fixture(scope="module")
def run(home):
    """A finished run; what its command printed."""
    done = call([*SEARCH, *SHORT, "run_dir=run"])
    assert done.status == 0, done.err
    done.path = Path("run")
    return done


@pytest.fixture
def copy(run):
    """A copy of the finished run, to be damaged."""
    shutil.copytree("run", "copy")
    yield Path("copy")
    shutil.rmtree("copy")


@pytest.fixture(autouse=True)
def clean(home):
    """Whatever a test leaves besides the run and the tables is removed."""
    yield
    for path in home.iterdir():
        if path.name not in ("run", "latency_tables", "whole", "killed"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def logits_of(config, choices, weights, images):
    """Of the trained network with its batch normalization, built alone."""
    with nn.parameter_scope("", {}):
        x = nn.Variable.from_numpy_array(images)
        logits = build(config.space)(x, Fixed(choices), EVALUATION).logits
        set_parameters(nn.get_parameters(grad_only=False), weights, "weights")
    logits.forward()
    return logits.d.copy()


# What a run leaves


def test_all_files_of_a_run_are_there(run, home):
    names = {path.name for path in run.path.iterdir()}
    assert names >= {
        "config.yaml",
        "space.json",
        "costs.json",
        "metrics.jsonl",
        "architecture.json",
        "weights.h5",
        "supernet.h5",
        "network.nnp",
        "summary.json",
        "checkpoint",
    }
    assert not [name for name in names if name.startswith(".")]
    assert {path.name for path in home.iterdir()} == {"run", "latency_tables"}
    assert len(list(Path("latency_tables").iterdir())) == 1
    assert len(list((run.path / "checkpoint").iterdir())) == 2


def test_the_configuration_is_enough_to_repeat_the_run(run):
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    composed = load("proxyless", None, [*SEARCH[1:], *SHORT])
    for key, value in composed.items():
        if key != "run_dir":
            assert config[key] == value
    assert config.keys() == composed.keys() - {"run_dir"}


def test_the_space_file(run):
    space = listed(build(load("proxyless", None, SEARCH[1:]).space))
    saved = read(run.path / "space.json")
    assert saved["name"] == "tiny"
    assert [(one["name"], tuple(one["options"])) for one in saved["decisions"]] == [
        (decision.name, decision.options) for decision in space.decisions
    ]
    assert all(one["sites"] for one in saved["decisions"])


def test_the_costs_file(run):
    saved = read(run.path / "costs.json")["latency"]
    table = read(next(Path("latency_tables").iterdir()))
    assert saved["unit"] == "ms" and saved["description"]["device"] == table["device"]
    assert saved["factor"] == table["calibration"]["tiny"]["factor"] and saved["error"] >= 0
    assert all(term["cost"] >= 0 for term in saved["terms"])
    options = {(name, option) for term in saved["terms"] for name, option in term["when"].items()}
    skips = sum("skip" in decision["options"] for decision in read(run.path / "space.json")["decisions"])
    # An option without any function, as skip, has no part; all others have a measured one.
    assert len(options) == 3 * 4 and skips == 1
    assert all(term["cost"] > 0 for term in saved["terms"])


def test_the_records(run):
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [record["phase"] for record in records] == ["costs", "warmup", "search", "derived", "train"]
    _, warmup, search, derived, train = records
    assert [record.get("epoch") for record in records] == [None, 1, 2, None, 1]
    for record in (warmup, search, train):
        assert {"seconds", "loss", "error"} <= record.keys()
    expected = {"reward", "baseline", "validation_error", "entropy", "expected_cost", "best_cost"}
    assert expected <= search.keys()
    assert 0 <= derived["validation_accuracy"] <= 1


def test_the_architecture_keeps_the_bound(run):
    architecture = Architecture.load(run.path / "architecture.json")
    space = listed(build(load("proxyless", None, SEARCH[1:]).space))
    assert architecture.space == "tiny" and space.check(architecture.choices) == architecture.choices
    predicted = architecture.predicted["latency"]
    costs = load_costs(run.path / "costs.json")["latency"]
    assert predicted["value"] == costs.cost(architecture.choices) and predicted["unit"] == "ms"
    assert predicted["device"]["backend"] == "cpu"
    bound = read(run.path / "summary.json")["costs"]["latency"]["bound"]
    assert predicted["value"] <= bound


def test_the_summary(run):
    summary = read(run.path / "summary.json")
    assert 0 <= summary["test_accuracy"] <= 1 and 0 <= summary["validation_accuracy"] <= 1
    # 1000 test digits, each once: the accuracy is a whole number of them.
    assert summary["test_accuracy"] * 1000 == pytest.approx(round(summary["test_accuracy"] * 1000), abs=1e-6)
    latency = summary["costs"]["latency"]
    assert latency["unit"] == "ms" and latency["predicted"] <= latency["bound"]
    measured = summary["measured_latency"]
    assert measured["unit"] == "ms" and measured["median"] > 0 and measured["spread"] >= 0
    assert "cpu" in measured["device"] and measured["batch"] == 1
    assert {"warmup", "search", "train"} <= summary["seconds"].keys()
    assert summary["seed"] == 0 and {"nnas", "nnabla"} <= summary["versions"].keys()


def test_the_terminal_tells_it(run):
    architecture = Architecture.load(run.path / "architecture.json")
    summary = read(run.path / "summary.json")
    for name, option in architecture.choices.items():
        assert any(name in line and line.rstrip().endswith(option) for line in run.out.splitlines())
    assert f"{summary['test_accuracy']:.2%}" in run.out
    assert f"{summary['costs']['latency']['bound']:.4g} ms" in run.out
    assert f"{summary['measured_latency']['median']:.4g} ms" in run.out
    assert "run folder: run" in run.out and "device cpu" in run.out
    assert sum(line.startswith(("warmup ", "search ", "train ")) for line in run.out.splitlines()) == 3
    assert "error:" not in run.err and "Traceback" not in run.err


def test_the_next_commands_are_commands(run):
    """What the summary tells people to try has to compose."""
    for command in read(run.path / "summary.json")["next"]:
        program, name, *overrides = shlex.split(command)
        assert os.path.basename(program) == "nnas" and shutil.which(program)
        assert load(name, None, overrides)


def test_the_exported_network_gives_the_logits_of_the_trained_one(run, random):
    config = load("proxyless", None, SEARCH[1:])
    architecture = Architecture.load(run.path / "architecture.json")
    weights, _ = read_arrays(run.path / "weights.h5", "weights")
    loader = NnpLoader(str(run.path / "network.nnp"))
    (name,) = loader.get_network_names()
    images = random.normal(size=(5, 1, 12, 12)).astype(np.float32)
    network = loader.get_network(name, batch_size=5)
    (x,), (y,) = network.inputs.values(), network.outputs.values()
    x.d = images
    y.forward()
    expected = logits_of(config, architecture.choices, weights, images)
    np.testing.assert_allclose(y.d, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    assert np.ptp(expected, axis=0).max() > 1e-3
    # Folded: nothing of batch normalization is left.
    functions = []
    y.visit(lambda function: functions.append(function.info.type_name))
    assert "BatchNormalization" not in functions and "Convolution" in functions


def test_the_test_accuracy_is_that_of_the_weights(run):
    config = load("proxyless", None, SEARCH[1:])
    data = build(config.data)
    images, labels = data.test.draw(np.arange(len(data.test)), None)
    architecture = Architecture.load(run.path / "architecture.json")
    weights, _ = read_arrays(run.path / "weights.h5", "weights")
    right = (logits_of(config, architecture.choices, weights, images).argmax(axis=1) == labels[:, 0]).mean()
    assert read(run.path / "summary.json")["test_accuracy"] == pytest.approx(right, abs=1e-6)


def test_without_the_fast_kernels_nnablas_own_are_taken_with_one_line(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    done = call([*SEARCH, *SHORT, "run_dir=without"])
    lines = [line for line in (done.out + done.err).splitlines() if "numba" in line]
    assert done.status == 0 and len(lines) == 1 and "nnas[fast]" in lines[0] and "slower" in lines[0]
    check_error(call([*SEARCH, *SHORT, "run_dir=bad", "device.kernels=fast"]), "device.kernels=fast", "nnas[fast]")


# Running again


def test_running_again_repeats_nothing(run, copy):
    before = contents(copy)
    tables = contents("latency_tables")
    done = call([*SEARCH, *SHORT, "run_dir=copy"])
    assert done.status == 0 and "resumed" in done.out
    assert not any(line.startswith(("warmup ", "search ", "train ")) for line in done.out.splitlines())
    after = contents(copy)
    assert before.keys() == after.keys() and contents("latency_tables") == tables
    changed = {Path(name).name for name in after if after[name] != before[name]}
    # The latency of the exported network is measured again.
    assert {name for name in changed if not name.endswith(".png")} <= {
        *("summary.json", "network.nnp", "report.html", "report.md")
    }
    old, new = (json.loads(one["copy/summary.json"]) for one in (before, after))
    for key in ("test_accuracy", "validation_accuracy", "costs", "seed", "samples"):
        assert old[key] == new[key]
    assert {k: v for k, v in old["seconds"].items() if k != "export"} == {
        k: v for k, v in new["seconds"].items() if k != "export"
    }


@pytest.mark.parametrize(
    "override, named",
    [("seed=1", "seed (there 0, now 1)"), ("train.micro_batch=8", "train.micro_batch (there 16, now 8)")],
)
def test_another_configuration_in_the_same_folder_is_refused(run, override, named):
    before = contents("run")
    check_error(call([*SEARCH, *SHORT, "run_dir=run", override]), "run_dir=run", named)
    assert contents("run") == before


def assert_same_arrays(one, other):
    (first, _), (second, _) = read_arrays(one, "weights"), read_arrays(other, "weights")
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name


@pytest.mark.parametrize("command", ["random", "proxyless_gradient"])
def test_other_searchers_leave_the_same_files(run, command):
    done = call([command, *SEARCH[1:], *SHORT, "run_dir=other"])
    assert done.status == 0, done.err
    # Only rewards are of sampled architectures.
    assert {path.name for path in Path("other").iterdir()} | {"samples.jsonl"} == {
        path.name for path in run.path.iterdir()
    }
    one, other = read("run/summary.json"), read("other/summary.json")
    assert one.keys() == other.keys() and one["costs"].keys() == other["costs"].keys()
    assert other["costs"]["latency"]["predicted"] <= other["costs"]["latency"]["bound"]
    figure = {"random": "reward", "proxyless_gradient": "objective"}[command]
    assert f"sampled: {figure} " in done.out


@pytest.mark.parametrize(
    "arguments, named",
    [
        (
            ["objective=linear_penalty"],
            "Reinforce does not take the objective LinearPenalty; choose objective= from",
        ),
        (
            ["searcher=proxyless_gradient"],
            "the objective RewardMin; choose objective= from linear_penalty",
        ),
    ],
)
def test_a_wrong_kind_of_objective_is_found_before_anything_is_measured(home, tmp_path, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    check_error(call([*SEARCH, *SHORT, *arguments]), named)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weights", [None, "run/supernet.h5", "run/weights.h5"])
def test_an_architecture_is_trained_from_its_file(run, weights):
    done = call(
        [*TRAIN, "architecture=run/architecture.json", "run_dir=trained", *([f"weights={weights}"] if weights else [])]
    )
    assert done.status == 0, done.err
    assert {path.name for path in Path("trained").iterdir()} >= {
        "config.yaml",
        "metrics.jsonl",
        "architecture.json",
        "weights.h5",
        "network.nnp",
        "summary.json",
    }
    assert read("trained/architecture.json") == read("run/architecture.json")
    (record,) = (json.loads(line) for line in Path("trained/metrics.jsonl").read_text().splitlines())
    start = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()][-1]
    if weights is None:
        # The same seed, the same place: the same training as the search's own.
        assert {**record, "seconds": 0} == {**start, "seconds": 0}
        assert_same_arrays("trained/weights.h5", "run/weights.h5")
    else:
        assert record["loss"] < start["loss"]


def test_profiling_measures_once(run):
    tables = contents("latency_tables")
    done = call(["profile", *SPACE, "device=cpu", "estimator.rounds=1"])
    assert done.status == 0, done.err
    assert contents("latency_tables") == tables
    assert {path.name for path in Path().iterdir()} == {"run", "latency_tables"}


def test_counted_costs_and_several_constraints(run):
    """Costs are read from the table; a second bound has an estimator of its own."""
    macs = "+constraints.macs={bound: null, fraction: 0.9, weight: 0.5, estimator: {_target_: estimators.macs.MACs}}"
    done = call([*SEARCH, *SHORT, "search.warmup_epochs=0", macs, "run_dir=two"])
    assert done.status == 0, done.err
    summary = read("two/summary.json")
    assert {name: cost["unit"] for name, cost in summary["costs"].items()} == {"latency": "ms", "macs": "MACs"}
    for cost in summary["costs"].values():
        assert cost["predicted"] <= cost["bound"] * (1 + 1e-9)


def test_a_search_within_all_bounds_at_once(run):
    names = ("latency", "macs", "memory", "parameters")
    bounds = [f"constraints.{name}.fraction=0.9" for name in names[1:]]
    done = call([*SEARCH, *SHORT, f"constraints=[{','.join(names)}]", *bounds, "run_dir=bounded"])
    assert done.status == 0, done.err
    costs, exact = (read("bounded/summary.json")[key] for key in ("costs", "counted"))
    assert tuple(costs) == names and [cost["unit"] for cost in costs.values()] == ["ms", "MACs", "bytes", "parameters"]
    assert all(cost["predicted"] <= cost["bound"] * (1 + 1e-9) for cost in costs.values())
    assert exact["macs"] == costs["macs"]["predicted"] and exact["parameters"] == costs["parameters"]["predicted"]
    memory = exact["memory"]
    assert memory["weights"] == 4 * exact["parameters"] and memory["peak_of_activations"] > 0
    assert memory["total"] == sum(memory[part] for part in ("weights", "peak_of_activations"))
    assert memory["total"] <= costs["memory"]["predicted"]


def logits_by_modules(folder, images, run_module):
    """Feed images through the modules of a chain, file by file."""
    content = read(folder / "modules.json")
    for module in content["modules"]:
        images = run_module(folder / module["files"][run_module.form], images)
    return images


def run_nnp(path, images):
    loader = NnpLoader(str(path))
    (name,) = loader.get_network_names()
    network = loader.get_network(name, batch_size=len(images))
    (x,), (y,) = network.inputs.values(), network.outputs.values()
    x.d = images
    y.forward()
    return y.d.copy()


def run_onnx(path, images):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    return np.concatenate([session.run(None, {x.name: images[i : i + 1]})[0] for i in range(len(images))])


run_nnp.form, run_onnx.form = "nnp", "onnx"


@pytest.mark.parametrize("run_file", [run_nnp, run_onnx])
def test_the_network_and_its_modules_are_exported(run, random, run_file):
    pytest.importorskip("onnx")
    exports = ["export.modules=true", "export.formats=[nnp,onnx]", "weights=run/weights.h5", "train.epochs=0"]
    tables = contents("latency_tables")
    done = call([*TRAIN, "architecture=run/architecture.json", *exports, "run_dir=exported"])
    assert done.status == 0, done.err
    assert contents("latency_tables") == tables, "the search has measured them all"
    images = random.normal(size=(3, 1, 12, 12)).astype(np.float32)
    config, architecture = load("proxyless", None, SEARCH[1:]), Architecture.load("run/architecture.json")
    weights, _ = read_arrays("exported/weights.h5", "weights")
    expected = logits_of(config, architecture.choices, weights, images)
    got = run_file(f"exported/network.{run_file.form}", images)
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max(), rtol=1e-3)
    by_modules = logits_by_modules(Path("exported/modules"), images, run_file)
    np.testing.assert_allclose(by_modules, got, atol=1e-4 * np.abs(expected).max())
    content = read("exported/modules/modules.json")
    terms = {term["label"]: term["cost"] for term in read("run/costs.json")["latency"]["terms"]}
    assert content["unit"] == "ms" and content["latency"]["device"]["backend"] == "cpu"
    for module in content["modules"]:
        assert module["latency"] == terms[f"tiny: {module['module']}"]
    assert sum(module["latency"] for module in content["modules"]) == pytest.approx(
        architecture.predicted["latency"]["value"] / read("run/costs.json")["latency"]["factor"]
    )
    assert {path.name for path in Path("exported/modules").iterdir()} == {"modules.json"} | {
        name for module in content["modules"] for name in module["files"].values()
    }


def test_a_search_for_onnx_runtime(run):
    pytest.importorskip("onnxruntime")
    done = call([*SEARCH, *SHORT, "device=onnxruntime", "export.formats=[onnx]", "run_dir=onnx"])
    assert done.status == 0, done.err
    summary = read("onnx/summary.json")
    assert "onnxruntime" in summary["measured_latency"]["device"] and summary["measured_latency"]["median"] > 0
    assert read("onnx/costs.json")["latency"]["description"]["device"]["backend"] == "onnxruntime"
    assert Path("onnx/network.onnx").exists() and not Path("onnx/network.nnp").exists()
    next(path for path in Path("latency_tables").iterdir() if "onnxruntime" in path.name).unlink()


def test_live_is_for_final_networks(run):
    live = ["estimator@constraints.latency.estimator=live", "run_dir=bad"]
    check_error(call([*SEARCH, *SHORT, *live]), "live", "estimator=latency")
    assert not Path("bad").exists()
    done = call([*TRAIN, "architecture=run/architecture.json", "estimator=live", "run_dir=lively"])
    assert done.status == 0 and read("lively/summary.json")["measured_latency"]["median"] > 0, done.err


@pytest.mark.parametrize("none", ["~constraints.latency", "constraints=[]"])
def test_a_search_without_a_bound(run, none):
    done = call([*SEARCH[:-1], *SHORT, none, "run_dir=free"])
    assert done.status == 0, done.err
    assert read("free/architecture.json")["predicted"] == {}


def test_ones_own_space_from_ones_own_folder(home):
    Path("mine").mkdir()
    Path("mine/space").mkdir()
    Path("mine/space/own.yaml").write_text("_target_: own_space.Own\nname: own\n")
    Path("own_space.py").write_text(
        "import nnabla.functions as F\n"
        "from nnas.layers import Outputs, affine, conv_bn, global_average_pooling\n"
        "class Own:\n"
        "    input_shape, classes = (1, 6, 6), 3\n"
        "    def __init__(self, name):\n"
        "        self.name = name\n"
        "    def __call__(self, x, decide, mode):\n"
        "        x = decide('first', {f'k{k}': (lambda x, k=k: conv_bn(x, 4, k, mode, f'k{k}')) for k in (1, 3)}, x)\n"
        "        return Outputs(affine(global_average_pooling(x), 3, 'classifier'))\n"
    )
    done = call(["profile", "--config-dir=mine", "space=own", "estimator=macs", "device=cpu"])
    assert done.status == 0, done.err
    assert "own, 1 decisions" in done.out


def test_showing_the_configuration_does_nothing(home):
    before = contents(".")
    done = call(["proxyless", "--cfg", "job", "seed=5"])
    assert done.status == 0 and yaml.safe_load(done.out)["seed"] == 5
    assert contents(".") == before


# Bad input


@pytest.mark.parametrize(
    "arguments, parts",
    [
        ([], ["no command"]),
        (["proxylss"], ["proxylss", "did you mean 'proxyless'"]),
        ([*SEARCH, "search.epoch=1"], ["search.epoch=1", "did you mean 'search.epochs'"]),
        ([*SEARCH, "--nothing"], ["--nothing"]),
        ([*SEARCH, "command=serch"], ["command", "search"]),
        ([*SEARCH, "device=cuda"], ["cuda", "cudnn"]),
        ([*SEARCH, "device=null"], ["device", "auto, cpu, cudnn"]),
        ([*SEARCH, "~device"], ["device", "auto, cpu, cudnn"]),
        ([*SEARCH, "device.backend=cuda"], ["cuda", "cudnn"]),
        ([*SEARCH, "device.kernels=fats"], ["device.kernels=fats", "'fast'"]),
        ([*SEARCH, "device.threads=0"], ["device.threads=0"]),
        ([*SEARCH, "device.threads=100000"], ["device.threads=100000", "at most"]),
        ([*SEARCH, "bound_ms=1e-6"], ["1e-06 ms", "smallest possible value is"]),
        ([*SEARCH, "constraints.latency.weight=x"], ["weight='x'"]),
        ([*SEARCH, "constraints.latency.estimator.rounds=0"], ["rounds"]),
        ([*SEARCH, "table=nowhere.json"], ["nowhere.json"]),
        ([*SEARCH, "seed=-1"], ["seed=-1"]),
        ([*SEARCH, "search.epochs=x"], ["search.epochs='x'"]),
        ([*SEARCH, "search.solver.learning_rate=fast"], ["learning_rate='fast'"]),
        ([*SEARCH, "search.solver.make_solver.momentum=x"], ["momentum"]),
        ([*SEARCH, "train.epochs=x"], ["train.epochs='x'"]),
        ([*SEARCH, "searcher.samples=0"], ["searcher.samples=0"]),
        ([*SEARCH, "searcher.make_solver.alpha=x"], ["alpha"]),
        ([*SEARCH, "searcher._target_=nnas.searchers.reinforce.Reinfore"], ["Reinfore"]),
        ([*SEARCH, "searcher._target_=nnas.space.Space"], ["searcher._target_=nnas.space.Space", "Searcher"]),
        ([*SEARCH, "searcher.baseline=leave_one"], ["searcher.baseline='leave_one'", "did you mean 'leave_one_out'"]),
        ([*SEARCH, "objective.weight=-1"], ["objective.weight=-1"]),
        ([*SEARCH, "searcher=proxyless_gradient", "objective=log_product"], ["above 1 ms", "objective=linear_penalty"]),
        ([*SEARCH, "space.classes=5"], ["space.classes", "10"]),
        ([*SEARCH, "space.input_shape=[1, 8, 8]"], ["space.input_shape", "(1, 12, 12)"]),
        ([*SEARCH, "space.input_shape=12"], ["space.input_shape=12"]),
        ([*SEARCH, "space.kernels=[]"], ["space.kernels"]),
        ([*SEARCH, "space.expansions=[x]"], ["space.expansions"]),
        ([*SEARCH, "space.stages=[{channels: 4}]"], ["space.stages"]),
        ([*SEARCH, "space.stem={channels: many, stride: 1}"], ["space.stem"]),
        ([*SEARCH, "space.head=wide"], ["space.head"]),
        ([*SEARCH, "space.stem={channels: 0, stride: 1}"], ["space.stem"]),
        ([*SEARCH, "export.formats=[onx]"], ["export.formats=['onx']", "did you mean 'onnx'"]),
        ([*SEARCH, "export.formats=5"], ["export.formats=5", "nnp, onnx"]),
        ([*SEARCH, "export.formats=[]"], ["export.formats=[]", "nnp, onnx"]),
        ([*SEARCH, "export.modules=maybe"], ["export.modules='maybe'"]),
        ([*SEARCH, "run_dir=latency_tables"], ["run_dir=latency_tables"]),
        (TRAIN, ["architecture is not given"]),
        ([*TRAIN, "architecture=nowhere.json"], ["nowhere.json", "no such file"]),
        ([*TRAIN, "architecture=run/summary.json"], ["run/summary.json", "not an architecture file"]),
        ([*TRAIN, "architecture=run/architecture.json", "weights=nowhere.h5"], ["nowhere.h5"]),
        ([*TRAIN, "architecture=run/architecture.json", "weights=run/space.json"], ["run/space.json"]),
        (["train", *DATA, "device=cpu", "architecture=run/architecture.json"], ["tiny", "mobilenet_small"]),
    ],
    ids=lambda value: " ".join(value[-1:]) if value in ([], TRAIN) or "=" in str(value) else None,
)
def test_bad_input_is_one_line(run, arguments, parts):
    before = contents(".")
    quick = SHORT if arguments[:1] == ["proxyless"] else []
    made = [] if any("run_dir" in one for one in arguments) or len(arguments) < 2 else ["run_dir=bad"]
    done = call([*arguments[:-1], *quick, *arguments[-1:], *made])
    check_error(done, *parts)
    assert "warmup" not in done.out, "it was searched before anyone looked at the configuration"
    after = contents(".")
    assert all(after.get(name) == content for name, content in before.items()), "nothing may be overwritten"


@pytest.mark.parametrize("override", ["search.micro_batch=0", "search.validation_batch=0"])
def test_sizes_of_zero_do_not_end_the_interpreter(run, override):
    """nnabla divides by them in C++."""
    done = subprocess.run(
        [sys.executable, "-m", "nnas", *SEARCH, "run_dir=zero", override], capture_output=True, text=True, timeout=60
    )
    check_error(SimpleNamespace(status=done.returncode, err=done.stderr), override.partition("=")[0].split(".")[1])
    assert done.returncode > 0


def test_a_bound_above_the_largest_warns(run):
    done = call([*SEARCH, *SHORT, "search.epochs=0", "search.warmup_epochs=0", "train.epochs=0", "bound_ms=1000"])
    assert "warning: " in done.out and "1000 ms is no bound" in done.out


def altered(source, change):
    content = read(source)
    change(content)
    return json.dumps(content)


ARCHITECTURES = {
    "empty": lambda: "",
    "half": lambda: Path("run/architecture.json").read_text()[:40],
    "no choices": lambda: altered("run/architecture.json", lambda c: c.pop("choices")),
    "one missing": lambda: altered("run/architecture.json", lambda c: c["choices"].pop("stage1_block1")),
    "one too many": lambda: altered("run/architecture.json", lambda c: c["choices"].update(stage9_block1="e3_k3")),
    "unknown option": lambda: altered("run/architecture.json", lambda c: c["choices"].update(stage1_block1="e3_k9")),
    "option a list": lambda: altered("run/architecture.json", lambda c: c["choices"].update(stage1_block1=["e3_k3"])),
    "predicted a word": lambda: altered("run/architecture.json", lambda c: c.update(predicted="fast")),
    "predicted numbers": lambda: altered("run/architecture.json", lambda c: c.update(predicted={"latency": 3})),
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_damaged_architecture_is_refused(run, kind):
    Path("a.json").write_text(ARCHITECTURES[kind]())
    before = contents(".")
    parts = {
        "one missing": "stage1_block1",
        "one too many": "stage9_block1",
        "unknown option": "e3_k9",
        "option a list": "stage1_block1",
    }
    check_error(call([*TRAIN, "architecture=a.json", "run_dir=bad"]), parts.get(kind, "a.json"))
    assert contents(".").items() >= before.items()


TABLES = {
    "empty": (lambda: "", "t.json"),
    "half": (lambda: next(Path("latency_tables").iterdir()).read_text()[:1000], "t.json"),
    "no table": (lambda: "{}", "t.json"),
    "another device, complete": (lambda: foreign(lambda c: None), None),
    "another device, entries missing": (lambda: foreign(lambda c: c["entries"].clear()), "profile"),
    "another device, no factor": (lambda: foreign(lambda c: c["calibration"].clear()), "profile"),
}


def foreign(change):
    def other(content):
        content["device"]["processor"] = "Another Processor 9000"
        change(content)

    return altered(next(Path("latency_tables").iterdir()), other)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_another_device_is_used_and_lacks_are_listed(run, kind):
    text, part = TABLES[kind]
    Path("t.json").write_text(text())
    before = contents(".")
    done = call([*SEARCH, *SHORT, "search.warmup_epochs=0", "table=t.json", "run_dir=bad"])
    if part is not None:
        check_error(done, part)
    else:
        assert done.status == 0, done.err
        assert read("bad/costs.json")["latency"]["description"]["device"]["processor"] == "Another Processor 9000"
        assert read("bad/architecture.json")["predicted"]["latency"]["device"]["processor"] == "Another Processor 9000"
        assert read("bad/summary.json")["measured_latency"] is None
    assert contents(".").items() >= before.items()


def rewrite(path, text):
    Path(path).write_text(text)


DAMAGES = {
    "architecture.json": lambda path: rewrite(path, path.read_text()[:30]),
    "costs.json": lambda path: rewrite(path, path.read_text()[:200]),
    "costs.json ": lambda path: rewrite(path, "{}"),
    "weights.h5": lambda path: path.write_bytes(path.read_bytes()[:3000]),
    "config.yaml": lambda path: rewrite(path, "a: ["),
    "metrics.jsonl": lambda path: rewrite(path, "no json\n" + path.read_text()),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_of_a_run_is_named(run, copy, name):
    DAMAGES[name](copy / name.strip())
    before = contents(copy)
    check_error(call([*SEARCH, *SHORT, "run_dir=copy"]), name.strip())
    assert contents(copy) == before


def test_weights_of_another_architecture_are_refused(run, copy):
    """Edited by hand, the architecture no longer fits the weights of the run."""
    architecture = read(copy / "architecture.json")
    was = architecture["choices"]["stage1_block1"]
    architecture["choices"]["stage1_block1"] = "e2_k3" if was != "e2_k3" else "e3_k5"
    rewrite(copy / "architecture.json", json.dumps(architecture))
    check_error(call([*SEARCH, *SHORT, "run_dir=copy"]), "parameters are missing")


def test_an_architecture_in_a_run_that_is_none_of_its_space_is_refused(run, copy):
    architecture = read(copy / "architecture.json")
    architecture["choices"]["stage1_block1"] = "e9_k9"
    rewrite(copy / "architecture.json", json.dumps(architecture))
    before = contents(copy)
    check_error(call([*SEARCH, *SHORT, "run_dir=copy"]), "stage1_block1='e9_k9'")
    assert contents(copy) == before


def test_half_of_the_weights_is_not_inherited(run):
    shutil.copy("run/supernet.h5", "half.h5")
    with h5py.File("half.h5", "r+") as file:
        del file["stem"]
    check_error(call([*TRAIN, "architecture=run/architecture.json", "weights=half.h5", "run_dir=bad"]), "half.h5")


def test_all_checkpoints_damaged_is_an_error(run, copy):
    (copy / "weights.h5").unlink()
    for path in (copy / "checkpoint" / "train").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    check_error(call([*SEARCH, *SHORT, "run_dir=copy"]), "no checkpoint in copy/checkpoint/train is readable")


@pytest.mark.parametrize("run_dir", ["file", "file/run"])
def test_a_run_folder_that_is_a_file_is_an_error(run, run_dir):
    Path("file").write_text("x")
    check_error(call([*SEARCH, *SHORT, f"run_dir={run_dir}"]), "file")
    assert Path("file").read_text() == "x"


def test_a_folder_that_holds_something_else_is_refused(run):
    Path("thesis").mkdir()
    Path("thesis/chapter1.tex").write_text("x")
    check_error(call([*SEARCH, *SHORT, "run_dir=thesis"]), "run_dir=thesis")
    assert contents("thesis") == {"thesis/chapter1.tex": b"x"}


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(28, "No space left on device")])
@pytest.mark.parametrize("operation", ["replace", "fsync"])
def test_a_run_folder_that_cannot_be_written_is_an_error(run, monkeypatch, operation, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(files.os, operation, fail)
    check_error(call([*SEARCH, *SHORT, "run_dir=bad"]), error.strerror)
    monkeypatch.undo()
    assert contents("bad") == {}


def test_a_start_that_fails_claims_no_folder(run):
    check_error(call([*SEARCH, *SHORT, "run_dir=claimed", "bound_ms=1e-6"]), "smallest possible value")
    check_error(call([*SEARCH, *SHORT, "run_dir=claimed", "search.steps_per_update=1000"]), "steps_per_update=1000")
    assert not Path("claimed").exists()


def test_an_architecture_that_changed_since_the_run_began_is_refused(run):
    content = read(run.path / "architecture.json")
    rewrite("changing.json", json.dumps(content))
    again = [*TRAIN, "architecture=changing.json", "run_dir=changing"]
    assert call(again).status == 0
    before = contents("changing")
    was = content["choices"]["stage1_block1"]
    content["choices"]["stage1_block1"] = "e2_k3" if was != "e2_k3" else "e3_k5"
    rewrite("changing.json", json.dumps(content))
    check_error(call(again), "changing.json", "has changed")
    assert contents("changing") == before


@pytest.mark.parametrize(
    "change",
    [
        "constraints.latency=3",
        "~constraints.latency.weight",
        "+constraints.macs.bound=1e5",
        "~seed",
        "bound_ms=inf",
        "run_dir=2024",
    ],
)
def test_odd_configurations_are_no_tracebacks(run, change):
    done = call([*SEARCH, *SHORT, "run_dir=odd", change])
    assert done.status == 0 if change == "run_dir=2024" else done.err.startswith("error: "), done.err
    assert "Traceback" not in done.err and done.err.count("\n") <= 1


def test_an_interruption_is_one_line(run, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "__iter__", interrupt)
    done = call([*SEARCH, *SHORT, "run_dir=interrupted"])
    check_error(done, "interrupted", "run_dir")
    assert done.status == 130


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_several_processes_do_not_search_side_by_side(run, monkeypatch, variable):
    monkeypatch.setenv(variable, "4")
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    check_error(call([*SEARCH, *SHORT, "run_dir=bad"]), variable)
    assert not Path("bad").exists()


# Killed at any moment

LONG = ["search.warmup_epochs=2", "search.epochs=2", "train.epochs=3"]


def records_of(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def without_seconds(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def killed_after(run_dir, settings, phase, epoch, number=0):
    """Start the command, wait for the record of an epoch, then for the checkpoint of that number if there is one, and
    kill it a moment later; returns what it printed."""
    command = [sys.executable, "-m", "nnas", *SEARCH, *LONG, *settings, f"run_dir={run_dir}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        last = (records_of(Path(run_dir) / "metrics.jsonl") or [{}])[-1]
        if (last.get("phase"), last.get("epoch")) == (phase, epoch):
            break
        time.sleep(0.005)
    if number:
        folder = Path(run_dir) / "checkpoint" / ("train" if phase == "train" else "search")
        while process.poll() is None and not (folder / f"{number:08d}.h5").exists():
            time.sleep(0.005)
        # An epoch takes some tenths of a second here.
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, out
    return out


@pytest.mark.parametrize("kernels", ["fast", "native"])
def test_killed_and_started_again_ends_in_the_same_bytes(run, kernels):
    """In warm-up, in the search and in training; after the last one the newest checkpoint is damaged as well."""
    settings = [f"device.kernels={kernels}"]
    for name in ("whole", "killed"):
        shutil.rmtree(name, ignore_errors=True)
    assert call([*SEARCH, *LONG, *settings, "run_dir=whole"]).status == 0
    killed = Path("killed")
    # The first while its checkpoint is being written, the others in the middle of the next epoch.
    for phase, epoch, number in (("warmup", 1, 0), ("search", 3, 3), ("train", 2, 2)):
        killed_after("killed", settings, phase, epoch, number)
        assert records_of(killed / "metrics.jsonl")[-1]["phase"] == phase
        assert not (killed / "weights.h5").exists(), "it was too late"
        if phase == "warmup":
            with open(killed / "metrics.jsonl", "a") as file:
                file.write('{"phase": "war')
    newest = sorted((killed / "checkpoint" / "train").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1000])
    done = call([*SEARCH, *LONG, *settings, "run_dir=killed"])
    assert done.status == 0, done.err
    assert f"warning: {newest}" in done.out and "goes on from the checkpoint after epoch 1" in done.out
    assert Path("whole/architecture.json").read_bytes() == (killed / "architecture.json").read_bytes()
    assert_same_arrays("whole/weights.h5", "killed/weights.h5")
    assert_same_arrays("whole/supernet.h5", "killed/supernet.h5")
    whole, resumed = (without_seconds(records_of(Path(name) / "metrics.jsonl")) for name in ("whole", "killed"))
    assert whole == resumed and len(whole) == 9
    one, other = read("whole/summary.json"), read("killed/summary.json")
    assert one["test_accuracy"] == other["test_accuracy"]
    assert one["validation_accuracy"] == other["validation_accuracy"]
    # Nothing is left over but checkpoints of other numbers: those that were made again count on.
    names, expected = (
        {
            str(path.relative_to(folder))
            for path in Path(folder).rglob("*")
            if path.suffix != ".h5" or path.parent == folder
        }
        for folder in (killed, Path("whole"))
    )
    assert names == expected
    assert [len(list((killed / "checkpoint" / phase).iterdir())) for phase in ("search", "train")] == [2, 2]


class Sender(Hook):
    """Sends this process a signal in the middle of an epoch of a phase."""

    def __init__(self, phase, number, times=1):
        self._phase, self._number, self._times = phase, number, times

    def start_step(self, progress, loop):
        if (progress.phase, progress.step) == (self._phase, 2):
            for _ in range(self._times):
                os.kill(os.getpid(), self._number)


class Diary(Hook):
    """Notes calls in a file, to be looked at afterwards."""

    def __init__(self, path):
        self._path = path

    def _note(self, text):
        with open(self._path, "a") as file:
            file.write(text + "\n")

    def start_run(self, run):
        self._note(f"start {run.path}")

    def end_run(self, run, summary):
        self._note(f"end {run.path} {summary['test_accuracy']}")

    def end_phase(self, phase, loop):
        self._note(f"end {phase}")


class Breaking(Hook):
    """Makes a weight infinite after a step of the training."""

    def end_step(self, progress, loop):
        if (progress.phase, progress.epoch, progress.step) == ("train", 2, 3):
            loop._all["classifier/b"].d = np.inf


def hook(name, kind, **arguments):
    return [
        f"+hooks.{name}._target_={__name__}.{kind.__name__}",
        *(f"+hooks.{name}.{key}={value}" for key, value in arguments.items()),
    ]


def assert_same_run(one, other):
    assert (Path(one) / "architecture.json").read_bytes() == (Path(other) / "architecture.json").read_bytes()
    for name in ("weights.h5", "supernet.h5"):
        assert_same_arrays(f"{one}/{name}", f"{other}/{name}")
    records = [without_seconds(records_of(Path(name) / "metrics.jsonl")) for name in (one, other)]
    assert records[0] == records[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", ["warmup", "search", "train"])
def test_asked_to_end_it_writes_a_checkpoint_first(run, monkeypatch, phase, number):
    command = [*SEARCH, *SHORT, "run_dir=asked", *hook("sender", Sender, phase=phase, number=int(number))]
    done = call(command)
    check_error(done, "interrupted", "run_dir")
    assert done.status == 128 + number and "ends after this step" in done.out
    last = records_of(Path("asked/metrics.jsonl"))[-1]["phase"]
    assert last == {"warmup": "costs", "search": "warmup", "train": "derived"}[phase]
    monkeypatch.setattr(Sender, "start_step", Hook.start_step)
    done = call(command)
    assert done.status == 0, done.err
    assert "and 2 steps" in done.out
    assert_same_run("asked", "run")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_asked_twice_it_ends_at_once(run):
    command = [*SEARCH, *SHORT, "run_dir=asked", *hook("sender", Sender, phase="search", number=15, times=2)]
    done = call(command)
    check_error(done, "interrupted")
    assert done.status == 128 + 15
    assert len(list(Path("asked/checkpoint/search").iterdir())) == 1


def test_hooks_are_called_and_what_is_no_hook_is_refused(run):
    done = call([*SEARCH, *SHORT, "run_dir=hooked", *hook("diary", Diary, path="diary")])
    assert done.status == 0, done.err
    accuracy = read("hooked/summary.json")["test_accuracy"]
    assert Path("diary").read_text().split("\n") == [
        *("start hooked", "end warmup", "end search", "end train", f"end hooked {accuracy}", "")
    ]
    check_error(call([*SEARCH, *SHORT, "run_dir=bad", "+hooks.mine._target_=builtins.dict"]), "hooks.mine", "Hook")
    check_error(call([*SEARCH, *SHORT, "run_dir=bad", "+hooks.mine._target_=no.such.Hook"]), "no.such")
    check_error(call([*SEARCH, *SHORT, "run_dir=bad", "hooks=mine"]), "hooks=mine")
    assert not Path("bad").exists()


def test_a_number_that_is_none_stops_the_run_with_step_and_checkpoint(run):
    command = [*SEARCH, *SHORT, "train.epochs=3", "run_dir=broken", *hook("breaking", Breaking)]
    check_error(call(command), "train epoch 2 step 4", "checkpoint after epoch 1", "broken/checkpoint/train")
    assert len(list(Path("broken/checkpoint/train").iterdir())) == 1


def test_a_second_process_in_the_folder_is_refused(run, copy):
    before = contents(copy)
    with working_in(RunFolder(copy)):
        check_error(call([*SEARCH, *SHORT, "run_dir=copy"]), "run_dir=copy", f"process {os.getpid()} ", "working in it")
        check_error(call(["resume", "run_dir=copy"]), "working in it")
    assert contents(copy) == before


def test_a_run_goes_on_to_more_epochs(run, copy):
    """Search and training; with a schedule that knows no end, to what more epochs would have led to at once."""
    constant = [f"{phase}.solver.schedule._target_=nnas.schedules.constant" for phase in ("search", "train")]
    assert call([*SEARCH, *SHORT, *constant, "run_dir=grown"]).status == 0
    first = contents("grown")
    more = ["search.epochs=2", "train.epochs=2"]
    done = call(["resume", "run_dir=grown", *more])
    assert done.status == 0, done.err
    assert "search: goes on to 2 epochs" in done.out
    assert "search: goes on from the checkpoint after epoch 2" in done.out
    assert call([*SEARCH, *SHORT, *constant, *more, "run_dir=at_once"]).status == 0
    assert_same_run("grown", "at_once")
    for name in ("architecture.json", "weights.h5", "network.nnp", "summary.json", "metrics.jsonl"):
        assert first[f"grown/{name}"] == Path(f"grown/earlier/1/{name}").read_bytes()
    done = call(["resume", "run_dir=grown", *more])
    assert done.status == 0 and "goes on" not in done.out
    check_error(call(["resume", "run_dir=grown", "search.epochs=1"]), "search.epochs (there 2, now 1)")


def test_resuming_what_is_no_run_is_an_error(run, copy):
    check_error(call(["resume"]), "run_dir")
    check_error(call(["resume", "run_dir=nowhere"]), "nowhere/command.json")
    rewrite(copy / "command.json", "[]")
    check_error(call(["resume", "run_dir=copy"]), "copy/command.json")


def test_a_seed_repeats_a_run_to_the_same_bytes(run):
    assert call([*SEARCH, *SHORT, "run_dir=again"]).status == 0
    assert_same_run("again", "run")
    assert Path("again/network.nnp").read_bytes() == Path("run/network.nnp").read_bytes()
    assert call([*SEARCH, *SHORT, "run_dir=other", "seed=1"]).status == 0
    assert Path("other/weights.h5").read_bytes() != Path("run/weights.h5").read_bytes()


def test_weights_that_changed_since_the_run_began_are_refused(run):
    shutil.copy("run/weights.h5", "inherited.h5")
    command = [*TRAIN, "architecture=run/architecture.json", "weights=inherited.h5", "run_dir=heir"]
    assert call(command).status == 0
    arrays, rest = read_arrays("inherited.h5", "weights")
    write_arrays("inherited.h5", {name: array + 1 for name, array in arrays.items()}, rest)
    check_error(call(command), "run_dir=heir", "has changed since it began: weights")


def test_a_search_begins_with_what_an_earlier_one_learnt(run):
    warm = [*SEARCH, "warm_start=run", "search.warmup_epochs=0", "search.epochs=0", "train.epochs=1"]
    done = call([*warm, "run_dir=warm"])
    assert done.status == 0, done.err
    assert "warm start: weights and probabilities of run" in done.out
    # Nothing was searched, so it ends where the earlier search had ended.
    assert_same_arrays("warm/supernet.h5", "run/supernet.h5")
    assert read("warm/architecture.json")["choices"] == read("run/architecture.json")["choices"]
    done = call([*warm, "searcher=random", "run_dir=other"])
    assert done.status == 0 and "warm start: weights alone" in done.out
    assert_same_arrays("other/supernet.h5", "run/supernet.h5")


def test_a_warm_start_from_what_does_not_fit_is_refused(run, copy):
    check_error(call([*SEARCH, *SHORT, "warm_start=nowhere", "run_dir=bad"]), "nowhere/space.json")
    check_error(call([*SEARCH, *SHORT, "warm_start=run", "space.expansions=[2]", "run_dir=bad"]), "another space")
    (copy / "supernet.h5").unlink()
    check_error(call([*SEARCH, *SHORT, "warm_start=copy", "run_dir=bad"]), "copy/supernet.h5")
    assert not Path("bad").exists()
