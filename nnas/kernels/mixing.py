"""Weighted sums, block by block of the numbers."""

import numpy as np
from numba import njit, prange

from nnas.kernels import FAST, LINE_OF_SUM

_BLOCK = 8192  # numbers that one thread takes at once


@njit(parallel=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
def add(x, weight, y, adds):
    """y = weight x, added to what is there if `adds`. x, y: (n,)."""
    for block in prange((x.shape[0] + _BLOCK - 1) // _BLOCK):
        part = slice(block * _BLOCK, (block + 1) * _BLOCK)
        source, target = x[part], y[part]
        if adds:
            for i in range(source.shape[0]):
                target[i] += weight * source[i]
        else:
            for i in range(source.shape[0]):
                target[i] = weight * source[i]


@njit(parallel=True, cache=True, error_model="numpy")
def product(x, y):
    """The sum of x y, which does not depend on the number of threads. x, y: (n,)."""
    sums = np.zeros((x.shape[0] + _BLOCK - 1) // _BLOCK)
    for block in prange(sums.shape[0]):
        for start in range(block * _BLOCK, min((block + 1) * _BLOCK, x.shape[0]), LINE_OF_SUM):
            sums[block] += _product(x[start : start + LINE_OF_SUM], y[start : start + LINE_OF_SUM])
    return sums.sum()


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _product(x, y):
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total
