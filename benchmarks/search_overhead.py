"""What does it cost to keep all architectures in one graph?

step_ratio: a weight step of the search at batch 1 on 8x8 images, over the same step of the same network built alone.
select_ms: to select an architecture of 21 decisions. memory_ratio: peak memory after 200 weight steps at batch 32 on
mobilenet_cifar10, less parameters, gradients and solver states, over the same of training the largest network;
memory_ratio_fast: with the fast CPU kernels.
"""

import argparse
import gc
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import nnabla as nn
import nnabla.solvers as S
import numpy as np

from nnas import config
from nnas.classifier import Classification, ClassifierGraph
from nnas.communicator import Alone
from nnas.deciders import Fixed, listed
from nnas.kernels.loading import load
from nnas.layers import TRAINING
from nnas.search import Supernet
from nnas.updates import WeightUpdate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, and memory at a tenth of the samples")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(peak_memory(*options.memory_of, 20 if options.quick else 200))
        return
    rounds = 30 if options.quick else 200
    ratios = {
        name: step_ratio(network(name, channels, 8), rounds)
        for name, channels in (("mobilenet_small", 1), ("mobilenet_cifar10", 3))
    }
    selecting = select_ms(network("mobilenet_cifar10", 3, 8))
    memory = {
        (which, kernels): float(
            subprocess.run(
                [sys.executable, __file__, "--memory-of", which, kernels, *(["--quick"] if options.quick else [])],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for kernels in ("native", "fast")
        for which in ("supernet", "largest")
    }
    for name, ratio in ratios.items():
        print(f"step_ratio_{name}: {ratio:.3f}")
    for (which, kernels), size in memory.items():
        print(f"memory_{which}_{kernels}_mib: {size:.1f}")
    print(f"step_ratio: {max(ratios.values()):.3f}")
    print(f"select_ms: {selecting:.3f}")
    print(f"memory_ratio: {memory['supernet', 'native'] / memory['largest', 'native']:.3f}")
    print(f"memory_ratio_fast: {memory['supernet', 'fast'] / memory['largest', 'fast']:.3f}")


def network(name, channels, size):
    return config.build(
        config.load("proxyless", None, [f"space={name}", f"space.input_shape=[{channels},{size},{size}]"]).space
    )


def updater(parameters):
    return WeightUpdate(parameters, partial(S.Nesterov, 0.1, 0.9), 0.1, 1e-4, 5.0, Alone(), 0)


def batches(one, size, random):
    return [(random.normal(size=(size, *one.input_shape)), random.integers(one.classes, size=(size, 1)))]


def alone(one, choices, batch, kernels=None):
    with nn.parameter_scope("", {}):
        mode = replace(TRAINING, kernels=kernels)
        graph = ClassifierGraph(one, Fixed(choices), mode, Classification(0.1), batch)
        return graph, nn.get_parameters()


def step_ratio(one, rounds, architectures=5):
    random = np.random.default_rng(0)
    data = batches(one, 1, random)
    supernet = Supernet(one, Classification(0.1), 1, 1, 0)
    update = updater(supernet.trained)
    space = listed(one)
    ratios = []
    for _ in range(architectures):
        choices, other = space.sample(random), space.sample(random)
        graph, parameters = alone(one, choices, 1)
        update_alone = updater(parameters)

        def searching(choices=choices):
            active = supernet.select(choices)
            update.step(supernet.training, data, active, 0.01, ("benchmark",))

        def training(graph=graph, update_alone=update_alone, names=tuple(parameters)):
            update_alone.step(graph, data, names, 0.01, ("benchmark",))

        times = {searching: [], training: []}
        for _ in range(rounds):
            supernet.select(other)  # so that each step of the search has to select
            for function in times:
                times[function].append(timed(function))
        ratios.append(statistics.median(times[searching]) / statistics.median(times[training]))
    return statistics.median(ratios)


def select_ms(one):
    random = np.random.default_rng(0)
    supernet, space = Supernet(one, Classification(0.1), 1, 1, 0), listed(one)
    drawn = [space.sample(random) for _ in range(200)]
    return 1e3 * statistics.median(timed(lambda choices=choices: supernet.select(choices)) for choices in drawn)


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_memory(which, kernels, samples):
    """MiB of one training process at its peak, less what it had before and parameters, gradients and states."""
    functions = load() if kernels == "fast" else None
    one = network("mobilenet_cifar10", 3, 32)
    space, random = listed(one), np.random.default_rng(0)
    data = batches(one, 32, random)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if which == "supernet":
        supernet = Supernet(one, Classification(0.1), 32, 32, 0, functions)
        graph, parameters = supernet.training, supernet.trained
        paths = [space.sample(random) for _ in range(samples)]
        paths[-1] = largest(space)
        steps = (supernet.select(choices) for choices in paths)
    else:
        graph, parameters = alone(one, largest(space), 32, functions)
        steps = [list(parameters)] * 3
    update = updater(parameters)
    kept = 3 * sum(4 * parameter.size for parameter in parameters.values())
    for active in steps:
        update.step(graph, data, active, 0.01, ("benchmark",))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before * 1024 - kept) / 2**20


def largest(space):
    return {decision.name: "e6_k7" for decision in space.decisions}


if __name__ == "__main__":
    main()
