"""How many threads are this process's due."""

import os
from math import ceil
from pathlib import Path

# How many processes a launcher has started on this machine.
LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")


def share_of_the_cores(root=Path("/")):
    """The cores that this process may use, within its affinity and its container's limit, divided by the number of
    processes that were launched together on this machine. root: where /proc and /sys are."""
    cores = len(os.sched_getaffinity(0))
    limit = _container_limit(root)
    if limit is not None:
        cores = min(cores, max(1, ceil(limit)))
    return max(1, cores // _processes_here())


def _processes_here():
    for name in LOCAL_SIZES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return 1


def _container_limit(root):
    """The cores that control groups allow (version 2 or 1), the least over the groups around; None for no limit."""
    limits = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("" if not controllers else "cpu")
        # In a container the path of the host may be shown, which does not exist inside.
        folder = base / path.lstrip("/")
        for place in {base, folder, *(parent for parent in folder.parents if base in parent.parents)}:
            limits += _limit(place)
    return min(limits, default=None)


def _limit(folder):
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()
    return [int(quota) / int(period)] if quota.isdigit() and period.isdigit() else []


def _text(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
