"""The GPU path as far as it goes without a GPU: a stand-in for the loader, and for nnabla's communicator."""

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import nnabla as nn
import nnabla.functions as F
import numpy as np
import processes
import pytest
from omegaconf import OmegaConf

from nnas import communicator as communicators
from nnas import cuda_libraries
from nnas.commands.doctor import doctor_text
from nnas.commands.session import _gpu_of
from nnas.deciders import Fixed, listed
from nnas.errors import NnasError
from nnas.layers import EVALUATION, SAMPLED_EVALUATION, SHIPPED, TRAINING


class Loader:
    """Opens what is there, by path or by name; opened: what it did, in order."""

    def __init__(self, *there):
        self._there, self.opened = there, []

    def __call__(self, path, mode):
        assert mode == ctypes.RTLD_GLOBAL
        if path not in self._there:
            raise OSError(f"{path}: cannot open shared object file")
        self.opened.append(path)


@pytest.fixture
def folder(tmp_path):
    """A folder of packages with all libraries but two: the driver, and cuFFT."""
    for number, name in enumerate(cuda_libraries.LIBRARIES):
        if name not in ("libcuda.so.1", "libcufft.so.11"):
            path = tmp_path / f"package{number}" / "lib" / name
            path.parent.mkdir(parents=True)
            path.touch()
    return tmp_path


def test_libraries_are_loaded_from_packages_then_from_the_system(folder):
    inside = sorted(map(str, folder.glob("*/lib/*")))
    loader = Loader(*inside, "libcuda.so.1")
    found = {one.name: one for one in cuda_libraries.load(loader, [folder])}
    assert found.keys() == cuda_libraries.LIBRARIES.keys()
    assert found["libcuda.so.1"].place == "the system"
    assert found["libcufft.so.11"].place is None and found["libcufft.so.11"].package == "nvidia-cufft-cu12"
    assert sorted(one.place for one in found.values() if one.place not in (None, "the system")) == inside
    # What a library needs is there before it.
    order = [path.rpartition("/")[2] for path in loader.opened]
    assert order.index("libcublasLt.so.12") < order.index("libcublas.so.12") < order.index("libcusolver.so.11")


def test_a_library_that_does_not_load_says_why(folder):
    found = {one.name: one for one in cuda_libraries.load(Loader(), [folder])}
    assert all(one.place is None for one in found.values())
    assert "cannot open" in found["libcudnn.so.8"].fault
    assert found["libcufft.so.11"].fault is None


def test_nothing_is_loaded_without_the_extension(monkeypatch):
    monkeypatch.setattr(cuda_libraries, "has_extension", lambda: False)
    monkeypatch.setattr(cuda_libraries, "load", lambda: pytest.fail("it loaded"))
    assert cuda_libraries.preload() == []


def test_doctor_says_what_is_missing(folder):
    loader = Loader(*map(str, folder.glob("*/lib/*")))
    text = doctor_text(cuda_libraries.load(loader, [folder]), True, False, None)
    assert "libcuda.so.1         missing: it comes with the driver" in text
    assert "to mend: pip install nvidia-cufft-cu12\n" in text
    assert "without a GPU, take device=cpu" in text and "all is there" not in text
    assert "mpi4py               missing: pip install 'nnas[mpi]'" in text
    (folder / "more" / "lib").mkdir(parents=True)
    (folder / "more" / "lib" / "libcufft.so.11").touch()
    loader = Loader(*map(str, folder.glob("*/lib/*")), "libcuda.so.1")
    text = doctor_text(cuda_libraries.load(loader, [folder]), True, True, "/bin/mpirun")
    assert "missing" not in text and "all is there" in text and "/bin/mpirun" in text


def test_each_process_of_a_machine_takes_its_gpu():
    assert [_gpu_of(SimpleNamespace(place=place), None) for place in (0, 3)] == ["0", "3"]
    ids = OmegaConf.create([2, 5])
    assert [_gpu_of(SimpleNamespace(place=place), ids) for place in (0, 1)] == ["2", "5"]
    with pytest.raises(NnasError, match=r"device.ids=\[2, 5\]: this machine has more processes"):
        _gpu_of(SimpleNamespace(place=2), ids)
    for wrong in ([0, 0], [-1], ["a"], "all"):
        with pytest.raises(NnasError, match="list of different numbers"):
            _gpu_of(SimpleNamespace(place=0), OmegaConf.create({"ids": wrong}).ids)


class Gpus:
    """nnabla's communicator of two processes, whose other one has 1 everywhere."""

    def __init__(self, context):
        self.context, self.calls = context, []

    def init(self):
        self.calls.append("init")

    def all_reduce(self, arrays, division, inplace):
        self.calls.append((len(arrays), division, inplace))
        assert all(isinstance(array, nn.NdArray) for array in arrays)
        for array in arrays:
            array.data = (array.data + 1) / 2


@pytest.fixture
def two(monkeypatch):
    """Two processes, of which this is the second, with a stand-in for nnabla's communicator."""
    monkeypatch.setattr(communicators.nnabla_communicators, "MultiProcessDataParallelCommunicator", Gpus)
    local = SimpleNamespace(Get_rank=lambda: 1)
    world = SimpleNamespace(Get_rank=lambda: 1, Get_size=lambda: 2, Split_type=lambda kind, key: local)
    return communicators.Mpi(SimpleNamespace(COMM_TYPE_SHARED=0), world)


def test_on_gpus_nnablas_communicator_averages(two):
    context = nn.Context()
    communicator = communicators.on_gpus(two, context)
    assert (communicator.rank, communicator.size, communicator.place, communicator.leads) == (1, 2, 1, False)
    gradient, moves = nn.NdArray.from_numpy_array(np.float32([3, 5])), np.float32([7])
    communicator.average([gradient, moves])
    assert gradient.data.tolist() == [2, 3] and moves.tolist() == [4]
    assert communicator._gpus.calls == ["init", (2, True, False)]
    alone = communicators.Alone()
    assert communicators.on_gpus(alone, context) is alone


def test_synchronized_normalization_needs_as_many_micro_batches_on_each_gpu(two):
    """Otherwise a process would wait for others that have none left."""
    assert communicators.on_gpus(two, nn.Context()).normalizing is None
    communicator = communicators.on_gpus(two, nn.Context(), synchronized=True)
    assert communicator.normalizing is communicator._gpus
    communicator.check_batch("search", 8, 4)
    with pytest.raises(NnasError, match="each of the 2 processes needs as many; set search.micro_batches=4"):
        communicator.check_batch("search", 8, 5)
    with pytest.raises(NnasError, match="2 processes need one each"):
        communicator.check_batch("search", 8, 1)


def test_only_weight_steps_are_normalized_over_the_gpus(monkeypatch):
    """The architectures of a REINFORCE update differ between processes, and evaluation is of running statistics."""
    together = []

    def synchronized(x, beta, gamma, mean, variance, comm, **settings):
        together.append(comm)
        return F.batch_normalization(x, beta, gamma, mean, variance, **settings)

    monkeypatch.setattr(F, "sync_batch_normalization", synchronized)
    network = processes.network()
    x, choices = nn.Variable((2, *network.input_shape)), listed(network).complete(lambda decision: decision.options[0])
    counts = []
    for mode in (TRAINING, SAMPLED_EVALUATION, EVALUATION, SHIPPED):
        with nn.parameter_scope("", {}):
            network(x, Fixed(choices), replace(mode, synchronized="all GPUs"))
            counts.append(len(together))
    normalized = counts[0]
    assert normalized > 2 and counts == [normalized] * 4 and set(together) == {"all GPUs"}


def test_search_and_training_hand_the_communicator_on(monkeypatch):
    """To all normalizations of weight steps: none of those of a process's own is left in their graphs."""
    alone = communicators.Alone()
    alone.normalizing = "all GPUs"
    together = []

    def synchronized(*operands, **settings):
        together.append(operands[5])
        return F.batch_normalization(*operands[:5], **settings)

    monkeypatch.setattr(F, "sync_batch_normalization", synchronized)
    processes.make_search("reinforce", alone)
    searched = len(together)
    processes.make_training(alone)
    assert searched and len(together) > searched and set(together) == {"all GPUs"}
