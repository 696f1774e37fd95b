"""A data set of seconds, whose training images are drawn anew as real ones are, and runs of loops on it."""

from functools import partial
from types import SimpleNamespace

import nnabla.solvers as S
import numpy as np
import pytest

from nnas.classifier import Classification
from nnas.communicator import Alone
from nnas.objectives import LinearPenalty, Reward, RewardMin
from nnas.searchers.darts import Darts
from nnas.searchers.didarts import DiDarts
from nnas.searchers.gumbel import Gumbel
from nnas.searchers.pcdarts import PcDarts
from nnas.searchers.xnas import Xnas

adam = partial(S.Adam, alpha=0.3, beta1=0.0, beta2=0.999)
# The searchers whose weights are trained on a sum of all options.
MIXING = {
    "darts": partial(Darts, make_solver=adam),
    "darts_2": partial(Darts, make_solver=adam, order=2),
    "didarts": partial(DiDarts, make_solver=adam),
    "gumbel": partial(Gumbel, make_solver=adam),
    "gumbel_hard": partial(Gumbel, make_solver=adam, hard=True),
    "pcdarts": partial(PcDarts, make_solver=adam, channel_share=2),
    "xnas": Xnas,
}
SHAPE = (1, 6, 6)
CLASSES = 4
kernels = None  # the functions to train with: set by the fixture of this name


class Patterns:
    """A pattern for each class, with noise; drawn: whether it is new every time. calls: the indices asked for."""

    def __init__(self, size, seed, drawn):
        random = np.random.default_rng(seed)
        patterns = np.random.default_rng(0).normal(size=(CLASSES, *SHAPE))
        labels = random.integers(CLASSES, size=size)
        self._images = (patterns[labels] + 0.3 * random.normal(size=(size, *SHAPE))).astype(np.float32)
        self._labels = labels.astype(np.int32).reshape(-1, 1)
        self._drawn = drawn
        self.calls = []

    def __len__(self):
        return len(self._images)

    def draw(self, indices, generator):
        self.calls.append(np.array(indices))
        images = self._images[indices]
        if self._drawn:
            images = images + generator.normal(0, 0.2, images.shape).astype(np.float32)
        return images, self._labels[indices]


def patterns():
    return SimpleNamespace(
        shape=SHAPE,
        classes=CLASSES,
        augmentation=None,
        training=Patterns(19, 1, True),
        retraining=Patterns(30, 2, True),
        validation=Patterns(11, 3, False),
        test=Patterns(13, 4, False),
    )


def shared(solver):
    """What search and training take alike."""
    return {
        "task": Classification(0.1),
        "solver": {"make_solver": solver, "learning_rate": 0.1, "weight_decay": 1e-3, "clip_norm": 2.0},
        "micro_batch": 4,
        "micro_batches": 2,
        "communicator": Alone(),
        "kernels": kernels,
    }


def objective_of(make):
    """An objective of the kind that a searcher takes; make: its class, or a partial of it."""
    return RewardMin() if getattr(make, "func", make).objectives is Reward else LinearPenalty()


class Judge:
    """What a searcher steps on, without a network. accuracy: choices -> accuracy.

    The loss of a mixture is 1 - the accuracy of what its gates choose, and its gradient for the gate of an option is
    1 - the accuracy with that option instead, as far as this option is selected. judged: the choices asked for."""

    def __init__(self, searcher, accuracy):
        self._space, self._gates, self._accuracy = searcher.space, searcher.gates, accuracy
        self._mixes = searcher.mixes
        self.judged, self.selected = [], []

    def __call__(self, choices):
        assert self._space.check(choices) == choices
        self.judged.append(choices)
        return self._accuracy(choices)

    def look_ahead(self):
        return self.differentiate({decision.name: decision.options for decision in self._space.decisions})

    def differentiate(self, options):
        gates = {name: gate.d.copy() for name, gate in self._gates.items()}
        if self._mixes:
            assert all(gate.sum() == pytest.approx(1) and (gate >= 0).all() for gate in gates.values())
        else:
            assert all(sorted(gate) == [0] * (len(gate) - 1) + [1] for gate in gates.values())
        active = {d.name: d.options[int(gates[d.name].argmax())] for d in self._space.decisions}
        assert all(active[name] in selected for name, selected in options.items())
        self.selected.append(options)
        choices = self._space.complete(lambda decision: active[decision.name])
        self.judged.append(choices)
        loss = 1 - self._accuracy(choices)
        for decision in self._space.decisions:
            gradient = np.zeros(len(decision.options))
            if decision.name in choices:
                for i, option in enumerate(decision.options):
                    if option in options[decision.name]:
                        other = {**active, decision.name: option}
                        given = self._space.complete(lambda one, other=other: other[one.name])
                        gradient[i] = 1 - self._accuracy(given)
            self._gates[decision.name].g = gradient
        return loss, loss


class MixedJudge:
    """As Judge, of a searcher that mixes: a loss that is linear in the gates, so that in every decision the option of
    the largest worth is best. worth: {decision: array}. random: of noise on each gradient, of so much."""

    def __init__(self, searcher, worth, random, noise=0.0):
        self._gates, self._worth, self._random, self._noise = searcher.gates, worth, random, noise

    def __call__(self, choices):
        return 0.5

    def differentiate(self, options):
        loss = 2.0
        for name, gate in self._gates.items():
            worth = self._worth.get(name, np.zeros(gate.shape))
            loss -= float(gate.d @ worth)
            gate.g = -worth + self._noise * self._random.normal(size=gate.shape)
        return loss, 0.5

    def look_ahead(self):
        return self.differentiate(None)


def without_seconds(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same(one, other, place=""):
    """Two states are equal to the last bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_same(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), place
        assert one.tobytes() == other.tobytes(), place
    else:
        assert one == other, place
