"""Matrix products of float32 inside numba's compiled functions, by the BLAS that scipy ships.

numpy's own OpenBLAS falls back to a slow kernel on new processors; scipy's is newer. It is kept at one thread, since
the callers run in parallel themselves.
"""

import numpy as np
from llvmlite import binding
from numba import njit, types
from numba.extending import get_cython_function_address

_SYMBOL = "nnas_sgemm"
binding.add_symbol(_SYMBOL, get_cython_function_address("scipy.linalg.cython_blas", "sgemm"))
# All arguments are addresses, which have the size of intp. A name, unlike a ctypes pointer, can be kept in a cache.
_sgemm = types.ExternalFunction(_SYMBOL, types.void(*[types.intp] * 13))


@njit(cache=True)
def gemm(left_transposed, right_transposed, rows, columns, depth, left, left_step, right, right_step, beta, out, step):
    """out = left @ right + beta * out, all row-major.

    left: address of a (rows, depth) matrix, or of a (depth, rows) one where it is to be transposed; right likewise
    (depth, columns); out: (rows, columns). The steps are the distances between rows, in elements.
    """
    letters = np.array([78, 84], np.uint8)  # N, T
    # In Fortran's order of elements the transposed equation is computed: out' = right' @ left'.
    sizes = np.array([columns, rows, depth, right_step, left_step, step], np.int32)
    factors = np.array([1.0, beta], np.float32)
    letter, size, factor = letters.ctypes.data, sizes.ctypes.data, factors.ctypes.data
    _sgemm(
        letter + right_transposed,
        letter + left_transposed,
        size,
        size + 4,
        size + 8,
        factor,
        right,
        size + 12,
        left,
        size + 16,
        factor + 4,
        out,
        size + 20,
    )
