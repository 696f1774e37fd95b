"""Search spaces and architectures as plain values; nothing here knows nnabla."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from math import log, prod

import numpy as np

from nnas.errors import NnasError, nearest
from nnas.files import read_json, write_json

# The option of an edge that gives zeros. An edge that is kept never has it: it would be no edge.
NONE = "none"
SMALLEST = 1e-300  # of a probability whose logarithm is taken


def are_chosen(when, choices):
    """Whether all (decision, option) pairs of `when` are among choices, {decision: option}."""
    return all(choices.get(decision) == option for decision, option in when)


@dataclass(frozen=True)
class Site:
    """A place of a decision in the network.

    input_shape: of one sample, without the batch axis. when: the (decision, option) pairs around it, outermost
    first; the site is reached when all of them are chosen.
    """

    input_shape: tuple
    when: tuple = ()


@dataclass(frozen=True)
class Decision:
    """A choice of one option by name. It may stand at several sites, which then choose alike."""

    name: str
    options: tuple
    sites: tuple

    def is_active(self, choices):
        """Whether the choices of the decisions around it reach any of its sites."""
        return any(are_chosen(site.when, choices) for site in self.sites)


@dataclass(frozen=True)
class Node:
    """A sum of edges of which exactly `keep` stay. edges: names of decisions; one that is dropped has no choice."""

    name: str
    edges: tuple
    keep: int

    @cached_property
    def subsets(self):
        """Every way to keep edges, in the order of the edges."""
        return tuple(combinations(self.edges, self.keep))


@dataclass(frozen=True)
class Space:
    """The decisions of a network; a nested decision stands after the ones around it. nodes: of some of the decisions,
    none of which is nested in another."""

    name: str
    decisions: tuple
    nodes: tuple = ()

    @property
    def size(self):
        """The number of legal assignments, those of decisions that are not reached included."""
        plain = prod(len(decision.options) for decision in self.decisions if decision.name not in self.node_of)
        return plain * prod(
            sum(prod(len(self._legal[edge].options) for edge in subset) for subset in node.subsets)
            for node in self.nodes
        )

    @cached_property
    def node_of(self):
        """{decision: its Node} of all edges."""
        return {edge: node for node in self.nodes for edge in node.edges}

    @cached_property
    def _legal(self):
        """{decision: the Decision with the options that it may have where it is kept}."""
        return {
            one.name: replace(one, options=tuple(option for option in one.options if option != NONE))
            if one.name in self.node_of
            else one
            for one in self.decisions
        }

    @cached_property
    def _places(self):
        """{decision: the places of its options other than NONE}."""
        return {
            one.name: [place for place, option in enumerate(one.options) if option != NONE] for one in self.decisions
        }

    def decision(self, name):
        for decision in self.decisions:
            if decision.name == name:
                return decision
        names = [decision.name for decision in self.decisions]
        raise NnasError(
            f"the space {self.name} has no decision {name!r}{nearest(name, names)} (it has {', '.join(names)})"
        )

    def complete(self, choose, keep=None):
        """The choices of the active decisions, each found by choose(decision) in the order of the space.

        keep: a function from a node to the edges that it keeps; by default the first ones. The decision that `choose`
        gets of an edge has only those options that an edge may have which is kept."""
        kept = {edge for node in self.nodes for edge in (node.subsets[0] if keep is None else keep(node))}
        choices = {}
        for decision in self.decisions:
            is_dropped = decision.name in self.node_of and decision.name not in kept
            if not is_dropped and decision.is_active(choices):
                choices[decision.name] = choose(self._legal[decision.name])
        return choices

    def sample(self, generator):
        """Choices drawn uniformly: for each node the edges that it keeps, and for each decision its option.

        generator: numpy.random.Generator."""
        return self.complete(
            lambda decision: decision.options[generator.integers(len(decision.options))],
            lambda node: node.subsets[generator.integers(len(node.subsets))],
        )

    def draw(self, probabilities, generator):
        """Choices drawn by probabilities of the options, {decision: array}, given that they are legal: an edge counts
        as dropped where NONE is drawn, and the others of its node are those that are kept."""

        def option(decision):
            if decision.name not in self.node_of:
                return decision.options[generator.choice(len(decision.options), p=probabilities[decision.name])]
            return decision.options[generator.choice(len(decision.options), p=self._kept(decision, probabilities))]

        def edges(node):
            return node.subsets[generator.choice(len(node.subsets), p=self._of_subsets(node, probabilities))]

        return self.complete(option, edges)

    def marginals(self, probabilities):
        """{decision: array}: the probability of each option in what `draw` returns, as far as nodes go. That of NONE
        is the one of a dropped edge; without that option they add up to the probability that the edge is kept."""
        found = dict(probabilities)
        for node in self.nodes:
            of_subsets = self._of_subsets(node, probabilities)
            for edge in node.edges:
                kept = sum(p for subset, p in zip(node.subsets, of_subsets, strict=True) if edge in subset)
                of_options = dict(
                    zip(self._legal[edge].options, self._kept(self._legal[edge], probabilities), strict=True)
                )
                found[edge] = np.array(
                    [
                        1 - kept if option == NONE else kept * of_options[option]
                        for option in self.decision(edge).options
                    ]
                )
        return found

    def marginals_gradient(self, probabilities, slopes):
        """The gradient for the probabilities of a function of their marginals. slopes: {decision: array}, its gradient
        for the marginals."""
        found = dict(slopes)
        for node in self.nodes:
            of_subsets = self._of_subsets(node, probabilities)
            is_in = np.array([[edge in subset for edge in node.edges] for subset in node.subsets], float)
            together = is_in.T @ (of_subsets[:, None] * is_in)  # the probability that two edges are both kept
            kept = np.diag(together)
            slopes_kept = [self._slopes_when_kept(edge, slopes) for edge in node.edges]
            within = [
                slope @ self._kept(self._legal[edge], probabilities)
                for edge, slope in zip(node.edges, slopes_kept, strict=True)
            ]
            # The odds of an edge are those of being kept to those of being dropped.
            by_odds = (together - np.outer(kept, kept)) @ np.array(within)
            for edge, share, slope, mean, by_log_odds in zip(
                node.edges, kept, slopes_kept, within, by_odds, strict=True
            ):
                places, given = self._places[edge], np.asarray(probabilities[edge], float)
                total = max(float(given[places].sum()), SMALLEST)
                gradient = np.zeros_like(given)
                gradient[places] = share * (slope - mean) / total
                if len(places) < len(given):
                    gradient[places] += by_log_odds / total
                    dropped = np.setdiff1d(np.arange(len(given)), places)
                    gradient[dropped] = -by_log_odds / max(float(given[dropped].sum()), SMALLEST)
                found[edge] = gradient
        return found

    def _slopes_when_kept(self, edge, slopes):
        """By how much a function changes with the marginals of an edge's options, beside that of NONE, which is what
        the others leave."""
        places, slope = self._places[edge], np.asarray(slopes[edge], float)
        dropped = np.setdiff1d(np.arange(len(slope)), places)
        return slope[places] - (slope[dropped].sum() if len(dropped) else 0.0)

    def _kept(self, decision, probabilities):
        """Of the options of an edge that is kept."""
        left = np.maximum(np.asarray(probabilities[decision.name])[self._places[decision.name]], SMALLEST)
        return left / left.sum()

    def _of_subsets(self, node, probabilities):
        logs = {}  # {edge: log of the odds that it is kept}
        for edge in node.edges:
            given = np.asarray(probabilities[edge])
            kept = float(given[self._places[edge]].sum())
            # Without NONE all edges are kept alike.
            dropped = float(given.sum()) - kept if len(self._places[edge]) < len(given) else kept
            logs[edge] = log(max(kept, SMALLEST)) - log(max(dropped, SMALLEST))
        sums = np.array([sum(logs[edge] for edge in subset) for subset in node.subsets])
        weights = np.exp(sums - sums.max())
        return weights / weights.sum()

    def assignments(self):
        """Every architecture, once, in the order of the options, the last decision fastest."""
        plain = [decision for decision in self.decisions if decision.name not in self.node_of]
        kept = [
            [
                dict(zip(subset, options, strict=True))
                for subset in node.subsets
                for options in product(*(self._legal[edge].options for edge in subset))
            ]
            for node in self.nodes
        ]
        found = {}
        for options in product(*kept, *(decision.options for decision in plain)):
            given = dict(zip((decision.name for decision in plain), options[len(kept) :], strict=True))
            for edges in options[: len(kept)]:
                given |= edges
            choices = self.complete(
                lambda decision, given=given: given[decision.name],
                lambda node, given=given: [edge for edge in node.edges if edge in given],
            )
            found.setdefault(tuple(choices.items()), choices)
        return list(found.values())

    def check(self, choices):
        """Return the choices in the order of the space, or raise NnasError when they are not an architecture of it."""
        kept = {node.name: tuple(edge for edge in node.edges if edge in choices) for node in self.nodes}
        for name, option in choices.items():
            options = self.decision(name).options
            if option not in options:
                raise NnasError(
                    f"{name}={option!r}: the space {self.name} has {', '.join(options)}{nearest(option, options)}"
                )
            if option not in self._legal[name].options:
                raise NnasError(
                    f"{name}={option!r}: an edge that is kept has one of {', '.join(self._legal[name].options)}; leave "
                    "out an edge that is dropped"
                )
        for node in self.nodes:
            if len(kept[node.name]) != node.keep:
                raise NnasError(
                    f"the node {node.name} of the space {self.name} keeps {node.keep} of its edges "
                    f"{', '.join(node.edges)}, but the architecture has {', '.join(kept[node.name]) or 'none of them'}"
                )

        def chosen(decision):
            if decision.name not in choices:
                raise NnasError(f"the architecture has no choice for {decision.name} of the space {self.name}")
            return choices[decision.name]

        return self.complete(chosen, lambda node: kept[node.name])

    def to_json(self):
        return {
            "name": self.name,
            "decisions": [
                {
                    "name": decision.name,
                    "options": list(decision.options),
                    "sites": [
                        {"input_shape": list(site.input_shape), "when": dict(site.when)} for site in decision.sites
                    ],
                }
                for decision in self.decisions
            ],
            "nodes": [{"name": node.name, "edges": list(node.edges), "keep": node.keep} for node in self.nodes],
        }

    def save(self, path):
        write_json(path, self.to_json())


@dataclass(frozen=True)
class Architecture:
    """A point of a space: the option chosen at each decision that is reached.

    predicted: {constraint: {"value", "unit", "error", "device"}} as far as known; error: relative.
    """

    space: str
    choices: dict
    predicted: dict

    def save(self, path):
        write_json(path, {"space": self.space, "choices": self.choices, "predicted": self.predicted})

    @classmethod
    def load(cls, path):
        content = read_json(path, "an architecture file")
        choices = content.get("choices") if isinstance(content, dict) else None
        if not isinstance(choices, dict) or not isinstance(content.get("space"), str):
            raise NnasError(f"{path}: it is not an architecture file: the keys 'space' and 'choices' are needed")
        predicted = content.get("predicted") or {}
        if not isinstance(predicted, dict) or not all(
            isinstance(cost, dict)
            and isinstance(cost.get("unit"), str)
            and all(
                type(number) in (int, float) and number >= 0 for number in (cost.get("value"), cost.get("error") or 0)
            )
            for cost in predicted.values()
        ):
            raise NnasError(
                f"{path}: 'predicted' must give value, unit and perhaps error of each constraint, or be left out"
            )
        return cls(content["space"], choices, predicted)
