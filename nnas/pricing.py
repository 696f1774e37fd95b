"""The costs of a space by an estimator: the space is cut into parts, and the estimator prices them."""

from dataclasses import dataclass

import nnabla as nn

from nnas.costs import Costs, Term
from nnas.deciders import Costing, Part
from nnas.export import shipped_network
from nnas.layers import SHIPPED
from nnas.randomness import generator, seed_initializers
from nnas.space import are_chosen

CALIBRATION_NETWORKS = 5


@dataclass(frozen=True)
class Network:
    """A whole network of a space. whole: it as one Part. parts: the places of its parts among those of the space.
    choices: of its architecture."""

    whole: Part
    parts: tuple
    choices: dict


def price(network, space, estimator, progress=None):
    """The Costs of a space; an estimator that measures measures what it lacks, and random whole networks once.

    estimator: an object as estimators.base.Estimator describes it. progress: a function of (done, total, text).
    """
    parts = cut(network, space, estimator.batch)
    return calibrated(network, space, parts, estimator.costs(parts, progress, space.name), estimator, progress)


def calibrated(network, space, parts, costs, estimator, progress=None):
    """The Costs of a space whose parts, in the order of `cut`, cost so much by themselves; see price."""
    networks = random_networks(network, space, parts, estimator.batch, CALIBRATION_NETWORKS, "factor")
    costs, factor, error = estimator.calibrated(space.name, parts, costs, networks, progress)
    terms = tuple(Term(part.when, cost, part.label) for part, cost in zip(parts, costs, strict=True))
    return Costs(estimator.unit, terms, factor, error, estimator.description())


def random_networks(network, space, parts, batch, count, purpose, seed=0):
    """Whole networks of a space, drawn uniformly, as Networks over its parts. purpose: others draw other ones."""
    random = generator(seed, purpose)
    return [whole(network, space, parts, space.sample(random), batch) for _ in range(count)]


def whole(network, space, parts, choices, batch):
    """The Network of an architecture, over the parts of its space."""
    x, outputs, _ = shipped_network(network, choices, batch)
    places = tuple(place for place, part in enumerate(parts) if are_chosen(part.when, choices))
    return Network(
        Part((), tuple(outputs.values()), (x,), f"{space.name}: {' '.join(choices.values())}"), places, choices
    )


def cut(network, space, batch):
    """The parts of a space that have a cost each, at a batch size."""
    seed_initializers(0, "costs")
    with nn.parameter_scope("", {}):
        x = nn.Variable((batch, *network.input_shape))
        costing = Costing(space.name, x)
        outputs = network(x, costing, SHIPPED)
        costing.finish(outputs.logits, *outputs.others.values())
    return costing.parts
