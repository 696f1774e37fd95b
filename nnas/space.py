"""Search spaces and architectures as plain values; nothing here knows nnabla."""

from dataclasses import dataclass
from math import prod

from nnas.errors import NnasError, nearest
from nnas.files import read_json, write_json


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
        return any(all(choices.get(name) == option for name, option in site.when) for site in self.sites)


@dataclass(frozen=True)
class Space:
    """The decisions of a network; a nested decision stands after the ones around it."""

    name: str
    decisions: tuple

    @property
    def size(self):
        """The number of assignments, those of decisions that are not reached included."""
        return prod(len(decision.options) for decision in self.decisions)

    def decision(self, name):
        for decision in self.decisions:
            if decision.name == name:
                return decision
        names = [decision.name for decision in self.decisions]
        raise NnasError(
            f"the space {self.name} has no decision {name!r}{nearest(name, names)} (it has {', '.join(names)})"
        )

    def complete(self, choose):
        """The choices of the active decisions, each found by choose(decision) in the order of the space."""
        choices = {}
        for decision in self.decisions:
            if decision.is_active(choices):
                choices[decision.name] = choose(decision)
        return choices

    def sample(self, generator):
        """Choices drawn uniformly; generator: numpy.random.Generator."""
        return self.complete(lambda decision: decision.options[generator.integers(len(decision.options))])

    def check(self, choices):
        """Return the choices in the order of the space, or raise NnasError when they are not an architecture of it."""
        for name, option in choices.items():
            options = self.decision(name).options
            if option not in options:
                raise NnasError(
                    f"{name}={option!r}: the space {self.name} has {', '.join(options)}{nearest(option, options)}"
                )

        def chosen(decision):
            if decision.name not in choices:
                raise NnasError(f"the architecture has no choice for {decision.name} of the space {self.name}")
            return choices[decision.name]

        return self.complete(chosen)

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
