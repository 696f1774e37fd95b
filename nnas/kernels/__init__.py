"""Fast functions for training on the CPU, compiled with numba, which nothing outside this package knows.

nnabla's own CPU functions use one thread and SSE. What ships is measured and exported with those all the same: a graph
with these functions is for training only.
"""

from dataclasses import dataclass

# numba's fastmath for sums, whose order it may then choose; so many numbers, which lie together, are summed in float32.
FAST = {"contract", "reassoc", "nsz"}
LINE_OF_SUM = 1024


@dataclass(frozen=True)
class Normalization:
    """Batch normalization of a function's result.

    statistics: 'batch' (of the batch, which the running ones follow), 'scratch' (of the batch) or 'running'. gamma,
    beta: nnabla variables, scale and shift, of one number for each channel, or None. mean, variance: running ones.
    """

    statistics: str
    gamma: object = None
    beta: object = None
    mean: object = None
    variance: object = None
    decay: float = 0.9
    epsilon: float = 1e-5
