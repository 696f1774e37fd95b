"""Training of a fixed architecture: a generator of progress, one item an update."""

from dataclasses import replace

import nnabla as nn
import numpy as np

from nnas.classifier import ClassifierGraph
from nnas.data.batches import TrainingBatches, evaluation_batches
from nnas.deciders import Fixed
from nnas.errors import NnasError, check_positive_integer, nearest
from nnas.layers import EVALUATION, TRAINING, with_affine
from nnas.progress import EpochLoop
from nnas.randomness import seed_initializers
from nnas.updates import WeightUpdate, array_digest, parameter_arrays, set_parameters

SPLITS = ("retraining", "training")


class Training(EpochLoop):
    """SGD on one architecture, with a cosine schedule over all epochs.

    network: a space. choices: of its architecture. data: its split named `split` is trained on, with its augmentation:
    'retraining' (the training and the validation samples) or 'training'. solver: {make_solver, learning_rate,
    weight_decay, clip_norm, schedule}. validate_every: after how many epochs the validation split is looked at, or
    None; that needs split='training'. weights: {name: array} to start from, or None for the initial ones of the seed.
    kernels: as in layers.Mode.
    """

    def __init__(
        self,
        network,
        choices,
        data,
        task,
        solver,
        epochs,
        micro_batch,
        micro_batches,
        communicator,
        seed,
        split="retraining",
        validate_every=None,
        weights=None,
        kernels=None,
    ):
        check_positive_integer("train.epochs", epochs, least=0)
        if split not in SPLITS:
            raise NnasError(f"train.split={split!r}: possible are {' and '.join(SPLITS)}{nearest(split, SPLITS)}")
        if validate_every is not None:
            check_positive_integer("train.validate_every", validate_every)
            if split != "training":
                raise NnasError(
                    f"train.validate_every={validate_every}: train.split={split} trains on the validation samples too; "
                    "add train.split=training"
                )
        batches = TrainingBatches(getattr(data, split), micro_batch, micro_batches, seed, "train", communicator)
        super().__init__(epochs, batches, communicator)
        self._validation, self._validate_every = data.validation, validate_every
        self._micro_batch = micro_batch
        self._progress = nn.Variable.from_numpy_array(np.array(0.0))
        seed_initializers(seed, "train")
        with nn.parameter_scope("", {}):
            training, evaluation = (
                replace(mode, kernels=kernels, synchronized=communicator.normalizing, progress=self._progress)
                for mode in (TRAINING, EVALUATION)
            )
            self._graph = ClassifierGraph(network, Fixed(choices), training, task, micro_batch, data.augmentation)
            self._evaluation = ClassifierGraph(network, Fixed(choices), evaluation, task, micro_batch)
            self._all = nn.get_parameters(grad_only=False)
            trained = nn.get_parameters()
        statistics = {name: one for name, one in self._all.items() if name not in trained}
        if weights is not None:
            set_parameters(self._all, with_affine(weights), "the inherited weights")
        self._update = WeightUpdate(trained, communicator=communicator, seed=seed, statistics=statistics, **solver)
        self._names = list(trained)

    def _phase(self, epoch):
        return "train"

    def _step(self, phase, epoch, step):
        micro_batches, place = self._batches.step(phase, epoch, step), (phase, epoch, step)
        learning_rate = self._learning_rate(epoch, step)
        done, steps = self._done(epoch, step)
        self._progress.d = done / steps
        return [self._update.step(self._graph, micro_batches, self._names, learning_rate, place)]

    def _standing(self):
        figures = {"learning_rate": self._learning_rate(self._epoch - 1, self._batches.steps - 1)}
        if self._validate_every and self._epoch % self._validate_every == 0:
            figures |= {f"validation_{name}": value for name, value in self.evaluate(self._validation).items()}
        return figures

    def _learning_rate(self, epoch, step):
        return self._update.learning_rate(*self._done(epoch, step))

    def evaluate(self, split):
        """{error and further metrics: mean over a fixed split}, with running statistics."""
        totals = dict.fromkeys(self._evaluation.names, 0.0)
        for images, labels, count in evaluation_batches(split, self._micro_batch, self._communicator.share):
            for name, values in self._evaluation.evaluate(images, labels).items():
                totals[name] += float(values[:count].sum())
        sums = self._communicator.sum(list(totals.values()))
        return {name: float(total) / len(split) for name, total in zip(totals, sums, strict=True)}

    def accuracy(self, split):
        """The share of a fixed split that is classified rightly."""
        return 1 - self.evaluate(split)["error"]

    def digest(self):
        """Of a few of the weights."""
        return array_digest(self._all)

    def weights(self):
        """{name: array} of all parameters, running statistics included."""
        return parameter_arrays(self._all)

    def set_weights(self, weights):
        """Take the weights that this training ended with."""
        if weights.keys() != self._all.keys():
            raise NnasError("the trained weights are of another architecture: their parameters are missing or too many")
        set_parameters(self._all, weights, "the trained weights")

    def _state(self):
        return {"weights": self.weights(), "update": self._update.state()}

    def _restore(self, state):
        self.set_weights(state["weights"])
        self._update.restore(state["update"])
