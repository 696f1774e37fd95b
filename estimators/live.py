"""Latency of whole networks, measured as they are built."""

from estimators.base import EstimatorError
from estimators.latency import Latency


class Live(Latency):
    """Inference latency of whole networks, in ms; always measured, never kept: for final candidates, and to check other
    estimators. It has no costs of modules, so it cannot be a constraint of a search. See Latency for the arguments.
    """

    def description(self):
        """See Estimator."""
        return {**super().description(), "estimator": "live"}

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator; parts: whole networks, whose measurements are interleaved.

        Raises EstimatorError where they are modules of a space.
        """
        chosen = next((part for part in parts if part.when), None)
        if chosen is not None:
            raise EstimatorError(
                f"estimator live measures whole networks, and {chosen.label!r} is a module of a space: a search, and a "
                "profile of a space, need estimator=latency or estimator=latency_by_graph; live is for train, and for "
                "final candidates"
            )
        return [measurement.median for measurement in self.measure_all(parts, progress)]

    def calibrated(self, space_name, parts, costs, networks, progress=None):
        """See Estimator: what is measured as a whole is that of the whole network."""
        return costs, 1.0, 0.0
