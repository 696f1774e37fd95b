"""The costs of a space by an estimator: the space is cut into parts, and the estimator prices them."""

import nnabla as nn

from nnas.costs import Costs, Term
from nnas.deciders import Costing, Part
from nnas.export import shipped_network
from nnas.layers import SHIPPED
from nnas.randomness import generator, seed_initializers

CALIBRATION_NETWORKS = 5


def price(network, space, estimator, progress=None):
    """The Costs of a space; an estimator that measures measures what it lacks, and random whole networks once.

    estimator: an object as estimators.base.Estimator describes it. progress: a function of (done, total, text).
    """
    parts = cut(network, space, estimator.batch)
    costs = estimator.costs(parts, progress, space.name)
    terms = tuple(Term(part.when, cost, part.label) for part, cost in zip(parts, costs, strict=True))
    random = generator(0, "calibration")
    drawn = [space.sample(random) for _ in range(CALIBRATION_NETWORKS)]
    sums = [Costs(estimator.unit, terms).cost(choices) for choices in drawn]
    wholes = [_whole(network, space, choices, estimator.batch) for choices in drawn]
    factor, error = estimator.factor(space.name, wholes, sums, progress)
    return Costs(estimator.unit, terms, factor, error, estimator.description())


def cut(network, space, batch):
    """The parts of a space that have a cost each, at a batch size."""
    seed_initializers(0, "costs")
    with nn.parameter_scope("", {}):
        x = nn.Variable((batch, *network.input_shape))
        costing = Costing(space.name, x)
        outputs = network(x, costing, SHIPPED)
        costing.finish(outputs.logits, *outputs.others.values())
    return costing.parts


def _whole(network, space, choices, batch):
    x, outputs, _ = shipped_network(network, choices, batch)
    return Part((), tuple(outputs.values()), (x,), f"{space.name}: {' '.join(choices.values())}")
