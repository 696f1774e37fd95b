"""The machine that is measured on: one measurement at a time, and the state that it is in."""

import fcntl
import os
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "nnas-measuring.lock"
GPU_FIELDS = {
    "clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_limit_watts": "power.limit",
    "power_mode": "pstate",
}


@contextmanager
def alone(waiting=lambda text: None):
    """Wait until no other process measures on this machine, and keep others out meanwhile.

    waiting: told who is waited for, once. Measurements would disturb each other; of other work nobody can be kept out.
    The lock is the kernel's, so a process that dies leaves none.
    """
    descriptor = _lock_file()
    if descriptor is None:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            waiting(f"waiting: process {holder if holder.isdigit() else '?'} measures on this machine")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock_file():
    """A descriptor of the file that all processes of this machine lock, of whichever user; None where it cannot be."""
    path = Path(tempfile.gettempdir()) / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError:
        return None
    with suppress(OSError):  # another user's, who made it so
        os.fchmod(descriptor, 0o666)
    return descriptor


def conditions(backend):
    """What of clocks and power mode can be read, {name: value}; with the load, the processes that wanted a core."""
    found = _gpu() if backend == "cudnn" else _cpu()
    with suppress(OSError):
        found["load"] = round(os.getloadavg()[0], 2)
    return found


def _cpu():
    scaling = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    found = {}
    for name, path in (("clock_mhz", scaling / "scaling_cur_freq"), ("clock_mhz_most", scaling / "cpuinfo_max_freq")):
        text = _read(path)
        if text.isdigit():
            found[name] = int(text) // 1000
    if "clock_mhz" not in found:
        lines = [line for line in _read(Path("/proc/cpuinfo")).splitlines() if line.startswith("cpu MHz")]
        if lines:
            found["clock_mhz"] = round(float(lines[0].partition(":")[2]))
    mode = _read(scaling / "scaling_governor")
    if mode:
        found["power_mode"] = mode
    mains = [_read(path) for path in sorted(Path("/sys/class/power_supply").glob("*/online"))]
    if mains:
        found["on_battery"] = "1" not in mains
    return found


def _gpu():
    query = [f"--query-gpu={','.join(GPU_FIELDS.values())}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        answer = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(GPU_FIELDS, (one.strip() for one in answer.splitlines()[0].split(",")), strict=False))


def _read(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
