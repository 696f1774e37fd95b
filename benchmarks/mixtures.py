"""What does a sum of all options cost, on the network that DARTS searches on (darts_cifar10, batch 16)?

Times of one forward and backward pass, memory cleared as it goes, the forms in turn:
weighted_over_unweighted: the weighted sums of the weight graph, over sums without weights.
weight_step_over_passes: a whole weight step, over the two passes of its graph.
alpha_step_over_passes: a whole step for the alphas, whose graph needs no gradients of weights, over the same.
memory_over_stacked: what two passes of the weight graph add to the memory of the process, over the same where the
options are stacked, multiplied and summed.
"""

import argparse
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np

from nnas import config, search
from nnas.classifier import Classification
from nnas.communicator import Alone
from nnas.deciders import Mixture, listed
from nnas.kernels.loading import load
from nnas.search import Supernet
from nnas.updates import WeightUpdate

BATCH = 16


class Unweighted(Mixture):
    """Sums without weights."""

    def _sum(self, branches, weights):
        return F.add_n(*branches.values())


class Stacked(Mixture):
    """Stacks the options, multiplies them and sums."""

    def _sum(self, branches, weights):
        stack = F.stack(*branches.values())
        one_by_one = F.reshape(F.concatenate(*(weights[key] for key in branches), axis=0), (-1,) + (1,) * 4)
        return F.sum(F.mul2(stack, one_by_one), axis=0)


FORMS = {"weighted": Mixture, "unweighted": Unweighted, "stacked": Stacked}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="darts_small, and few rounds")
    parser.add_argument("--kernels", nargs="+", choices=("fast", "native"), default=["fast", "native"])
    parser.add_argument("--threads", type=int, help="of the fast kernels; all of this process's if not given")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory-of", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(memory(options))
        return
    lines = []
    for kernels in options.kernels:
        figures = times(options, kernels)
        weighted, stacked = (
            float(
                subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--kernels", kernels, "--memory-of", form],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for form in ("weighted", "stacked")
        )
        figures |= {"memory_mib": weighted, "memory_over_stacked": weighted / stacked}
        lines += [f"{name}_{kernels}: {value:.3f}" for name, value in figures.items()]
    print("\n".join(lines))


def supernet(options, kernels, form):
    """(a Supernet whose sums are of some form, {decision: its options})."""
    network = config.build(config.load("darts", None, [f"space=darts_{'small' if options.quick else 'cifar10'}"]).space)
    network = network.search_network
    space = listed(network)
    gates = {
        one.name: nn.Variable.from_numpy_array(np.full(len(one.options), 1 / len(one.options))).apply(need_grad=True)
        for one in space.decisions
    }
    search.Mixture = FORMS[form]
    made = Supernet(
        network,
        Classification(0.1),
        BATCH,
        BATCH,
        0,
        load(options.threads) if kernels == "fast" else None,
        gates=gates,
        mixes=True,
    )
    return made, {one.name: one.options for one in space.decisions}


def samples(one):
    random = np.random.default_rng(0)
    shape, classes = one.training.images.shape, one.training.outputs.logits.shape[1]
    return random.normal(size=shape), random.integers(classes, size=(shape[0], 1))


def passes(one, data):
    one.training.forward(*data)
    one.training.loss.backward(clear_buffer=True)


def times(options, kernels):
    """{figure: value}."""
    weighted, choices = supernet(options, kernels, "weighted")
    unweighted, _ = supernet(options, kernels, "unweighted")
    data, names = samples(weighted), list(weighted.trained)
    update = WeightUpdate(weighted.trained, partial(S.Nesterov, 0.025, 0.9), 0.025, 3e-4, 5.0, Alone(), 0)
    work = {
        "weighted": lambda: passes(weighted, data),
        "unweighted": lambda: passes(unweighted, data),
        "weight_step": lambda: update.step(weighted.training, [data], names, 1e-3, ("benchmark",)),
        "alpha_step": lambda: weighted.differentiate(choices, *data),
    }
    taken = {name: [] for name in work}
    order = list(work.items())
    for number in range(1 + (2 if options.quick else options.rounds)):
        order.append(order.pop(0))  # what runs after which other graph matters a little
        for name, function in order:
            start = time.perf_counter()
            function()
            if number:
                taken[name].append(time.perf_counter() - start)
    median = {name: statistics.median(some) for name, some in taken.items()}
    return {
        "passes_ms": 1000 * median["weighted"],
        "weighted_over_unweighted": median["weighted"] / median["unweighted"],
        "weight_step_over_passes": median["weight_step"] / median["weighted"],
        "alpha_step_over_passes": median["alpha_step"] / median["weighted"],
    }


def memory(options):
    """MiB by which the process grows at most."""
    made, _ = supernet(options, options.kernels[0], options.memory_of)
    data = samples(made)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = status("VmRSS")
    for _ in range(2):
        passes(made, data)
    return (status("VmHWM") - before) / 1024


def status(name):
    """KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
