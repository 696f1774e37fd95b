"""Training of a fixed architecture: a generator of progress, one item an update."""

import time

import nnabla as nn
import numpy as np

from nnas.classifier import ClassifierGraph
from nnas.data.batches import TrainingBatches, evaluation_batches
from nnas.deciders import Fixed
from nnas.errors import check_positive_integer
from nnas.layers import EVALUATION, TRAINING
from nnas.progress import Progress
from nnas.randomness import seed_initializers
from nnas.updates import WeightUpdate, cosine, parameter_arrays, set_parameters


class Training:
    """SGD on one architecture, with a cosine schedule over all epochs.

    network: a space. choices: of its architecture. split: the training samples. solver: {make_solver, learning_rate,
    weight_decay, clip_norm}. weights: {name: array} to start from, or None for the initial ones of the seed.
    """

    phase = "train"

    def __init__(
        self,
        network,
        choices,
        split,
        task,
        solver,
        epochs,
        micro_batch,
        micro_batches,
        communicator,
        seed,
        weights=None,
    ):
        self._epochs = check_positive_integer("train.epochs", epochs, least=0)
        self._batches = TrainingBatches(split, micro_batch, micro_batches, seed, "train")
        self._micro_batch = micro_batch
        self._scope = {}
        self._epoch = 0
        seed_initializers(seed, self.phase)
        with nn.parameter_scope("", self._scope):
            self._graph = ClassifierGraph(network, Fixed(choices), TRAINING, task, micro_batch)
            self._evaluation = ClassifierGraph(network, Fixed(choices), EVALUATION, task, micro_batch)
            self._all = nn.get_parameters(grad_only=False)
            trained = nn.get_parameters()
        if weights is not None:
            self.set_weights(weights)
        self._update = WeightUpdate(trained, communicator=communicator, seed=seed, **solver)
        self._names = list(trained)

    def __iter__(self):
        """Yield Progress after every update, from the epoch where it stands."""
        for epoch in range(self._epoch, self._epochs):
            start, losses, errors = time.monotonic(), [], []
            for step in range(self._batches.steps):
                total = self._epochs * self._batches.steps
                learning_rate = cosine(self._update.learning_rate, epoch * self._batches.steps + step, total)
                loss, error = self._update.step(
                    self._graph,
                    self._batches.step(self.phase, epoch, step),
                    self._names,
                    learning_rate,
                    (self.phase, epoch, step),
                )
                losses.append(loss)
                errors.append(error)
                record = None
                if step + 1 == self._batches.steps:
                    self._epoch = epoch + 1
                    record = {
                        "phase": self.phase,
                        "epoch": epoch + 1,
                        "seconds": round(time.monotonic() - start, 3),
                        "loss": float(np.mean(losses)),
                        "error": float(np.mean(errors)),
                        "learning_rate": learning_rate,
                    }
                yield Progress(self.phase, epoch + 1, self._epochs, step + 1, self._batches.steps, record)

    def accuracy(self, split):
        """The share of a fixed split that is classified rightly, with running statistics."""
        wrong = sum(
            float(self._evaluation.evaluate(images, labels)[:count].sum())
            for images, labels, count in evaluation_batches(split, self._micro_batch)
        )
        return 1 - wrong / len(split)

    def weights(self):
        """{name: array} of all parameters, running statistics included."""
        return parameter_arrays(self._all)

    def set_weights(self, weights):
        set_parameters(self._all, weights, "the trained weights")

    def state(self):
        return {"epoch": self._epoch, "weights": self.weights(), "update": self._update.state()}

    def restore(self, state):
        self._epoch = state["epoch"]
        set_parameters(self._all, state["weights"], "the checkpoint")
        self._update.restore(state["update"])
