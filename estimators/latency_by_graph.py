"""Latency of a graph as the sum over its functions."""

from estimators.base import Part
from estimators.graph import functions_of
from estimators.latency import Latency
from estimators.signature import signature


class LatencyByGraph(Latency):
    """Inference latency of parts, in ms: the sum over their functions, each measured by itself.

    A function is measured at its first appearance and kept in the device's table under its signature, as modules are;
    so a space of thousands of modules needs as many measurements as it has different functions. What a device gains by
    running several functions as one, or loses between them, is only in the factor to whole networks. See Latency for
    the arguments.
    """

    def description(self):
        """See Estimator."""
        return {**super().description(), "estimator": "latency_by_graph"}

    def _priced_by(self, part):
        return [(signature(one, self.table.dtype), one) for one in _functions_as_parts(part)]

    def _calibration_name(self, space_name):
        return f"{space_name}, by graph"

    def _advice(self, space_name="SPACE"):
        return f"{super()._advice(space_name)} estimator=latency_by_graph"


def _functions_as_parts(part):
    given = set(part.inputs)
    return [
        Part(
            tuple(function.outputs),
            tuple(dict.fromkeys(one for one in function.inputs if one.parent is not None or one in given)),
            f"{part.label}: {function.info.type_name}",
        )
        for function in functions_of(part)
    ]
