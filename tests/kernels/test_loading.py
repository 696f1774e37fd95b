"""Loading the fast functions: the cache, the threads, and machines where they cannot be had."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnas.errors import NnasError
from nnas.kernels import loading
from nnas.kernels.threads import share_of_the_cores

START = "from nnas.kernels.loading import load; print(load(1).threads())"


def start(environment, code=START):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )


def test_the_cache_is_in_the_users_folder_and_its_name_follows_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = loading._cache_folder()
    assert folder.parent == tmp_path / "nnas" and folder == loading._cache_folder()
    source = tmp_path / "changed.py"
    source.write_text("changed")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [source])
    assert loading._cache_folder() != folder


def test_sources_at_another_place_have_a_cache_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = loading._cache_folder()
    copy = shutil.copytree(Path(loading.__file__).parent, tmp_path / "kernels")
    monkeypatch.setattr(loading, "__file__", str(copy / "loading.py"))
    assert loading._cache_folder() != folder  # since numba would compile again, and nothing would be said


@pytest.mark.parametrize("spoil", ["a file in its place", "writable by others"])
def test_without_a_folder_of_ones_own_a_temporary_one_is_taken(tmp_path, monkeypatch, spoil):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(loading.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "cache").mkdir()
    if spoil == "a file in its place":
        (tmp_path / "cache" / "nnas").write_text("")
    else:
        (tmp_path / "cache" / "nnas").mkdir()
        (tmp_path / "cache" / "nnas").chmod(0o777)
    assert loading._cache_folder().parent == tmp_path / f"nnas-{os.getuid()}"
    (tmp_path / f"nnas-{os.getuid()}").chmod(0o777)
    with pytest.raises(loading.KernelsUnavailable, match="only this user"):
        loading._cache_folder()


def test_a_second_process_compiles_nothing(tmp_path):
    loading.load(1)
    code = (
        "from nnas.kernels.loading import load; from numba.core import event\n"
        "said = []\n"
        "with event.install_recorder('numba:compile') as compiled: load(1, said.append)\n"
        "print(len(compiled.buffer), said)"
    )
    done = start({}, code)
    assert done.stdout.split("\n")[-2] == "0 []", done.stdout + done.stderr


@pytest.mark.parametrize(
    "code, part",
    [
        ("sys.modules['numba'] = None", "nnas[fast]"),
        ("import numba; numba.config.THREADING_LAYER = 'nonsense'", "numba fails here"),
    ],
)
def test_where_numba_fails_one_line_says_so(code, part):
    done = start({}, f"import sys; {code}\n{START}")
    last = done.stderr.strip().splitlines()[-1]
    assert "KernelsUnavailable" in last and part in last


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "two", 10_000])
def test_bad_numbers_of_threads(threads):
    with pytest.raises(NnasError, match=f"device.threads={threads!r}"):
        loading.load(threads)


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


@pytest.mark.parametrize(
    "files, cores",
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/gone\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/docker/1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_cores_within_affinity_and_container(tmp_path, eight_cores, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert share_of_the_cores(tmp_path) == cores


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"])
@pytest.mark.parametrize("processes, share", [("1", 8), ("3", 2), ("8", 1), ("20", 1), ("", 8)])
def test_processes_on_one_machine_divide_the_cores(tmp_path, eight_cores, monkeypatch, variable, processes, share):
    monkeypatch.setenv(variable, processes)
    assert share_of_the_cores(tmp_path) == share


@pytest.mark.parametrize(
    "given, spins",
    [({}, loading.SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "30000000000")],
)
def test_waiting_threads_soon_leave_their_cores_to_others(given, spins):
    """As libgomp itself tells it; what the user has set stays."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "verbose", **given}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, timeout=300)
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
