"""Running statistics of batch normalization, taken anew for one architecture of a supernet."""

from dataclasses import replace

import nnabla as nn
import numpy as np

from nnas.classifier import ClassifierGraph
from nnas.deciders import Fixed
from nnas.layers import EVALUATION, RUNNING_DECAY, TRAINING
from nnas.updates import set_parameters


class Recalibrated:
    """An architecture with shared weights, normalized as what ships: by statistics that no longer change.

    In a supernet the running ones belong to all paths together, so they are replaced by the means over some minibatches
    of training data (Yu and Huang: Universally Slimmable Networks, ICCV 2019). arrays: {name: array} of the supernet.
    minibatches: an iterable of (images, labels), of `batch` samples each.
    """

    def __init__(self, network, choices, arrays, task, batch, minibatches, kernels=None):
        taking = replace(TRAINING, training=False, kernels=kernels)
        decide = Fixed(choices)
        with nn.parameter_scope("", {}):
            learning = ClassifierGraph(network, decide, taking, task, batch)
            self._graph = ClassifierGraph(network, decide, replace(EVALUATION, kernels=kernels), task, batch)
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

    def accuracy(self, images, labels, count=None):
        """The share of the first `count` samples of a minibatch, all by default, that is classified rightly."""
        return 1 - float(self._graph.evaluate(images, labels)["error"][:count].mean())
