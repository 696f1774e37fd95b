"""Costs of nnabla graphs: measured latency, multiply-adds, parameters, memory."""

from estimators.base import Estimator, EstimatorError, Lack, Measurement, MissingCost, Part
from estimators.latency import Latency
from estimators.latency_by_graph import LatencyByGraph
from estimators.live import Live
from estimators.macs import MACs
from estimators.memory import Memory
from estimators.parameters import Parameters

__all__ = [
    "Estimator",
    "EstimatorError",
    "Lack",
    "Latency",
    "LatencyByGraph",
    "Live",
    "MACs",
    "Measurement",
    "Memory",
    "MissingCost",
    "Parameters",
    "Part",
]
