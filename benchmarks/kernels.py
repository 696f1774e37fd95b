"""How much faster do the fast CPU kernels train and search than nnabla's own functions?

All sides take turns in one process, on two threads.

mobilenetv2_step_gain: a training step of MobileNetV2 at batch 32 on 32x32 images.
search_step_gain, reinforce_gain: a weight step and a REINFORCE update of the search on mobilenet_cifar10.
darts_ops_gain: separable and dilated convolutions and poolings of DARTS at the sizes of its search on CIFAR-10, forward
and backward, all added up.
default_job_gain: the default job as a whole.
torch_ratio: the time of the MobileNetV2 step over that of PyTorch (NCHW), where that is installed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np

from nnas import config, layers
from nnas.classifier import Classification
from nnas.communicator import Alone
from nnas.deciders import listed
from nnas.kernels import loading
from nnas.layers import TRAINING
from nnas.search import Supernet
from nnas.updates import WeightUpdate

THREADS = 2
# (expansion, channels, blocks, stride) of Sandler et al. (2018), table 2, with the strides for 32x32 images.
MOBILENET_V2 = [
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]
CELL_SIZES = [(16, 32), (32, 16), (64, 8)]  # channels and image size of DARTS' search on CIFAR-10, batch 64
CELL_OPERATORS = {
    f"{name} stride {stride}": partial(operator, stride=stride)
    for stride in (1, 2)
    for name, operator in {
        "max_pool_3x3": lambda x, mode, stride: layers.max_pooling(x, 3, mode, stride),
        "avg_pool_3x3": lambda x, mode, stride: layers.average_pooling(x, 3, mode, stride),
        "sep_conv_3x3": lambda x, mode, stride: separable(x, 3, mode, stride),
        "sep_conv_5x5": lambda x, mode, stride: separable(x, 5, mode, stride),
        "dil_conv_3x3": lambda x, mode, stride: layers.separable_conv_bn(x, x.shape[1], 3, mode, "dil3", stride, 2),
        "dil_conv_5x5": lambda x, mode, stride: layers.separable_conv_bn(x, x.shape[1], 5, mode, "dil5", stride, 2),
    }.items()
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions, and no default job")
    options = parser.parse_args()
    modes = {"native": TRAINING, "fast": replace(TRAINING, kernels=loading.load(THREADS, print))}
    repetitions = 2 if options.quick else 6
    figures = {"mobilenetv2_step_gain": mobilenetv2_step(modes, repetitions)}
    torch_step = pytorch_step()
    if torch_step:
        sides = {"fast": network_step(mobilenetv2, (3, 32, 32), 32, modes["fast"]), "torch": torch_step}
        found = best(sides, "MobileNetV2, training step, batch 32", 2 * repetitions)
        figures["torch_ratio"] = found["fast"] / found["torch"]
    else:
        print("PyTorch is not installed: no torch_ratio")
    figures["search_step_gain"], figures["reinforce_gain"] = search(modes, repetitions)
    figures["darts_ops_gain"] = darts_operators(modes, repetitions)
    if not options.quick:
        figures |= default_job()
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")


def best(sides, label, repetitions):
    """{side: least seconds}, the sides taking turns: what disturbs a machine only makes a run slower.

    sides: {name: function to time}."""
    times = {name: [] for name in sides}
    for turn in range(repetitions + 1):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            if turn:  # the first one is to warm up
                times[name].append(time.perf_counter() - start)
    found = {name: min(taken) for name, taken in times.items()}
    shown = ", ".join(f"{name} {1000 * taken:.2f} ms" for name, taken in found.items())
    first, *_, last = found.values()
    print(f"{label:50} {shown}: {first / last:.2f}", flush=True)
    return found


def gain(sides, label, repetitions):
    found = best(sides, label, repetitions)
    return found["native"] / found["fast"]


def mobilenetv2(x, mode):
    x = layers.conv_bn(x, 32, 3, mode, "stem", activation="relu6")
    for stage, (expansion, channels, blocks, stride) in enumerate(MOBILENET_V2):
        for block in range(blocks):
            name = f"stage{stage}_block{block}"
            x = layers.inverted_residual(x, channels, expansion, 3, stride if block == 0 else 1, mode, name)
    x = layers.conv_bn(x, 1280, 1, mode, "head", activation="relu6")
    return layers.affine(layers.global_average_pooling(x), 10, "classifier")


def network_step(network, shape, batch, mode):
    """A function that computes the loss and all gradients once."""
    random = np.random.default_rng(0)
    with nn.parameter_scope("", {}):
        x, labels = nn.Variable((batch, *shape)), nn.Variable((batch, 1))
        loss = F.mean(F.softmax_cross_entropy(network(x, mode), labels))
        solver = S.Sgd()
        solver.set_parameters(nn.get_parameters())
    x.d, labels.d = random.normal(size=x.shape), random.integers(10, size=labels.shape)

    def step():
        solver.zero_grad()
        loss.forward(clear_no_need_grad=True)
        loss.backward(clear_buffer=True)

    return step


def mobilenetv2_step(modes, repetitions):
    sides = {name: network_step(mobilenetv2, (3, 32, 32), 32, mode) for name, mode in modes.items()}
    return gain(sides, "MobileNetV2, training step, batch 32", repetitions)


def pytorch_step():
    """The same step in PyTorch, or None."""
    try:
        import torch
        from torch import nn as tnn
    except ImportError:
        return None
    torch.set_num_threads(THREADS)
    print(f"PyTorch {torch.__version__}")

    def conv_bn(inmaps, outmaps, kernel, stride=1, groups=1, activation=True):
        convolution = tnn.Conv2d(inmaps, outmaps, kernel, stride, kernel // 2, groups=groups, bias=False)
        return tnn.Sequential(convolution, tnn.BatchNorm2d(outmaps), *([tnn.ReLU6(inplace=True)] if activation else []))

    class Block(tnn.Module):
        def __init__(self, inmaps, outmaps, expansion, stride):
            super().__init__()
            wide = inmaps * expansion
            self.has_shortcut = stride == 1 and inmaps == outmaps
            self.layers = tnn.Sequential(
                *([conv_bn(inmaps, wide, 1)] if expansion > 1 else []),
                conv_bn(wide, wide, 3, stride, groups=wide),
                conv_bn(wide, outmaps, 1, activation=False),
            )

        def forward(self, x):
            return x + self.layers(x) if self.has_shortcut else self.layers(x)

    stages, maps = [conv_bn(3, 32, 3)], 32
    for expansion, channels, blocks, stride in MOBILENET_V2:
        for block in range(blocks):
            stages.append(Block(maps, channels, expansion, stride if block == 0 else 1))
            maps = channels
    network = tnn.Sequential(
        *stages, conv_bn(maps, 1280, 1), tnn.AdaptiveAvgPool2d(1), tnn.Flatten(), tnn.Linear(1280, 10)
    )
    x, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))

    def step():
        network.zero_grad(set_to_none=True)
        tnn.functional.cross_entropy(network(x), labels).backward()

    return step


def search(modes, repetitions):
    """The gains of a weight step and of a REINFORCE update, over the same random architectures on both sides."""
    composed = config.load("proxyless", None, ["space=mobilenet_cifar10", "device=cpu"])
    network = config.build(composed.space)
    space = listed(network)
    samples = composed.searcher.samples
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(64, *network.input_shape)), random.integers(10, size=(64, 1))
    steps, updates = {}, {}
    for name, mode in modes.items():
        supernet = Supernet(network, Classification(0.1), 32, 64, 0, mode.kernels)
        make_solver = partial(S.Nesterov, 0.1, 0.9)
        update = WeightUpdate(supernet.trained, make_solver, 0.1, 1e-4, 5.0, Alone(), 0)
        drawn = np.random.default_rng(1)

        def sample(drawn=drawn):
            return space.complete(lambda decision: decision.options[drawn.integers(len(decision.options))])

        def step(supernet=supernet, update=update, sample=sample):
            active = supernet.select(sample())
            update.step(supernet.training, [(images[:32], labels[:32])], active, 0.1, ("train", 0, 0))

        def evaluate(supernet=supernet, sample=sample):
            for _ in range(samples):
                supernet.accuracy(sample(), images, labels)

        steps[name], updates[name] = step, evaluate
    return (
        gain(steps, "mobilenet_cifar10, weight step, batch 32", repetitions + 2),
        gain(updates, f"mobilenet_cifar10, REINFORCE update, {samples} x 64", max(1, repetitions // 3)),
    )


def separable(x, kernel, mode, stride):
    x = layers.separable_conv_bn(x, x.shape[1], kernel, mode, f"sep{kernel}_first", stride)
    return layers.separable_conv_bn(x, x.shape[1], kernel, mode, f"sep{kernel}_second")


def darts_operators(modes, repetitions):
    """The time of all operators at all sizes, each counted once."""
    totals = {name: 0.0 for name in modes}
    for channels, size in CELL_SIZES:
        for kind, operator in CELL_OPERATORS.items():
            sides = {}
            for name, mode in modes.items():
                with nn.parameter_scope("", {}):
                    x = nn.Variable((64, channels, size, size), need_grad=True)
                    x.d = np.random.default_rng(0).normal(size=x.shape)
                    sides[name] = partial(forward_and_backward, operator(x, mode))
            label = f"{kind}, {channels} x {size} x {size}"
            for name, taken in best(sides, label, 3 * repetitions).items():
                totals[name] += taken
    return totals["native"] / totals["fast"]


def forward_and_backward(output):
    output.forward(clear_no_need_grad=True)
    output.backward(clear_buffer=True)


def default_job():
    """Seconds of the default job with either side, from the command to its summary, given a latency table."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nnas", "profile", "device=cpu"]
        subprocess.run(command, check=True, capture_output=True)
        for kernels in ("fast", "native"):
            start = time.perf_counter()
            run = [f"run_dir={folder}/{kernels}", f"device.kernels={kernels}", f"device.threads={THREADS}"]
            subprocess.run(
                [sys.executable, "-m", "nnas", "proxyless", "device=cpu", *run], check=True, capture_output=True
            )
            seconds[kernels] = time.perf_counter() - start
    return {
        "default_job_gain": seconds["native"] / seconds["fast"],
        "default_job_seconds": seconds["fast"],
        "default_job_seconds_native": seconds["native"],
    }


if __name__ == "__main__":
    main()
