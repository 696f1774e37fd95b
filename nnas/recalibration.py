"""Running statistics of batch normalization, taken anew for one architecture of a supernet."""

from dataclasses import replace

import nnabla as nn
import numpy as np

from nnas.classifier import ClassifierGraph
from nnas.deciders import Fixed
from nnas.layers import EVALUATION, RUNNING_DECAY, Mode
from nnas.updates import set_parameters


def recalibrated(network, choices, arrays, task, batch, minibatches, kernels=None):
    """The ClassifierGraph of an architecture with shared weights, normalized as what ships: by running statistics.

    In a supernet these belong to all paths together, so they are replaced by the means over some minibatches of
    training data (Yu and Huang: Universally Slimmable Networks, ICCV 2019). arrays: {name: array} of the supernet.
    minibatches: an iterable of (images, labels), of `batch` samples each.
    """
    decide = Fixed(choices)
    with nn.parameter_scope("", {}):
        learning = ClassifierGraph(network, decide, Mode("batch", kernels=kernels), task, batch)
        graph = ClassifierGraph(network, decide, replace(EVALUATION, kernels=kernels), task, batch)
        trained, parameters = nn.get_parameters(), nn.get_parameters(grad_only=False)
    set_parameters(parameters, arrays, "the supernet")
    statistics = [one for name, one in parameters.items() if name not in trained]
    taken = []
    for images, labels in minibatches:
        for one in statistics:
            one.data.zero()  # so that a pass leaves the share of its own in them, and nothing else
        learning.evaluate(images, labels)
        taken.append([one.d / (1 - RUNNING_DECAY) for one in statistics])
    for one, values in zip(statistics, zip(*taken, strict=True), strict=True):
        one.d = np.mean(values, axis=0, dtype=np.float64)
    return graph
