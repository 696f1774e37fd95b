"""The cost of every architecture of a space, as a sum of terms that depend on its choices."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, prod

from nnas.errors import NnasError
from nnas.files import read_json
from nnas.space import are_chosen

LARGEST_GROUP = 200_000


@dataclass(frozen=True)
class Term:
    """A cost that counts when all of `when`, pairs of (decision, option), is chosen; label: for people."""

    when: tuple
    cost: float
    label: str


@dataclass(frozen=True)
class Costs:
    """terms: sums of parts, in `unit`. factor: from a sum to the whole network, and its relative error (None: unknown).
    description: of the estimator and its device, as kept in costs.json."""

    unit: str
    terms: tuple
    factor: float = 1.0
    error: float = 0.0
    description: dict = None

    @cached_property
    def _sums(self):
        """{when, as a dictionary's items: the sum of its terms}: a decision with many sites has many terms."""
        sums = {}
        for term in self.terms:
            when = dict(term.when)
            if all(when[decision] == option for decision, option in term.when):  # else it never counts
                key = tuple(when.items())
                sums[key] = sums.get(key, 0) + term.cost
        return sums

    def cost(self, choices):
        """The cost of an architecture, in `unit`."""
        return self.factor * sum(cost for when, cost in self._sums.items() if are_chosen(when, choices))

    def expected(self, probabilities):
        """The mean cost when decisions are drawn independently; probabilities: {decision: {option: probability}}."""
        return self.factor * sum(
            cost * prod(probabilities[decision][option] for decision, option in when)
            for when, cost in self._sums.items()
        )

    def gradient(self, probabilities):
        """The gradient of `expected`: {decision: {option: d expected / d probability}}, in `unit`."""
        gradient = {decision: dict.fromkeys(options, 0.0) for decision, options in probabilities.items()}
        for when, cost in self._sums.items():
            for decision, option in when:
                others = (probabilities[name][chosen] for name, chosen in when if name != decision)
                gradient[decision][option] += self.factor * cost * prod(others)
        return gradient

    def to_json(self):
        content = {
            "unit": self.unit,
            "factor": self.factor,
            "error": self.error,
            "description": self.description,
            "terms": [{"when": dict(term.when), "cost": term.cost, "label": term.label} for term in self.terms],
        }
        return {**content, "digest": _digest(content)}

    @classmethod
    def from_json(cls, content, source):
        """Costs as to_json wrote them; source: the file, for errors."""
        advice = "remove the run folder and search again"
        try:
            terms = tuple(
                Term(tuple(term["when"].items()), float(term["cost"]), str(term["label"])) for term in content["terms"]
            )
            factor, error = float(content["factor"]), None if content["error"] is None else float(content["error"])
            unit, description = content["unit"], content["description"]
            # A term that is missing would be a cost of 0, which nobody could see.
            digest, found = content["digest"], _digest({key: content[key] for key in content if key != "digest"})
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise NnasError(f"{source}: it is not a cost file ({error!r}); {advice}") from None
        if not isinstance(unit, str) or not isinstance(description, dict | None):
            raise NnasError(f"{source}: it is not a cost file (unit {unit!r}, description {description!r}); {advice}")
        if digest != found:
            raise NnasError(f"{source}: its costs are not those that were written; {advice}")
        wrong = [term.label for term in terms if not isfinite(term.cost) or term.cost < 0]
        if wrong or not (isfinite(factor) and factor > 0 and (error is None or (isfinite(error) and error >= 0))):
            raise NnasError(
                f"{source}: the cost of {', '.join(wrong) or 'whole networks'} is no positive number; {advice}"
            )
        return cls(unit, terms, factor, error, description)


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_costs(path):
    """{constraint: Costs} of a costs.json."""
    content = read_json(path, "a cost file")
    if not isinstance(content, dict):
        raise NnasError(f"{path}: it is not a cost file; remove the run folder and search again")
    return {name: Costs.from_json(costs, path) for name, costs in content.items()}


@dataclass(frozen=True)
class Group:
    """Decisions whose costs depend on each other. assignments: every way to choose its active decisions, as
    (choices, (cost in the first of the tables, in the second, ...))."""

    assignments: tuple


def groups(space, tables):
    """Cut a space into groups, whose costs add up: the cost of an architecture is the sum over its groups.

    tables: a list of Costs; their fixed terms are a group without decisions.
    """
    links = {decision.name: {decision.name} for decision in space.decisions}
    nodes = [tuple((edge, None) for edge in node.edges) for node in space.nodes]
    related = nodes + [site.when + ((decision.name, None),) for decision in space.decisions for site in decision.sites]
    related += [term.when for costs in tables for term in costs.terms]
    for names in ({name for name, _ in when} for when in related):
        together = set().union(*(links[name] for name in names))
        for name in together:
            links[name] = together
    found = [_group(space, set(), tables)]
    for names in {id(names): names for names in links.values()}.values():
        found.append(_group(space, names, tables))
    return found


def _group(space, names, tables):
    part = replace(
        space,
        decisions=tuple(decision for decision in space.decisions if decision.name in names),
        nodes=tuple(node for node in space.nodes if node.edges[0] in names),
    )
    if part.size > LARGEST_GROUP:
        raise NnasError(
            f"the decisions {', '.join(sorted(names))} of {space.name} depend on each other in {part.size} ways; at "
            f"most {LARGEST_GROUP} can be listed: nest fewer decisions in one another, or give a node fewer edges"
        )
    sums = [
        [
            (when, cost)
            for when, cost in costs._sums.items()
            if {name for name, _ in when} <= names and bool(when) == bool(names)
        ]
        for costs in tables
    ]
    return Group(
        tuple(
            (
                choices,
                tuple(
                    costs.factor * sum(cost for when, cost in own if are_chosen(when, choices))
                    for costs, own in zip(tables, sums, strict=True)
                ),
            )
            for choices in part.assignments()
        )
    )


def extremes(space, costs):
    """The cost of the cheapest and of the dearest architecture of a space."""
    per_group = [[cost for _, (cost,) in group.assignments] for group in groups(space, [costs])]
    return sum(map(min, per_group)), sum(map(max, per_group))
