"""What every estimator offers: a cost for each part of a graph, and the way from parts to whole networks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import median

from estimators.statistics import half_width, median_interval, spread

# Of a slowdown that is taken out of a figure, the share by which the figure may be wrong. On a shared machine, modules
# measured at a slowdown of 1.55 and of 2.14 differed by 9 % (median).
UNEVEN_SLOWDOWN = 0.1


class EstimatorError(ValueError):
    """A cost, a table or a device that cannot be had; the message is one line for the user."""


@dataclass(frozen=True)
class Lack:
    """One cost that cannot be had: the part's label, why (where that differs from part to part), its signature."""

    label: str
    reason: str = ""
    signature: str = ""


class MissingCost(EstimatorError):
    """Costs that are needed and that nobody has measured.

    lacks: tuple of Lack, all of them; the message lists the first ten.
    advice: what would supply them, for instance the command that measures.
    """

    SHOWN = 10

    def __init__(self, summary, lacks, advice):
        self.lacks = tuple(lacks)
        self.advice = advice
        shown = "; ".join(
            f"{lack.label} ({lack.reason})" if lack.reason else lack.label for lack in self.lacks[: self.SHOWN]
        )
        more = len(self.lacks) - self.SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        super().__init__(f"{summary}: {len(self.lacks)} missing: {shown}{tail}. {advice}")


@dataclass(frozen=True)
class Measurement:
    """A measured figure.

    median: over the rounds, each round's figure being a median itself; in `unit`.
    interval: (low, high) where that median lies with 95 % confidence, in `unit`; None for fewer than six rounds. It is
    wider by a tenth of what the device was slowed down: not all functions slow down alike.
    spread: the interquartile range of the rounds' figures, in `unit`.
    rounds: how many rounds, at different times. runs: forward passes in all of them together.
    slowdown: how many times slower than undisturbed the device was meanwhile, which is taken out of the median.
    """

    median: float
    interval: tuple
    spread: float
    rounds: int
    runs: int
    unit: str = "ms"
    slowdown: float = 1.0

    @classmethod
    def of(cls, figures, runs, slowdown=1.0):
        """The Measurement that the figures of some rounds make."""
        interval = median_interval(figures)
        if interval:
            low, high = interval
            unsure = 1 + UNEVEN_SLOWDOWN * max(slowdown - 1, 0)
            interval = low / unsure, high * unsure
        return cls(median(figures), interval, spread(figures), len(figures), runs, slowdown=slowdown)

    @property
    def error(self):
        """Half the interval, relative to the median; infinite where there is none."""
        return half_width(self.interval, self.median)


@dataclass(frozen=True)
class Part:
    """A piece of a static graph that has a cost. Any object with these attributes will do.

    outputs: tuple of nnabla Variables, where the piece ends.
    inputs: tuple of nnabla Variables, where it begins: nothing behind them belongs to it.
    label: for people, say "block3 = e3_k5".
    when: the choices with which the piece belongs to a network, as pairs (decision, option); () where it always does.
    held: what has to be kept in memory until the piece has run, since pieces that run later need it; its own inputs
    may be among it.
    A part without any function (an identity) costs exactly 0.
    """

    outputs: tuple
    inputs: tuple
    label: str
    when: tuple = ()
    held: tuple = ()


@dataclass(frozen=True)
class Network:
    """A whole network of a space. whole: it as one Part. parts: the places of its parts among those of the space."""

    whole: Part
    parts: tuple


class Estimator(ABC):
    """Prices parts of graphs, in one unit.

    unit: the unit of all its numbers.
    batch: the batch size at which parts have to be built.
    notices: what people should know of the measurements so far, lines of text.
    """

    unit: str
    batch: int = 1
    notices: tuple = ()

    @abstractmethod
    def costs(self, parts, progress=None, space_name="SPACE"):
        """The costs of all parts, one float each, in `unit`; never a number that was not had.

        parts: sequence of Part, all pieces of one network or space, in the order in which they run, so that
        measurements can be interleaved and what is shared counts once.
        progress: optional progress(done, total, text), called while something is measured. space_name: what they
        are parts of, for the command in an error.
        Raises MissingCost, EstimatorError.
        """

    @abstractmethod
    def description(self):
        """What the numbers are, as JSON-able values: estimator, unit, batch, device (fingerprint or None)."""

    def calibrated(self, space_name, parts, costs, networks, progress=None):
        """(costs of the parts, factor, error): a whole network costs factor x the sum of its parts; error is relative.

        Counted costs add up exactly; measured ones do not, so some networks are measured as a whole. An error of None
        is one that nobody knows.
        parts: sequence of Part, all of a space. costs: what `costs` says of them. networks: sequence of Network.
        Raises MissingCost.
        """
        return costs, 1.0, 0.0
