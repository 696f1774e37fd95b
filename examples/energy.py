"""An estimator of one's own: the energy of an inference, from multiply-adds and from weights that are read.

From this folder, with a bound on latency and one on energy:
nnas proxyless --config-dir=conf constraints=[latency,energy] constraints.energy.fraction=0.6
"""

from estimators.base import Estimator
from estimators.macs import MACs
from estimators.parameters import Parameters


class Energy(Estimator):
    """In nJ. per_mac, per_parameter: pJ; the defaults are round numbers to be replaced by those of your device."""

    unit = "nJ"

    def __init__(self, per_mac=5.0, per_parameter=100.0):
        self._per_mac, self._per_parameter = per_mac, per_parameter

    def description(self):
        return {"estimator": "energy", "unit": self.unit, "device": None, "batch": self.batch}

    def costs(self, parts, progress=None, space_name="SPACE"):
        counted = zip(MACs().costs(parts), Parameters().costs(parts), strict=True)
        return [(self._per_mac * macs + self._per_parameter * weights) / 1000 for macs, weights in counted]
