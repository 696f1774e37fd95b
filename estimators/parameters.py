"""Trainable parameters, counted."""

from estimators.base import Estimator
from estimators.graph import parameters_of


class Parameters(Estimator):
    """Elements of the leaves that need a gradient and are no data input; each leaf counts once a part."""

    unit = "parameters"

    def description(self):
        """See Estimator."""
        return {"estimator": "parameters", "unit": self.unit, "device": None, "batch": self.batch}

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator."""
        return [float(sum(leaf.size for leaf in parameters_of(part) if leaf.need_grad)) for part in parts]
