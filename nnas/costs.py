"""The cost of every architecture of a space, as a sum of terms that depend on its choices."""

import hashlib
import json
from dataclasses import dataclass
from itertools import product
from math import isfinite, prod

from nnas.errors import NnasError
from nnas.files import read_json

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

    def cost(self, choices):
        """The cost of an architecture, in `unit`."""
        return self.factor * sum(
            term.cost for term in self.terms if all(choices.get(decision) == option for decision, option in term.when)
        )

    def expected(self, probabilities):
        """The mean cost when decisions are drawn independently; probabilities: {decision: {option: probability}}."""
        return self.factor * sum(
            term.cost * prod(probabilities[decision][option] for decision, option in dict(term.when).items())
            for term in self.terms
        )

    def gradient(self, probabilities):
        """The gradient of `expected`: {decision: {option: d expected / d probability}}, in `unit`."""
        gradient = {decision: dict.fromkeys(options, 0.0) for decision, options in probabilities.items()}
        for term in self.terms:
            when = dict(term.when)
            for decision, option in when.items():
                others = (probabilities[name][chosen] for name, chosen in when.items() if name != decision)
                gradient[decision][option] += self.factor * term.cost * prod(others)
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
    related = [site.when + ((decision.name, None),) for decision in space.decisions for site in decision.sites]
    related += [term.when for costs in tables for term in costs.terms]
    for names in ({name for name, _ in when} for when in related):
        together = set().union(*(links[name] for name in names))
        for name in together:
            links[name] = together
    found = [_group(space, {}, (), tables)]
    for names in {id(names): names for names in links.values()}.values():
        found.append(_group(space, names, [d for d in space.decisions if d.name in names], tables))
    return found


def _group(space, names, decisions, tables):
    size = prod(len(decision.options) for decision in decisions)
    if size > LARGEST_GROUP:
        raise NnasError(
            f"the decisions {', '.join(sorted(names))} of {space.name} depend on each other in {size} ways; at most "
            f"{LARGEST_GROUP} can be listed: nest fewer decisions in one another"
        )
    terms = [
        [
            term
            for term in costs.terms
            if {name for name, _ in term.when} <= set(names) and bool(term.when) == bool(names)
        ]
        for costs in tables
    ]
    assignments = {}
    for options in product(*(decision.options for decision in decisions)):
        given = dict(zip((decision.name for decision in decisions), options, strict=True))
        choices = {}
        for decision in decisions:
            if decision.is_active(choices):
                choices[decision.name] = given[decision.name]
        key = tuple(choices.items())
        if key not in assignments:
            assignments[key] = (
                choices,
                tuple(
                    costs.factor
                    * sum(term.cost for term in own if all(choices.get(name) == option for name, option in term.when))
                    for costs, own in zip(tables, terms, strict=True)
                ),
            )
    return Group(tuple(assignments.values()))


def extremes(space, costs):
    """The cost of the cheapest and of the dearest architecture of a space."""
    per_group = [[cost for _, (cost,) in group.assignments] for group in groups(space, [costs])]
    return sum(map(min, per_group)), sum(map(max, per_group))
