"""Training of a fixed architecture: a generator of progress, one item an update."""

from dataclasses import replace

import nnabla as nn

from nnas.classifier import ClassifierGraph
from nnas.data.batches import TrainingBatches, evaluation_batches
from nnas.deciders import Fixed
from nnas.errors import NnasError, check_positive_integer
from nnas.layers import EVALUATION, TRAINING
from nnas.progress import EpochLoop
from nnas.randomness import seed_initializers
from nnas.updates import WeightUpdate, cosine, parameter_arrays, set_parameters


class Training(EpochLoop):
    """SGD on one architecture, with a cosine schedule over all epochs.

    network: a space. choices: of its architecture. split: the training samples. solver: {make_solver, learning_rate,
    weight_decay, clip_norm}. weights: {name: array} to start from, or None for the initial ones of the seed.
    kernels: as in layers.Mode. augmentation: as in classifier.ClassifierGraph.
    """

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
        kernels=None,
        augmentation=None,
    ):
        check_positive_integer("train.epochs", epochs, least=0)
        super().__init__(epochs, TrainingBatches(split, micro_batch, micro_batches, seed, "train"))
        self._micro_batch = micro_batch
        seed_initializers(seed, "train")
        with nn.parameter_scope("", {}):
            training, evaluation = (replace(mode, kernels=kernels) for mode in (TRAINING, EVALUATION))
            self._graph = ClassifierGraph(network, Fixed(choices), training, task, micro_batch, augmentation)
            self._evaluation = ClassifierGraph(network, Fixed(choices), evaluation, task, micro_batch)
            self._all = nn.get_parameters(grad_only=False)
            trained = nn.get_parameters()
        if weights is not None:
            set_parameters(self._all, weights, "the inherited weights")
        self._update = WeightUpdate(trained, communicator=communicator, seed=seed, **solver)
        self._names = list(trained)

    def _phase(self, epoch):
        return "train"

    def _step(self, phase, epoch, step):
        micro_batches, place = self._batches.step(phase, epoch, step), (phase, epoch, step)
        loss, error = self._update.step(
            self._graph, micro_batches, self._names, self._learning_rate(epoch, step), place
        )
        return [{"loss": loss, "error": error}]

    def _standing(self):
        return {"learning_rate": self._learning_rate(self._epoch - 1, self._batches.steps - 1)}

    def _learning_rate(self, epoch, step):
        return cosine(self._update.learning_rate, *self._done(epoch, step))

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
        """Take the weights that this training ended with."""
        if weights.keys() != self._all.keys():
            raise NnasError("the trained weights are of another architecture: their parameters are missing or too many")
        set_parameters(self._all, weights, "the trained weights")

    def state(self):
        return {"epoch": self._epoch, "weights": self.weights(), "update": self._update.state()}

    def restore(self, state):
        self._epoch = state["epoch"]
        set_parameters(self._all, state["weights"], "the checkpoint")
        self._update.restore(state["update"])
