"""A run whose disk is full, or some of whose files are gone or cut off: it says so in one line, or ends in the same
bytes; it never ends in other ones.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnas import app, checkpoint, rundir
from nnas.checkpoint import read_arrays, save
from nnas.commands import shipping
from nnas.files import PARTIAL
from nnas.reports.report import write_report

SEARCH = ["proxyless", "space.name=tiny", "space.stages=[{channels: 4, blocks: 2, stride: 2}]", "space.head=8"]
SEARCH += ["space.expansions=[2]", "space.kernels=[3, 5]", "space.stem={channels: 4, stride: 1}", "bound_fraction=0.9"]
SEARCH += ["data.validation=100", "data.test=1500", "data.copies=1", "device=cpu", "device.kernels=native"]
SEARCH += ["estimator@constraints.latency.estimator=macs", "search.micro_batch=16", "search.steps_per_update=6"]
SEARCH += ["search.validation_batch=32", "search.warmup_epochs=1", "search.epochs=1", "train.epochs=2"]


def run(folder):
    """Run the command in a folder; returns its status and what it wrote to standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = app.run_command([*SEARCH, f"run_dir={folder}"])
    return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())


def check_error(done, part):
    assert done.status == 1 and done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    assert part in done.err, done.err


def result(folder):
    """What a run came to, in bytes."""
    summary = json.loads((folder / "summary.json").read_text())
    arrays, _ = read_arrays(folder / "weights.h5", "weights")
    return {
        "architecture": (folder / "architecture.json").read_bytes(),
        "weights": {name: array.tobytes() for name, array in arrays.items()},
        "accuracy": summary["test_accuracy"],
    }


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Stop(Exception):
    """Ends a command in the middle, as a kill does."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder of the runs; what is measured and drawn at the end of a run is left out here, since it takes
    seconds."""
    folder, before, path = tmp_path_factory.mktemp("runs"), os.getcwd(), list(sys.path)
    os.chdir(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "_measured", lambda *_: None)
        patch.setattr(shipping, "write_report", lambda _: None)
        yield folder
    os.chdir(before)
    sys.path[:] = path


@pytest.fixture(scope="module")
def whole(home):
    assert run("whole").status == 0
    return result(home / "whole")


# Full disks


@contextlib.contextmanager
def small_disk(folder):
    """Yield a function that sets the size of the file system at a folder."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a file system of a given size cannot be mounted here: {made.stderr.strip()}")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def small_files(folder):
    """Yield a function that sets the size up to which this process can write a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


DISKS = [(small_disk, "No space left on device"), (small_files, "File too large")]


@pytest.mark.parametrize("limited, reason", DISKS)
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(whole, home, limited, reason):
    folder, stages = home / "full", []
    folder.mkdir()
    with limited(folder) as give:
        for size in (2**power for power in range(12, 24)):
            give(size)
            before = {path for path in folder.rglob("*.h5")}
            done = run(folder)
            if done.status == 0:
                break
            check_error(done, reason)
            assert str(folder) in done.err
            # What was there and is not out of date is whole, and nothing half is left.
            assert not list(folder.rglob(f"*{PARTIAL}"))
            for path in before & set(folder.rglob("*.h5")):
                read_arrays(path, "what was written before")
            stages.append(sorted(path.name for path in folder.iterdir()))
        assert result(folder) == whole
        # It was full at different places; a file's size is limited at one, that of the largest file.
        assert len({tuple(stage) for stage in stages}) >= (2 if limited is small_disk else 1)
    shutil.rmtree(folder)


@pytest.mark.parametrize("limited, reason", DISKS)
def test_a_checkpoint_that_does_not_fit_leaves_those_before(tmp_path, limited, reason):
    state = {"a": checkpoint.np.zeros(30_000), "b": 1}
    with limited(tmp_path) as give:
        give(2**20)
        save(tmp_path / "c", state)
        for size in (2**18 + 2**12, 2**18 + 2**15, 2**18 + 2**17, 2**18 + 2**17 + 2**16):
            size = size if limited is small_disk else size - 2**18
            give(size)
            with pytest.raises(OSError, match=reason) as caught:
                save(tmp_path / "c", {**state, "b": 2})
            assert "00000002.h5" in caught.value.filename
            assert checkpoint.load(tmp_path / "c")[0]["b"] == 1
            assert len(list((tmp_path / "c").iterdir())) == 1


# Files that are gone or cut off


@pytest.fixture(scope="module")
def stages(whole, home):
    """{stage: a run that was ended there}"""
    for name, phase in (("searching", "warmup"), ("training", "train")):
        with pytest.MonkeyPatch.context() as patch:
            original = rundir.RunFolder.append

            def append(self, record, samples=None, original=original, phase=phase):
                original(self, record, samples)
                self.ended = record["phase"] == phase

            saved = rundir.RunFolder.save_checkpoint

            def save_checkpoint(self, *state, saved=saved):
                saved(self, *state)
                if self.ended:
                    raise Stop

            patch.setattr(rundir.RunFolder, "append", append)
            patch.setattr(rundir.RunFolder, "save_checkpoint", save_checkpoint)
            with pytest.raises(Stop):
                run(name)
    shutil.copytree("whole", "finished")
    return {name: home / name for name in ("searching", "training", "finished")}


@pytest.mark.parametrize("damage", ["removed", "cut off"])
@pytest.mark.parametrize("stage", ["searching", "training", "finished"])
def test_a_file_that_is_damaged_while_a_run_rests(whole, stages, home, stage, damage):
    results = {}
    for name in contents(stages[stage]):
        folder = home / "damaged"
        shutil.copytree(stages[stage], folder)
        path = folder / name
        if damage == "removed":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)
        before = contents(folder)
        done = run("damaged")
        if done.status == 0:
            assert result(folder) == whole, name
            assert path.name != "metrics.jsonl" or f"warning: damaged/{name}" in done.out, done.out
            results[str(name)] = "the same again"
        else:
            check_error(done, "damaged")
            assert contents(folder) == before, f"{name}: something was changed by a command that refuses"
            results[str(name)] = done.err
        shutil.rmtree(folder)
    # Without its configuration a folder is not known as that of a run.
    assert results["config.yaml"].startswith("error: ")
    assert "the same again" in results.values()


def test_a_report_that_is_damaged_is_made_again(whole, home, monkeypatch):
    monkeypatch.setattr(shipping, "write_report", write_report)
    shutil.copytree("whole", "drawn")
    assert run("drawn").status == 0
    page, picture = Path("drawn/report.html"), Path("drawn/report/decisions.png")
    os.truncate(page, 1000)
    picture.unlink()
    assert run("drawn").status == 0
    assert page.read_text().rstrip().endswith("</html>") and picture.read_bytes().startswith(b"\x89PNG")


# The clock


def test_a_clock_that_is_set_back(home, monkeypatch):
    class Before(datetime):
        @classmethod
        def now(cls, *arguments):
            return cls(1999, 12, 31, 23, 59, 59)

    monkeypatch.setattr(rundir, "datetime", Before)
    folders = []
    for _ in range(2):
        done = run("null")
        assert done.status == 0, done.err
        (folder,) = set(Path("runs").iterdir()) - set(folders)
        folders.append(folder)
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert all(record.get("seconds", 0) >= 0 for record in records)
    assert [folder.name for folder in folders] == ["1999-12-31_23-59-59_search", "1999-12-31_23-59-59_search_2"]
