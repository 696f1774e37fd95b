"""The search loop: a generator of progress, one item an update of the weights."""

import json
from dataclasses import replace
from functools import partial
from hashlib import sha256

import nnabla as nn
import numpy as np

from nnas.classifier import ClassifierGraph
from nnas.data.batches import TrainingBatches, evaluation_batches
from nnas.deciders import MaskedMixture, Mixture, Sampled
from nnas.errors import NnasError, check_number, check_positive_integer
from nnas.layers import SAMPLED_EVALUATION, TRAINING
from nnas.lookahead import Lookahead
from nnas.partial_channels import PartialChannels
from nnas.progress import EpochLoop
from nnas.randomness import generator, seed_initializers
from nnas.recalibration import recalibrated
from nnas.updates import WeightUpdate, array_digest, parameter_arrays, set_parameters

# Minibatches of training data that the running statistics of a derived architecture are taken from.
RECALIBRATION = 10


class Supernet:
    """All architectures of a space over shared weights: one graph to train a path and one to evaluate it.

    gates: of a searcher, for a third graph that sums all options weighted by them; None: there is none. mixture_batch:
    the samples of that graph; None: validation_batch. mixes: whether that sum is what is trained, instead of a path.
    looks_ahead: whether the third graph is `ahead` instead, in which weights and gates both have gradients. kernels,
    synchronized: as in layers.Mode.
    """

    def __init__(
        self,
        network,
        task,
        micro_batch,
        validation_batch,
        seed,
        kernels=None,
        augmentation=None,
        gates=None,
        mixture_batch=None,
        mixes=False,
        looks_ahead=False,
        synchronized=None,
    ):
        self._decide = Sampled()
        trained = self._decide
        if mixes:  # the weights' step needs no gradients of the gates
            fixed = {name: gate.get_unlinked_variable(need_grad=False) for name, gate in gates.items()}
            trained = Mixture(fixed, kernels)
        seed_initializers(seed, "search")
        with nn.parameter_scope("", {}):
            training, evaluation = (
                replace(mode, kernels=kernels, synchronized=synchronized) for mode in (TRAINING, SAMPLED_EVALUATION)
            )
            self.training = ClassifierGraph(network, trained, training, task, micro_batch, augmentation)
            self.evaluation = ClassifierGraph(network, self._decide, evaluation, task, validation_batch)
            self.trained = nn.get_parameters()
            self.parameters = nn.get_parameters(grad_only=False)
            touched = self._decide.parameters(self.evaluation.loss if mixes else self.training.loss)
            self.gates = gates
            if looks_ahead:
                self.ahead = ClassifierGraph(network, Mixture(gates, kernels), evaluation, task, micro_batch)
            elif gates is not None:
                self._mix = Mixture(gates, kernels) if mixes else MaskedMixture(gates)
                with nn.no_grad():  # for the weights, which are taken from the scope all the same
                    self._mixture = ClassifierGraph(
                        network, self._mix, evaluation, task, mixture_batch or validation_batch
                    )
        self._touched = lambda choices: [name for name in touched(choices) if name in self.trained]
        self._mixes = mixes

    def prepare(self, searcher):
        """Make what a searcher wants trained next the active path or mixture; returns the names of its trained
        parameters."""
        if not self._mixes:
            return self.select(searcher.sample())
        searcher.weigh()
        return list(self.trained)

    def select(self, choices):
        """Make the path of an architecture the active one; returns the names of its trained parameters."""
        self._decide.select(choices)
        return self._touched(choices)

    def accuracy(self, choices, images, labels, count=None):
        """The share of the first `count` samples (all by default) that a path classifies rightly, with the batch's
        own statistics: running ones belong to no path."""
        self._decide.select(choices)
        return self.evaluation.accuracy(images, labels, count)

    def differentiate(self, options, images, labels):
        """Return (loss, error) of the sum of some options, {decision: options}, weighted by the gates; the gradient of
        the loss is left at the gates."""
        for gate in self.gates.values():
            gate.grad.zero()
        if not self._mixes:
            self._mix.select(options)
        self._mixture.forward(images, labels)
        self._mixture.loss.backward(clear_buffer=True)
        figures = self._mixture.figures()
        return figures["loss"], figures["error"]


class Validation:
    """What a searcher makes an update on: the supernet on one minibatch.

    parts: into how many equal ones `differentiate` cuts it, each with batch statistics of its own, as micro-batches
    have. cost: of choices, what an evaluation takes. communicator: of processes that share the work. ahead: a function
    of (images, labels) to what `look_ahead` returns."""

    def __init__(self, supernet, images, labels, parts, cost, communicator, ahead=None):
        self._supernet, self._images, self._labels, self._ahead = supernet, images, labels, ahead
        self._parts, self._cost, self._communicator = parts, cost, communicator

    def __call__(self, choices):
        """The accuracy of an architecture; every process computes it."""
        return self._supernet.accuracy(choices, self._images, self._labels)

    def each(self, sampled):
        """The accuracies of a list of architectures, shared out over the processes so that they end together."""
        found = [0.0] * len(sampled)
        for number in self._communicator.balanced_share([self._cost(choices) for choices in sampled]):
            found[number] = self(sampled[number])
        return self._communicator.sum(found).tolist()

    def differentiate(self, options):
        """Return (loss, error) of the sum of some options, {decision: options}, weighted by the gates; the gradient of
        the loss is left at the gates. Means over the parts, which the processes share."""
        size = len(self._images) // self._parts
        gates = self._supernet.gates.values()
        gradients, figures = [np.zeros(gate.shape, np.float32) for gate in gates], np.zeros(2)
        for part in self._communicator.share(self._parts):
            cut = slice(part * size, (part + 1) * size)
            figures += self._supernet.differentiate(options, self._images[cut], self._labels[cut])
            for total, gate in zip(gradients, gates, strict=True):
                total += gate.g * np.float32(self._communicator.weight(self._parts))
        self._communicator.average(gradients)
        for total, gate in zip(gradients, gates, strict=True):
            gate.g = total
        loss, error = (self._communicator.sum(figures) / self._parts).tolist()
        return loss, error

    def look_ahead(self):
        """As `differentiate` of all options, after one more step of the weights; every process computes it."""
        return self._ahead(self._images, self._labels)


class Search(EpochLoop):
    """Alternates weight updates on sampled paths with updates of the searcher.

    data: has the splits training and validation, and an augmentation or None. warmup_epochs: for the weights alone,
    before `epochs` in which the searcher makes an update after every `steps_per_update` weight updates. solver: as in
    train.Training. validate_every: after how many epochs the best architecture is evaluated on the whole validation
    split, or None. stop_at_skip_share: the search ends with the epoch at whose end so large a share of the edges or
    decisions would skip (Liang et al.: DARTS+, 2019), or None. kernels: as in layers.Mode.
    """

    def __init__(
        self,
        network,
        data,
        task,
        searcher,
        solver,
        warmup_epochs,
        epochs,
        micro_batch,
        micro_batches,
        validation_batch,
        steps_per_update,
        communicator,
        seed,
        validate_every=None,
        kernels=None,
        stop_at_skip_share=None,
    ):
        if stop_at_skip_share is not None:
            check_number("search.stop_at_skip_share", stop_at_skip_share, 0, 1)
            if not searcher.mixes:
                raise NnasError(
                    f"search.stop_at_skip_share={stop_at_skip_share}: mixtures alone are known to fail by skips, and "
                    f"{type(searcher).__name__} trains none; leave it out"
                )
        if validate_every is not None:
            check_positive_integer("search.validate_every", validate_every)
        check_positive_integer("search.warmup_epochs", warmup_epochs, least=0)
        check_positive_integer("search.epochs", epochs, least=0)
        check_positive_integer("search.validation_batch", validation_batch)
        check_positive_integer("search.steps_per_update", steps_per_update)
        batches = TrainingBatches(data.training, micro_batch, micro_batches, seed, "search", communicator)
        super().__init__(warmup_epochs + epochs, batches, communicator)
        if searcher.looks_ahead and validation_batch < micro_batch:
            raise NnasError(
                f"search.validation_batch={validation_batch}: looking ahead needs one micro-batch of it, at least "
                f"search.micro_batch={micro_batch}"
            )
        if searcher.gates is not None and validation_batch % micro_batches:
            raise NnasError(
                f"search.validation_batch={validation_batch}: {type(searcher).__name__} cuts it into parts, as many as "
                f"search.micro_batches={micro_batches}; take a multiple of that"
            )
        if epochs and steps_per_update > self._batches.steps:
            raise NnasError(
                f"search.steps_per_update={steps_per_update}: an epoch has {self._batches.steps} weight updates, so "
                "the searcher would never make one; take a smaller one"
            )
        if searcher.channel_share > 1:
            network = PartialChannels(network, searcher.channel_share)
        searcher.plan(epochs * (self._batches.steps // steps_per_update))
        self.searcher = searcher
        self._parts = micro_batches
        self._supernet = Supernet(
            network,
            task,
            micro_batch,
            validation_batch,
            seed,
            kernels,
            data.augmentation,
            searcher.gates,
            validation_batch // micro_batches,
            searcher.mixes,
            searcher.looks_ahead,
            communicator.normalizing,
        )
        everything, trained = self._supernet.parameters, self._supernet.trained
        statistics = {name: one for name, one in everything.items() if name not in trained}
        self._update = WeightUpdate(trained, communicator=communicator, seed=seed, statistics=statistics, **solver)
        self._ahead = None
        if searcher.looks_ahead:
            self._ahead = Lookahead(self._supernet.ahead, trained, searcher.gates, self._update)
        self._network, self._task, self._kernels = network, task, kernels
        self._micro_batch, self._training = micro_batch, data.training
        self._learnt_from = getattr(data, searcher.split)
        self._validation = data.validation
        self._validation_batch = validation_batch
        self._warmup_epochs = warmup_epochs
        self._steps_per_update = steps_per_update
        self._validate_every = validate_every
        self._stop_at_skip_share, self._stopped = stop_at_skip_share, False
        self._seed = seed

    def accuracies(self, choices):
        """Of an architecture with the shared weights, over the whole validation split: {validation_accuracy: normalized
        by the statistics of each batch, recalibrated_accuracy: by running ones, as `recalibrated` takes them}."""
        return {
            "validation_accuracy": self._accuracy(partial(self._supernet.accuracy, choices)),
            "recalibrated_accuracy": self._accuracy(self._recalibrated(choices).accuracy),
        }

    def _accuracy(self, accuracy):
        right = sum(
            accuracy(images, labels, count) * count
            for images, labels, count in evaluation_batches(
                self._validation, self._validation_batch, self._communicator.share
            )
        )
        return float(self._communicator.sum([right])[0]) / len(self._validation)

    def digest(self):
        """Of the state of the searcher and of a few of the weights."""
        text = json.dumps(self.searcher.state(), sort_keys=True, default=lambda array: array.tobytes().hex())
        return f"{sha256(text.encode()).hexdigest()} {array_digest(self._supernet.parameters)}"

    def weights(self):
        """{name: array} of the supernet."""
        return parameter_arrays(self._supernet.parameters)

    def start_from(self, weights, learnt, source):
        """Begin with the weights of an earlier search, and with what its searcher learnt: its state, or None. source:
        names it for people."""
        set_parameters(self._supernet.parameters, weights, source)
        if learnt is not None:
            self.searcher.start_from(learnt)

    @property
    def samples(self):
        """What the searcher judged in the present or just ended epoch, in columns: accuracy, cost, {constraint: ...},
        and choices, each the options' numbers in the order of the space, None where a decision is not reached."""
        judged = self.searcher.judged
        if not judged:
            return None
        costs = [self.searcher.costs(choices) for choices, _ in judged]
        return {
            "accuracy": [round(accuracy, 6) for _, accuracy in judged],
            "cost": {name: [float(f"{cost[name]:.6g}") for cost in costs] for name in costs[0]},
            "choices": [self._numbers(choices) for choices, _ in judged],
        }

    def _numbers(self, choices):
        return [
            one.options.index(choices[one.name]) if one.name in choices else None
            for one in self.searcher.space.decisions
        ]

    def _state(self):
        return {
            "weights": self.weights(),
            "update": self._update.state(),
            "searcher": self.searcher.state(),
            "judged": [[choices, accuracy] for choices, accuracy in self.searcher.judged],
            "stopped": self._stopped,
        }

    def _restore(self, state):
        set_parameters(self._supernet.parameters, state["weights"], "the checkpoint")
        self._update.restore(state["update"])
        self.searcher.restore(state["searcher"])
        self.searcher.judged = list(state.get("judged", ()))
        if state.get("stopped"):
            self._stop()

    def _phase(self, epoch):
        return "warmup" if epoch < self._warmup_epochs else "search"

    def _step(self, phase, epoch, step):
        if step == 0:
            self.searcher.judged = []
        figures = [self._weight_step(phase, epoch, step)]
        if phase == "search" and (step + 1) % self._steps_per_update == 0:
            figures.append(self.searcher.step(self._evaluator(epoch, step)))
        return figures

    def _weight_step(self, phase, epoch, step):
        active = self._supernet.prepare(self.searcher)
        learning_rate = self._update.learning_rate(*self._done(epoch, step))
        micro_batches, place = self._batches.step(phase, epoch, step), (phase, epoch, step)
        return self._update.step(self._supernet.training, micro_batches, active, learning_rate, place)

    def _evaluator(self, epoch, step):
        """All architectures of one update are judged on the same samples."""
        images, labels = self._judging(epoch, step)
        ahead = partial(self._look_ahead, epoch, step)
        return Validation(self._supernet, images, labels, self._parts, self._cost, self._communicator, ahead)

    def _judging(self, epoch, step):
        random = generator(self._seed, "validation", epoch, step)
        return _drawn(self._learnt_from, self._validation_batch, random)

    def _look_ahead(self, epoch, step, images, labels):
        """On one micro-batch of each split, over the one graph of all three passes."""
        part = slice(self._micro_batch)
        rate = self._update.learning_rate(*self._done(epoch, step))
        drawn = _drawn(self._training, self._micro_batch, generator(self._seed, "ahead", epoch, step))
        return self._ahead(drawn, (images[part], labels[part]), rate)

    def _cost(self, choices):
        """What an architecture takes, by the first constraint: latency where that is one."""
        return next(iter(self.searcher.costs(choices).values()), 1.0)

    def _standing(self):
        best = self.searcher.best()
        figures = {**self.searcher.figures(), "best_cost": self.searcher.costs(best), "best": best}
        if self._validate_every and self._epoch % self._validate_every == 0:
            figures |= self.accuracies(best)
        elif self.searcher.mixes:
            # Of the derived network, beside validation_error, of the mixture: the gap that derivation opens.
            minibatch = self._judging(self._epoch, 0)
            figures["derived_error"] = 1 - self._supernet.accuracy(best, *minibatch)
            figures["recalibrated_error"] = 1 - self._recalibrated(best).accuracy(*minibatch)
        limit = self._stop_at_skip_share
        if limit is not None and figures.get("skip_share", 0) >= limit and self._epoch > self._warmup_epochs:
            self._stop()
            figures["stopped"] = True
        return figures

    def _stop(self):
        """End with the epoch that has just ended."""
        self._epochs, self._stopped = self._epoch, True

    def _recalibrated(self, choices):
        """An architecture with the shared weights as they are at the end of this epoch."""
        minibatches = (
            _drawn(self._training, self._validation_batch, generator(self._seed, "recalibration", self._epoch, number))
            for number in range(RECALIBRATION)
        )
        arrays = {name: parameter.d for name, parameter in self._supernet.parameters.items()}
        return recalibrated(
            self._network, choices, arrays, self._task, self._validation_batch, minibatches, self._kernels
        )


def _drawn(split, count, random):
    """(images, labels) of so many samples of a split."""
    return split.draw(np.resize(random.permutation(len(split)), count), random)
