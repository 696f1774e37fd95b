"""Several processes, one search: by mpirun, against one process that does the same."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import processes
import pytest

from nnas import checkpoint
from nnas import communicator as communicators
from nnas.communicator import Alone
from nnas.errors import NnasError
from nnas.rundir import RunFolder

HERE = Path(__file__).parent
MPIRUN = Path(sys.executable).parent / "mpirun"
pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="mpirun is not installed")


def mpirun(*parts, cwd, limit=400):
    """parts: (number of processes, argument, ...), for each program."""
    command = [str(MPIRUN), "--oversubscribe", "--bind-to", "none"]
    for number, *arguments in parts:
        command += [*([":"] if number is not parts[0][0] or len(command) > 4 else []), "-n", str(number)]
        command += [sys.executable, *map(str, arguments)]
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")]),
        "OMPI_MCA_mpi_yield_when_idle": "1",  # whoever waits leaves the core to others
    }
    start = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=limit)
    return SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr, seconds=time.monotonic() - start)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process ends with; in `stopped` a search of it that was stopped in the middle of an epoch."""
    folder = tmp_path_factory.mktemp("alone")
    search = processes.make_search("reinforce", Alone())
    for progress in search:
        if (progress.epoch, progress.step) == (2, 2):
            break
    checkpoint.save(folder / "stopped", search.state())
    ends = processes.runs(Alone())
    return SimpleNamespace(ends=ends | {"resumed": ends["reinforce"]}, stopped=folder / "stopped")


@pytest.fixture(scope="module", params=[2, 4])
def many(request, alone, tmp_path_factory):
    """What several processes ended with."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "stopped").symlink_to(alone.stopped)
    done = mpirun((request.param, HERE / "processes.py", "together", folder), cwd=folder)
    assert done.status == 0, done.out + done.err
    found = json.loads((folder / "found.json").read_text())
    assert found["size"] == request.param
    return SimpleNamespace(**found, ended=checkpoint.load(folder / "ended")[0])


def assert_near(one, other, place=""):
    """Equal to float32 rounding, over some updates."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_near(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_near(*pair, f"{place}/{number}")
    elif isinstance(one, float | np.ndarray):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5, err_msg=place)
    else:
        assert one == other, place


@pytest.mark.parametrize("name", [*processes.SEARCHERS, *processes.MIXING, "uneven", "train"])
def test_many_processes_are_one(name, many, alone):
    """Weights, momentum, running statistics, alphas, baseline and generator after three epochs, and all records; with
    three architectures an update, and (uneven) five micro-batches, which two and four processes do not divide."""
    if name == "uneven" and many.size == 4:
        assert len(set(many.alike[name])) == 1
    one = alone.ends[name]
    assert_near(many.ended[name], one["state"], name)
    assert_near(many.records[name], one["records"], name)
    assert_near(many.best[name], one.get("best"), name)


def test_all_processes_hold_the_same_bytes(many):
    assert {name: len(set(states)) for name, states in many.alike.items()} == dict.fromkeys(many.alike, 1)


def test_evaluation_is_of_every_sample_once(many, alone):
    assert_near(many.test, alone.ends["train"]["test"])


def test_another_number_of_processes_goes_on_in_the_middle_of_an_epoch(many, alone):
    assert_near(many.ended["resumed"], alone.ends["resumed"]["state"])


def test_each_process_reads_its_own_samples(many):
    order, drawn = many.shards["order"], many.shards["drawn"]
    assert sorted(sum(drawn, [])) == sorted(order)
    assert {len(one) for one in drawn} == {len(order) // many.size}
    micro_batches = np.array(order).reshape(-1, 4, 2)
    for rank, samples in enumerate(drawn):
        assert samples == micro_batches[:, rank :: many.size].ravel().tolist()


def test_architectures_are_shared_out_by_what_they_cost(many):
    # 5 4 2 1 1 1 1 1: in turn, as they come, 2 processes would have 11 and 5.
    assert many.largest_share == {2: 8, 4: 5}[many.size]


def test_a_process_that_goes_another_way_is_named(many):
    for text in many.diverging:
        assert text == f"warmup epoch 1: what is learnt: process 1 of {many.size} differs from process 0"


def test_a_process_with_another_configuration_is_refused(many):
    last = many.size - 1
    text = f"the configuration: process {last} of {many.size} differs from process 0 in seed"
    text += f" (0 in process 0, 1 in process {last})"
    assert many.differing == [text] * many.size


def test_a_process_without_a_micro_batch_is_refused(many):
    size = many.size
    assert f"set search.micro_batches={size} search.micro_batch={8 // size}, which keep the 8 samples" in many.too_few
    assert f"set train.micro_batches={size} train.micro_batch=1" in many.too_few_and_odd
    assert "keep" not in many.too_few_and_odd


# Whole commands

COMMAND = ["proxyless", "space.name=tiny", "space.stages=[{channels: 4, blocks: 2, stride: 2}]", "space.head=8"]
COMMAND += ["space.expansions=[2]", "space.kernels=[3, 5]", "space.stem={channels: 4, stride: 2}", "device=cpu"]
COMMAND += ["data=synthetic", "data.training=40", "data.validation=16", "data.test=16", "constraints=[macs]"]
COMMAND += [f"{phase}.{key}" for phase in ("search", "train") for key in ("micro_batch=4", "micro_batches=2")]
COMMAND += [
    "device.kernels=native",
    "search.validation_batch=16",
    "search.steps_per_update=3",
    "search.warmup_epochs=1",
    "search.epochs=1",
]
COMMAND += ["constraints.macs.fraction=0.9", "train.epochs=0", "run_dir=run"]


def is_alive(process):
    """Whether it runs; one that nobody waited for yet is dead."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("kind, message", [("SIGKILL", ""), ("raise", "ZeroDivisionError: as foretold")])
def test_a_process_that_dies_takes_all_along(kind, message, tmp_path):
    done = mpirun((2, HERE / "processes.py", kind, *COMMAND), cwd=tmp_path)
    assert done.status != 0
    assert message in done.err
    assert done.err.count("Traceback") == (kind == "raise")
    for rank in range(2):
        assert not is_alive((tmp_path / f"{rank}.pid").read_text())
    assert done.seconds < 60  # with start and first epoch
    state, notes = checkpoint.load(tmp_path / "run" / "checkpoint" / "search")
    assert (state["state"]["epoch"], state["state"]["step"], notes) == (1, 0, [])


def test_a_signal_to_one_ends_all_after_a_checkpoint(tmp_path):
    """Then one process goes on alone."""
    done = mpirun((2, HERE / "processes.py", "SIGTERM", *COMMAND), cwd=tmp_path)
    assert done.err.count("error: interrupted") == 1
    assert done.status != 0
    state, _ = checkpoint.load(tmp_path / "run" / "checkpoint" / "search")
    assert (state["state"]["epoch"], state["state"]["step"]) == (1, 2)
    assert [record["phase"] for record in RunFolder(tmp_path / "run").records()] == ["costs", "warmup"]
    done = mpirun((1, "-m", "nnas", *COMMAND), cwd=tmp_path)
    assert done.status == 0, done.err
    assert "goes on from the checkpoint after epoch 1 and 2 steps, with 1 processes instead of 2" in done.out
    assert RunFolder(tmp_path / "run").summary.exists()


def test_a_process_without_data_ends_all(tmp_path):
    """What is there for the first process is not for the second, which stands in another folder."""
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    (tmp_path / "here" / "images").mkdir()
    command = ["proxyless", "data=image_folder", "data.path=images", "device=cpu", f"run_dir={tmp_path / 'run'}"]
    code = "import os, sys; os.chdir(sys.argv.pop(1)); from nnas.app import run_command; "
    code += "sys.exit(run_command(sys.argv[1:]))"
    done = mpirun((1, "-c", code, "here", *command), (1, "-c", code, "there", *command), cwd=tmp_path)
    assert done.status != 0
    assert "images" in done.err and done.err.count("error:") == 1
    assert not (tmp_path / "run").exists()


# Without mpirun


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_several_processes_without_mpi4py_are_refused(variable, monkeypatch):
    monkeypatch.setenv(variable, "4")
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(NnasError, match=rf"{variable}=4: .*pip install 'nnas\[mpi\]'"):
        communicators.find()


def test_a_launcher_of_another_mpi_is_refused(monkeypatch):
    world = SimpleNamespace(Get_size=lambda: 1)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=None))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(COMM_WORLD=world))
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(NnasError, match="mpi4py sees 1"):
        communicators.find()


def test_one_process_under_a_launcher_is_alone(monkeypatch):
    for variable in communicators.LAUNCHERS:
        monkeypatch.setenv(variable, "1")
    assert type(communicators.find()) is Alone
