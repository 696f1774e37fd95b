"""How processes agree. One process is Alone, with the same calls as a communicator of many.

All processes of a search make the same calls of a communicator in the same order.
"""

import ctypes
import json
import os
import socket
import sys
import time
from importlib import import_module

import nnabla as nn
import numpy as np
from nnabla import communicators as nnabla_communicators

from nnas.errors import NnasError, one_line
from nnas.files import leaves

# How many processes a launcher has started, and which of them this is.
LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
}
LARGE = 2**15  # numbers of an array that is sent as it lies; smaller ones go together, in one buffer
MOST_VIEWS = 20_000  # of arrays, that are kept
CPU = nn.Context(["cpu:float"], "CpuCachedArray", "")
GRACE = 2.0  # seconds after which another process than the first tells its error: most errors are of all alike
PAUSE = 0.01  # seconds between looks at whether a long work of the first process is done


class Alone:
    """The communicator of one process. leads: whether this process is the one that writes and speaks. place: its rank
    among those on its machine. normalizing: nnabla's communicator for synchronized batch normalization, or None."""

    rank, size, place, leads, normalizing = 0, 1, 0, True, None

    def share(self, count):
        """Which of `count` pieces of work are this process's: disjoint, and numbers that differ by at most one."""
        return range(self.rank, count, self.size)

    def balanced_share(self, costs):
        """Which pieces of work are this process's, given what each of them costs: the dearest is given out first, to
        whoever has the least to do (longest processing time first; Graham, 1969)."""
        loads, mine = [0.0] * self.size, []
        for number in sorted(range(len(costs)), key=lambda one: (-costs[one], one)):
            least = loads.index(min(loads))
            loads[least] += costs[number]
            if least == self.rank:
                mine.append(number)
        return sorted(mine)

    def weight(self, count):
        """What one of `count` pieces of shared work counts in its process's part of an average over all of them."""
        return self.size / count

    def check_batch(self, section, micro_batch, micro_batches):
        """Raise NnasError if a process would have none of an update's micro-batches."""

    def average(self, arrays):
        """Average nnabla NdArrays, or float32 numpy arrays, over the processes, in place."""

    def sum(self, numbers):
        """The sums of numbers over the processes, the same on all of them: a float64 array."""
        return np.array(numbers, np.float64)

    def largest(self, number):
        """The largest of the processes' integers."""
        return number

    def gather(self, value):
        """What each process has, by rank; a small value that JSON can hold."""
        return [value]

    def once(self, work):
        """What work(), done by the first process alone, returned: a value that JSON can hold. The others wait."""
        return work()

    def in_turn(self, work):
        """What work() returned; one process of each machine does it before the others, who find what that one made."""
        return work()

    def check_alike(self, what, make):
        """Raise NnasError, naming the processes, unless make() is the same value on all of them."""

    def barrier(self):
        """Wait until all processes are here."""

    def named(self, text):
        """A text for people that says of which process it is."""
        return text

    def abort(self, status):
        """End all processes; returns for one alone, which ends by itself."""

    def before_speaking(self):
        """Leave to the first process to tell an error that all have alike."""


class Mpi(Alone):
    """Processes that were started together by mpirun or srun, over mpi4py. world: mpi4py's communicator of them."""

    def __init__(self, mpi, world):
        self._mpi, self._world = mpi, world
        self._local = world.Split_type(mpi.COMM_TYPE_SHARED, world.Get_rank())
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self.place, self.leads = self._local.Get_rank(), self.rank == 0
        self._buffer, self._views = np.empty(0, np.float32), {}

    def check_batch(self, section, micro_batch, micro_batches):
        if micro_batches >= self.size:
            return
        samples = micro_batch * micro_batches
        each = max(1, samples // self.size)
        raise NnasError(
            f"{section}.micro_batches={micro_batches}: {self.size} processes need one each, at least; set "
            f"{section}.micro_batches={self.size} {section}.micro_batch={each}"
            + (f", which keep the {samples} samples of an update" if each * self.size == samples else "")
        )

    def average(self, arrays):
        values = [one if isinstance(one, np.ndarray) else self._view(one) for one in arrays if one.size]
        large = [one for one in values if one.size >= LARGE and one.flags.c_contiguous]
        small = [one for one in values if one.size < LARGE or not one.flags.c_contiguous]
        total = sum(one.size for one in small)
        if self._buffer.size < total:
            self._buffer = np.empty(total, np.float32)
        together = self._buffer[:total]
        if small:
            np.concatenate([one.ravel() for one in small], out=together)
        for one in [*large, together]:
            self._world.Allreduce(self._mpi.IN_PLACE, one)
            one *= np.float32(1 / self.size)
        start = 0
        for one in small:
            one[...] = together[start : start + one.size].reshape(one.shape)
            start += one.size

    def _view(self, array):
        """The memory of a nnabla NdArray, without a copy. Kept by address: to make a view takes longer than to send a
        small array."""
        address, size = array.data_ptr(np.float32, CPU), array.size
        view = self._views.get((address, size))
        if view is None:
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            memory = (ctypes.c_float * size).from_address(address)
            view = self._views[address, size] = np.frombuffer(memory, np.float32)
        return view

    def sum(self, numbers):
        total = np.array(numbers, np.float64)
        self._world.Allreduce(self._mpi.IN_PLACE, total)
        return total

    def largest(self, number):
        found = np.array(number, np.int64)
        self._world.Allreduce(self._mpi.IN_PLACE, found, self._mpi.MAX)
        return int(found)

    def gather(self, value):
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = np.empty(self.size, np.int64)
        self._world.Allgather(np.array([text.size], np.int64), lengths)
        joined = np.empty(lengths.sum(), np.uint8)
        self._world.Allgatherv(text, [joined, lengths])
        ends = np.cumsum(lengths)
        return [json.loads(joined[end - length : end].tobytes()) for end, length in zip(ends, lengths, strict=True)]

    def once(self, work):
        made = work() if self.leads else None
        self._wait(self._world)
        return self.gather(made)[0]

    def in_turn(self, work):
        if self.place == 0:
            made = work()
            self._wait(self._world)
            return made
        self._wait(self._world)
        return work()

    def check_alike(self, what, make):
        values = self.gather(make())
        wrong = [str(rank) for rank, value in enumerate(values) if value != values[0]]
        if not wrong:
            return
        keys = ""
        if all(isinstance(value, dict) for value in values):
            found = [dict(leaves(value)) for value in values]
            other = found[int(wrong[0])]
            key = next(key for key in sorted(other.keys() | found[0].keys()) if other.get(key) != found[0].get(key))
            keys = f" in {key} ({found[0].get(key)} in process 0, {other.get(key)} in process {wrong[0]})"
        raise NnasError(f"{what}: process {', '.join(wrong)} of {self.size} differs from process 0{keys}")

    def barrier(self):
        self._world.Barrier()

    def named(self, text):
        return f"process {self.rank} of {self.size}, on {socket.gethostname()}: {text}" if self.rank else text

    def abort(self, status):
        self._world.Abort(status)

    def before_speaking(self):
        if not self.leads:
            time.sleep(GRACE)

    def _wait(self, world):
        """A barrier that leaves the core to others: MPI's own spins."""
        request = world.Ibarrier()
        while not request.Test():
            time.sleep(PAUSE)


class Nccl(Mpi):
    """The same for processes with a GPU each, whose arrays are averaged by nnabla's communicator, over NCCL.

    synchronized: whether batch normalization takes its statistics over the processes."""

    def __init__(self, mpi, world, context, synchronized):
        super().__init__(mpi, world)
        self._context = context
        self._gpus = nnabla_communicators.MultiProcessDataParallelCommunicator(context)
        self._gpus.init()
        self.normalizing = self._gpus if synchronized else None

    def check_batch(self, section, micro_batch, micro_batches):
        super().check_batch(section, micro_batch, micro_batches)
        if self.normalizing is not None and micro_batches % self.size:
            raise NnasError(
                f"{section}.micro_batches={micro_batches}: with device.synchronized_bn=true each of the {self.size} "
                f"processes needs as many; set {section}.micro_batches={self.size * (micro_batches // self.size)}"
            )

    def average(self, arrays):
        on_gpu = [nn.NdArray.from_numpy_array(one) if isinstance(one, np.ndarray) else one for one in arrays]
        with nn.context_scope(self._context):
            self._gpus.all_reduce(on_gpu, division=True, inplace=False)
        for one, averaged in zip(arrays, on_gpu, strict=True):
            if isinstance(one, np.ndarray):
                one[...] = averaged.data


def find():
    """The communicator of this process; an error rather than one search per process by mistake."""
    variable, launched = _launched()
    if launched == 1:
        return Alone()
    try:
        mpi = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        _speak_in_turn(variable)
        raise NnasError(
            f"{variable}={launched}: {launched} processes were started, and there is nothing by which they could "
            f"search together ({one_line(error)}); pip install 'nnas[mpi]', or start one process"
        ) from None
    world = mpi.COMM_WORLD
    if world.Get_size() != launched:
        _speak_in_turn(variable)
        raise NnasError(
            f"{variable}={launched}: {launched} processes were started, but mpi4py sees {world.Get_size()}: it belongs "
            "to another MPI than the launcher; start with the mpirun beside this Python, or with srun --mpi=pmix"
        )
    _end_all_with_this_one(world)
    return Mpi(mpi, world)


def on_gpus(communicator, context, synchronized=False):
    """The communicator for processes that train in a context of nnabla's CUDA extension; synchronized: as in Nccl."""
    if not isinstance(communicator, Mpi):
        return communicator
    return Nccl(communicator._mpi, communicator._world, context, synchronized)


def _launched():
    """(variable, number of processes) of the launcher of this process."""
    for variable in LAUNCHERS:
        number = os.environ.get(variable, "")
        if number.isdigit() and int(number) > 1:
            return variable, int(number)
    return None, 1


def _speak_in_turn(variable):
    if os.environ.get(LAUNCHERS[variable], "0") != "0":
        time.sleep(GRACE)


def _end_all_with_this_one(world):
    """Whatever ends this process by an error ends all: they would wait for it without end."""
    show = sys.excepthook

    def end(kind, error, trace):
        show(kind, error, trace)
        sys.stderr.flush()
        world.Abort(1)

    sys.excepthook = end
