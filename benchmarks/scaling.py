"""How much faster are several processes, one thread each, than one?

For weight steps and REINFORCE updates (10 architectures x 64 images) of mobilenet_cifar10, with a batch of 64 in all:
images a second, and what share of a step is compute, communication and waiting for others. weight_step_gain,
reinforce_gain: images a second of the most processes over those of one, the smaller of both kinds of kernels; runs
take turns, and the median counts. allreduce_*: the gradients of one path, averaged as in a step, against a plain
Allreduce of one buffer of that size.

The model of GPUs, printed last: a ring all-reduce sends and receives 2 (n - 1) / n of the gradients of one path at each
of n processes, after the backward pass (it does not overlap with it). Architectures of a REINFORCE update are shared
out whole, with nothing but accuracies to be sent; beyond as many processes as samples it does not get faster, and
searcher.samples should grow. Where communication is too slow for weight steps: more micro-batches a process (their
gradients are added before they are sent), then half precision or overlapping, which are not built.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import nnabla.solvers as S
import numpy as np

from estimators.macs import MACs
from nnas import communicator as communicators
from nnas import config
from nnas.classifier import Classification
from nnas.deciders import listed
from nnas.kernels.loading import load
from nnas.pricing import price
from nnas.search import Supernet, Validation
from nnas.updates import WeightUpdate

BATCH = 64
SAMPLES = 10
MODELS = (
    # GPUs, link, bytes a second and direction (assumed)
    (8, "PCIe 4", 20e9),
    (8, "NVLink", 200e9),
    (64, "10 Gbit Ethernet", 1.1e9),
    (64, "100 Gbit InfiniBand", 11e9),
)
STEP_SECONDS = 0.06  # of 64 images on a GPU (assumed)
IMAGENET_PATH_BYTES = 4 * 3.5e6  # as many parameters as MobileNetV2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, one launch, fast kernels only")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="numbers of processes; 1 is needed")
    parser.add_argument("--worker", nargs=3, metavar=("KERNELS", "MICRO_BATCHES", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kernels, micro_batches, steps = options.worker
        work(kernels, int(micro_batches), int(steps))
        return
    most, rounds = max(options.processes), 1 if options.quick else 5
    gains = {"weight_step": [], "reinforce": []}
    for kernels in ("fast",) if options.quick else ("native", "fast"):
        found = {number: [] for number in options.processes}
        for _ in range(rounds):
            for number, figures in found.items():
                figures.append(launched(number, kernels, most, 3 if options.quick else 5))
        medians = {
            number: {name: statistics.median(one[name] for one in figures) for name in figures[0]}
            for number, figures in found.items()
        }
        for number, figures in medians.items():
            for name, figure in figures.items():
                print(f"{name}_{kernels}_{number}: {figure:.4g}")
        for name, values in gains.items():
            rate = f"{name}_images_a_second"
            values.append(medians[most][rate] / medians[1][rate])
            print(f"{name}_gain_{kernels}: {values[-1]:.3f}", flush=True)
    for name, values in gains.items():
        print(f"{name}_gain: {min(values):.3f}")
    model()


def model():
    """Print how weight steps would scale on GPUs."""
    for gpus, link, bandwidth in MODELS:
        sent = 2 * (gpus - 1) / gpus * IMAGENET_PATH_BYTES
        seconds = sent / bandwidth
        efficiency = STEP_SECONDS / (STEP_SECONDS + seconds)
        print(
            f"model_{gpus}_gpus_{link.replace(' ', '_')}: {efficiency:.3f} of linear, {sent / 1e6:.1f} MB and "
            f"{1e3 * seconds:.2f} ms a step of {1e3 * STEP_SECONDS:.0f} ms"
        )
    enough = 2 * IMAGENET_PATH_BYTES / (STEP_SECONDS * 0.05 / 0.95)
    print(f"model_bandwidth_for_95_percent_gb_a_second: {enough / 1e9:.1f}")


def launched(number, kernels, micro_batches, steps):
    """The figures of some processes, which share a batch."""
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun), "--oversubscribe", "-n", str(number), sys.executable, __file__]
    command += ["--worker", kernels, str(micro_batches), str(steps)]
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(
        done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1]
    )  # between what mpirun adds for colours


class Timed:
    """A communicator that takes the time of what is done at each step: waiting for others, then communication."""

    def __init__(self, communicator):
        self._communicator = communicator
        self.waiting = self.communicating = 0.0

    def __getattr__(self, name):
        return getattr(self._communicator, name)

    def average(self, arrays):
        return self._timed(self._communicator.average, arrays)

    def sum(self, numbers):
        return self._timed(self._communicator.sum, numbers)

    def _timed(self, call, given):
        start = time.perf_counter()
        self._communicator.barrier()
        together = time.perf_counter()
        result = call(given)
        self.waiting += together - start
        self.communicating += time.perf_counter() - together
        return result


def work(kernels, micro_batches, steps):
    """What each process does; the first prints the figures."""
    communicator = Timed(communicators.find())
    composed = config.load("proxyless", None, ["space=mobilenet_cifar10", "device=cpu"])
    network = config.build(composed.space)
    space = listed(network)
    costs = price(network, space, MACs())
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(BATCH, *network.input_shape)), random.integers(10, size=(BATCH, 1))
    size = BATCH // micro_batches
    cuts = [slice(start, start + size) for start in range(0, BATCH, size)]
    mine = communicator.share(micro_batches)
    batches = [(images[cut], labels[cut]) if number in mine else None for number, cut in enumerate(cuts)]
    supernet = Supernet(network, Classification(0.1), size, BATCH, 0, load(1) if kernels == "fast" else None)
    running = {name: one for name, one in supernet.parameters.items() if name not in supernet.trained}
    update = WeightUpdate(
        supernet.trained, partial(S.Nesterov, 0.1, 0.9), 0.1, 1e-4, 5.0, communicator, 0, statistics=running
    )
    validation = Validation(supernet, images, labels, 1, costs.cost, communicator)
    drawn = np.random.default_rng(1)

    def step():
        active = supernet.select(space.sample(drawn))
        update.step(supernet.training, batches, active, 0.05, ("benchmark",))

    figures = timed("weight_step", step, steps, BATCH, communicator)
    figures |= timed(
        "reinforce",
        lambda: validation.each([space.sample(drawn) for _ in range(SAMPLES)]),
        max(1, steps // 3),
        SAMPLES * BATCH,
        communicator,
    )
    active = supernet.select(space.sample(drawn))
    gradients = [supernet.trained[name].grad for name in active]
    figures |= all_reduce(gradients, communicator)
    if communicator.leads:
        print(json.dumps(figures))


def timed(name, call, repetitions, images, communicator):
    """Images a second, and the shares of the time."""
    call()
    communicator.barrier()
    communicator.waiting = communicator.communicating = 0.0
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    communicator.barrier()
    seconds = time.perf_counter() - start
    waiting, communicating = communicator.waiting / seconds, communicator.communicating / seconds
    return {
        f"{name}_images_a_second": images * repetitions / seconds,
        f"{name}_compute_share": 1 - waiting - communicating,
        f"{name}_communication_share": communicating,
        f"{name}_waiting_share": waiting,
    }


def all_reduce(gradients, communicator, repetitions=20):
    """The time to average gradients, and what a plain Allreduce of one buffer of that size takes, in turns."""
    flat = np.zeros(sum(one.size for one in gradients), np.float32)
    spent = {"ours": [], "plain": []}
    calls = {"ours": lambda: communicator._communicator.average(gradients), "plain": lambda: plain(communicator, flat)}
    for _ in range(repetitions):
        for name, call in calls.items():
            communicator.barrier()
            start = time.perf_counter()
            call()
            spent[name].append(time.perf_counter() - start)
    ours, one_buffer = (statistics.median(spent[name]) for name in ("ours", "plain"))
    megabytes = flat.nbytes / 1e6
    return {
        "allreduce_megabytes": megabytes,
        "allreduce_ms": 1e3 * ours,
        "allreduce_plain_ms": 1e3 * one_buffer,
        "allreduce_share_of_plain_bandwidth": one_buffer / ours,
    }


def plain(communicator, flat):
    """One call of MPI, and the division that makes a mean of a sum."""
    if communicator.size > 1:
        communicator._world.Allreduce(communicator._mpi.IN_PLACE, flat)
    flat *= np.float32(1 / communicator.size)


if __name__ == "__main__":
    main()
