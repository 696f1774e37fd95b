"""How much faster are several processes, one thread each, than one?

For weight steps and REINFORCE updates (10 architectures x 64 images) of mobilenet_cifar10, with a batch of 64 in all:
images a second, and what share of a step is compute, communication and waiting for others. weight_step_gain,
reinforce_gain: images a second of all processes over those of one, the smaller of both kinds of kernels. One and all
take turns on the same architectures, step by step in one launch, since machines change their speed within a minute; the
medians over the turns count. independent_*_gain: of the same processes where each computes a whole batch for itself and
they never meet: what the machine can give. allreduce_*: the gradients of one path, averaged as in a step, against a
plain Allreduce of one buffer of that size.

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
    parser.add_argument("--quick", action="store_true", help="few turns, fast kernels only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worker", nargs=2, metavar=("KERNELS", "TURNS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.processes < 2:
        parser.error("--processes: at least 2, since one of them alone is measured beside")
    if options.worker:
        kernels, turns = options.worker
        work(kernels, int(turns))
        return
    gains = {}
    for kernels, turns in (("fast", 3),) if options.quick else (("native", 6), ("fast", 20)):
        for name, figure in launched(options.processes, kernels, turns).items():
            print(f"{name}_{kernels}: {figure:.4g}", flush=True)
            if name.endswith("_gain"):
                gains.setdefault(name, []).append(figure)
    for name, values in gains.items():
        print(f"{name}: {min(values):.3f}")
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


def launched(number, kernels, turns):
    """The figures of some processes and of one of them alone."""
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun), "--oversubscribe", "-n", str(number), sys.executable, __file__]
    command += ["--worker", kernels, str(turns)]
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


def work(kernels, turns):
    """What each process does; the first prints the figures."""
    together, alone = Timed(communicators.find()), communicators.Alone()
    composed = config.load("proxyless", None, ["space=mobilenet_cifar10", "device=cpu"])
    network = config.build(composed.space)
    space = listed(network)
    costs = price(network, space, MACs())
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(BATCH, *network.input_shape)), random.integers(10, size=(BATCH, 1))
    size = BATCH // together.size
    cuts = [slice(start, start + size) for start in range(0, BATCH, size)]
    supernet = Supernet(network, Classification(0.1), size, BATCH, 0, load(1) if kernels == "fast" else None)
    running = {name: one for name, one in supernet.parameters.items() if name not in supernet.trained}

    def weight_step(communicator):
        mine = communicator.share(len(cuts))
        batches = [(images[cut], labels[cut]) if number in mine else None for number, cut in enumerate(cuts)]
        update = WeightUpdate(
            supernet.trained, partial(S.Nesterov, 0.1, 0.9), 0.1, 1e-4, 5.0, communicator, 0, statistics=running
        )
        return lambda sampled: update.step(
            supernet.training, batches, supernet.select(sampled[0]), 0.05, ("benchmark",)
        )

    def reinforce(communicator):
        return Validation(supernet, images, labels, 1, costs.cost, communicator).each

    figures, drawn = {}, np.random.default_rng(1)
    for name, make, samples in (("weight_step", weight_step, 1), ("reinforce", reinforce, SAMPLES)):
        figures |= timed(
            name,
            {"together": make(together), "alone": make(alone)},
            lambda samples=samples: [space.sample(drawn) for _ in range(samples)],
            turns if samples == 1 else max(2, turns // 2),
            samples * BATCH,
            together,
        )
    gradients = [supernet.trained[name].grad for name in supernet.select(space.sample(drawn))]
    figures |= all_reduce(gradients, together)
    if together.leads:
        print(json.dumps(figures))


def timed(name, jobs, sample, turns, images, communicator):
    """Images a second of all processes together, of the first alone and of each for itself, the gains, and the shares
    of the time that the processes spend together. jobs: functions of architectures, together and alone."""
    spent = {"together": [], "alone": [], "independent": []}
    for turn in range(turns + 1):
        if turn == 1:  # the first one warms up
            communicator.waiting = communicator.communicating = 0.0
            spent = {kind: [] for kind in spent}
        sampled = sample()
        for kind, seconds in spent.items():
            communicator.once(lambda: None)  # those that wait sleep, and all begin together
            start = time.perf_counter()
            if kind == "together":
                jobs["together"](sampled)
                communicator.barrier()
            elif kind == "independent" or communicator.leads:
                jobs["alone"](sampled)
            seconds.append(time.perf_counter() - start)
    total = sum(spent["together"])
    waiting, communicating = communicator.waiting / total, communicator.communicating / total
    seconds = {kind: statistics.median(one) for kind, one in spent.items()}
    rates = {kind: images / one for kind, one in seconds.items()}
    # The slowest of those that are not alone count.
    rates["independent"] = communicator.size * images / max(communicator.gather(seconds["independent"]))
    return {
        **{f"{name}_images_a_second_{kind}": rate for kind, rate in rates.items()},
        f"{name}_compute_share": 1 - waiting - communicating,
        f"{name}_communication_share": communicating,
        f"{name}_waiting_share": waiting,
        f"{name}_gain": rates["together"] / rates["alone"],
        f"independent_{name}_gain": rates["independent"] / rates["alone"],
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
