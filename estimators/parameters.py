"""Trainable parameters, counted."""

from estimators.base import Estimator
from estimators.graph import new_parameters


class Parameters(Estimator):
    """Elements of the leaves that need a gradient and are no data input: weights, biases, and the scale and shift of
    batch normalization, but not its running statistics.

    What two parts share counts once, where the second is only there together with the first.
    """

    unit = "parameters"

    def description(self):
        """See Estimator."""
        return {"estimator": "parameters", "unit": self.unit, "device": None, "batch": self.batch}

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator."""
        return [float(sum(leaf.size for leaf in leaves if leaf.need_grad)) for leaves in new_parameters(parts)]
