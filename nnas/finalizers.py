"""From what a searcher has learnt to the architecture that a search ends with."""

from abc import ABC, abstractmethod
from dataclasses import replace

import nnabla as nn
import numpy as np

from nnas.deciders import Mixture
from nnas.errors import NnasError, check_boolean, check_number, check_positive_integer
from nnas.layers import SAMPLED_EVALUATION
from nnas.objectives import best_within, random_within
from nnas.searchers.base import AlphaSearcher
from nnas.space import NONE
from nnas.updates import set_parameters

JITTER = 1e-6  # on the diagonal of a kernel matrix: operators that return the same would make its determinant 0
EQUAL = 9  # digits to which amounts of information are told apart, so that what rounds differently ties alike
LEFT_OUT = (
    1e6  # what an operator that is not considered costs, so that it is taken only where the bounds leave no other
)


class Finalizer(ABC):
    """Chooses the architecture that a search ends with; it keeps all bounds."""

    def check(self, searcher):  # noqa: B027, since most take any
        """Raise NnasError if this finalizer cannot be used on what the searcher learns."""

    @abstractmethod
    def __call__(self, searcher, network, weights, split, kernels=None):
        """The choices. network: that was searched on. weights: {name: array}, the shared ones. split: a fixed split of
        the data (validation). kernels: as in layers.Mode."""


class Argmax(Finalizer):
    """The searcher's own: for most the most probable architecture within the bounds."""

    def __call__(self, searcher, network, weights, split, kernels=None):
        return searcher.best()


class Random(Finalizer):
    """One that is drawn from those within the bounds, whatever was learnt: what the other finalizers add to it."""

    def __call__(self, searcher, network, weights, split, kernels=None):
        return random_within(searcher.space, searcher.constraints, searcher.generator)


class Divnas(Finalizer):
    """At each node the operators that tell most about those that are not chosen (DivNAS; Hong et al., 2020).

    Of all operators V of a node on one batch K_ij is the mean over samples (and cells of the type) of
    exp(-|a_i - a_j|^2 / 2 sigma^2), a being what they return; the operators A to be kept, one an edge, make
    1/2 log(det K_A det K_(V - A) / det K) large, within the bounds. Decisions that are no edges get the most probable
    option.

    samples: of the batch. sigma: 168 in the paper, for networks of its size; None: the median distance in each cell.
    ranked: only the more probable half of the operators, and `keep` at least, are considered.
    """

    def __init__(self, samples=32, sigma=None, ranked=False):
        self._samples = check_positive_integer("finalizer.samples", samples)
        self._sigma = sigma if sigma is None else check_number("finalizer.sigma", sigma, 0, open_below=True)
        self._ranked = check_boolean("finalizer.ranked", ranked)

    def check(self, searcher):
        if not isinstance(searcher, AlphaSearcher) or not searcher.space.nodes:
            raise NnasError(
                f"finalizer=divnas is for searchers that learn probabilities, on a space of cells; "
                f"{searcher.space.name} with {type(searcher).__name__} is not that: take finalizer=argmax"
            )

    def __call__(self, searcher, network, weights, split, kernels=None):
        returned = activations(searcher, network, weights, split, self._samples, kernels)
        space, probabilities = searcher.space, searcher.probabilities
        informations = {}
        for node in space.nodes:
            operators, kernel = list(returned[node.name]), self._kernel(returned[node.name])
            places = self._ranking(node, space, operators, probabilities) if self._ranked else range(len(operators))
            kept = {operators[place]: position for position, place in enumerate(places)}
            informations[node.name] = kept, kernel[np.ix_(places, places)]

        def gain(choices):
            total = 0.0
            for node in space.nodes:
                chosen = [(edge, choices[edge]) for edge in node.edges if edge in choices]
                if chosen:
                    kept, kernel = informations[node.name]
                    total += information(kernel, [kept[one] for one in chosen if one in kept])
                    total -= LEFT_OUT * sum(one not in kept for one in chosen)
            for name, option in choices.items():
                if name not in space.node_of:
                    total += np.log(
                        max(dict(zip(space.decision(name).options, probabilities[name], strict=True))[option], 1e-300)
                    )
            return total

        return best_within(space, gain, searcher.constraints, searcher.objective.lowest)

    def _kernel(self, returned):
        """(operators, operators); returned: {operator: a list of (samples, numbers), one a cell}."""
        return np.mean([_similarity(list(cell), self._sigma) for cell in zip(*returned.values(), strict=True)], axis=0)

    def _ranking(self, node, space, operators, probabilities):
        """The places of the operators that are considered, in their order."""

        def probability(place):
            edge, option = operators[place]
            return probabilities[edge][space.decision(edge).options.index(option)]

        ranked = sorted(range(len(operators)), key=lambda place: (-probability(place), place))
        count = max(node.keep, len(operators) // 2)
        # On one edge there may be many of them, but enough edges must have one.
        while len({operators[place][0] for place in ranked[:count]}) < node.keep:
            count += 1
        return sorted(ranked[:count])


def information(kernel, chosen):
    """Between the chosen ones and all others: 1/2 log(det K_A det K_(V - A) / det K), to nine digits."""
    chosen = sorted(chosen)
    others = [place for place in range(len(kernel)) if place not in chosen]
    determinants = [
        np.linalg.slogdet(kernel[np.ix_(places, places)] + JITTER * np.eye(len(places)))[1]
        for places in (chosen, others, range(len(kernel)))
    ]
    return round(0.5 * (determinants[0] + determinants[1] - determinants[2]), EQUAL)


def activations(searcher, network, weights, split, samples, kernels=None):
    """{node: {(edge, option): a list of arrays (samples, numbers), one for each cell of the type}}, of all options but
    NONE, in the network that sums all options by the searcher's probabilities, with the batch's own statistics."""
    images, _ = split.draw(np.arange(min(samples, len(split))), None)
    mixture = _Noting(
        {name: nn.Variable.from_numpy_array(np.float32(one)) for name, one in searcher.probabilities.items()}
    )
    with nn.parameter_scope("", {}), nn.no_grad():
        x = nn.Variable.from_numpy_array(images)
        logits = network(x, mixture, replace(SAMPLED_EVALUATION, kernels=kernels)).logits
        set_parameters(nn.get_parameters(grad_only=False), weights, "the weights of the search")
        logits.forward()
    return {
        node: {
            operator: [one.d.reshape(len(images), -1).astype(np.float64) for one in variables]
            for operator, variables in operators.items()
        }
        for node, operators in mixture.returned.items()
    }


class _Noting(Mixture):
    """Notes what each option of each edge returns."""

    def __init__(self, weights):
        super().__init__(weights)
        self.returned = {}

    def node(self, name, edges, keep):
        noted = self.returned.setdefault(name, {})

        def noting(key, candidate):
            def called(x):
                y = candidate(x)
                noted.setdefault(key, []).append(y)
                return y

            return called

        watched = {
            edge: (
                {
                    option: candidate if option == NONE else noting((edge, option), candidate)
                    for option, candidate in candidates.items()
                },
                x,
            )
            for edge, (candidates, x) in edges.items()
        }
        return super().node(name, watched, keep)


def _similarity(returned, sigma):
    """(operators, operators) of one cell; returned: a list of (samples, numbers)."""
    values = np.stack(returned, axis=1)  # (samples, operators, numbers)
    products = values @ values.transpose(0, 2, 1)
    squares = np.diagonal(products, axis1=1, axis2=2)
    distances = np.maximum(squares[:, :, None] + squares[:, None, :] - 2 * products, 0)
    if sigma is None:
        first, second = np.triu_indices(len(returned), 1)
        above = distances[:, first, second]
        sigma = np.sqrt(np.median(above)) if above.size and np.median(above) > 0 else 1.0
    similarity = np.exp(-distances / (2 * sigma**2)).mean(axis=0)
    np.fill_diagonal(similarity, 1.0)
    return similarity
