"""Convolution as matrix products over groups of samples, for all but depthwise convolutions.

Outputs and their gradients have the layout (maps, samples, height, width), in which the matrix product of several
small images is one, and a channel's statistics are of contiguous numbers. Groups of samples depend on shapes alone, so
that sums have one order whatever the number of threads.
"""

import numpy as np
from numba import njit, prange

from nnas.kernels.blas import gemm
from nnas.kernels.lines import add_row, take_row

_COLUMNS = 256  # of a matrix product of small images: enough for the BLAS to work well
_PIECE = 128  # columns of a product of an image as it lies: rows far apart are slow to read, and few of them stay near
_SHARES = 8  # parts of a batch whose weight gradients are summed apart, and then in their order


@njit(cache=True)
def _samples_at_once(samples, size):
    """How many samples make one matrix product: few enough for four threads to have work."""
    return max(1, min((_COLUMNS + size - 1) // size, (samples + 3) // 4))


@njit(cache=True)
def _inside(out_width, width, stride, shift):
    """The outputs [first, end) of a row whose place w * stride + shift is inside an image."""
    first = 0 if shift >= 0 else (-shift + stride - 1) // stride
    end = 0 if shift >= width else (width - shift + stride - 1) // stride
    end = min(end, out_width)
    return min(first, end), end


@njit(cache=True)
def _gather(x, first, count, start, channels, window, columns):
    """Write the receptive fields of some samples as columns: (channels * kh * kw, count * out_h * out_w)."""
    kh, kw, out_h, out_w, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w = window
    height, width = x.shape[2], x.shape[3]
    for j in range(kw):
        shift = j * dilation_w - pad_w
        begin, end = _inside(out_w, width, stride_w, shift)
        for c in range(channels):
            for i in range(kh):
                row = columns[(c * kh + i) * kw + j]
                for n in range(count):
                    for h in range(out_h):
                        line = row[(n * out_h + h) * out_w : (n * out_h + h + 1) * out_w]
                        place = h * stride_h - pad_h + i * dilation_h
                        if place < 0 or place >= height or begin == end:
                            line[:] = 0
                            continue
                        line[:begin] = 0
                        line[end:] = 0
                        source = x[first + n, start + c, place, begin * stride_w + shift :]
                        take_row(source, stride_w, line[begin:end], False)


@njit(cache=True)
def _scatter(columns, dx, first, count, start, channels, window):
    """Add columns to the places that `_gather` took them from."""
    kh, kw, out_h, out_w, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w = window
    height, width = dx.shape[2], dx.shape[3]
    for j in range(kw):
        shift = j * dilation_w - pad_w
        begin, end = _inside(out_w, width, stride_w, shift)
        for c in range(channels):
            for i in range(kh):
                row = columns[(c * kh + i) * kw + j]
                for n in range(count):
                    for h in range(out_h):
                        place = h * stride_h - pad_h + i * dilation_h
                        if 0 <= place < height and begin < end:
                            at = (n * out_h + h) * out_w
                            target = dx[first + n, start + c, place, begin * stride_w + shift :]
                            add_row(row[at + begin : at + end], target, stride_w)


@njit(cache=True)
def _is_plain(window, at_once):
    """Whether an image as it lies is its own matrix of receptive fields."""
    kh, kw, _, _, pad_h, pad_w, stride_h, stride_w, _, _ = window
    return at_once == 1 and kh * kw * stride_h * stride_w == 1 and pad_h + pad_w == 0


@njit(parallel=True, cache=True)
def forward(x, weight, y, window, groups):
    """y = x * weight. x: (N, C, H, W); weight: (maps, C / groups * kh * kw); y: (maps, N, out_h * out_w)."""
    samples, channels = x.shape[0], x.shape[1] // groups
    maps, depth = weight.shape[0] // groups, weight.shape[1]
    size = y.shape[2]
    at_once = _samples_at_once(samples, size)
    plain = _is_plain(window, at_once)
    for part in prange((samples + at_once - 1) // at_once):
        first = part * at_once
        count = min(at_once, samples - first)
        columns = np.empty((1 if plain else depth, count * size), np.float32)
        for g in range(groups):
            right = x[first, g * channels :].ctypes.data
            if not plain:
                _gather(x, first, count, g * channels, channels, window, columns)
                right = columns.ctypes.data
            left = weight[g * maps :].ctypes.data
            out = y[g * maps :, first:].ctypes.data
            wide = count * size
            piece = _PIECE if plain else wide
            for start in range(0, wide, piece):
                cut, at = min(piece, wide - start), 4 * start
                gemm(0, 0, maps, cut, depth, left, depth, right + at, wide, 0.0, out + at, samples * size)


@njit(parallel=True, cache=True)
def backward(x, weight, dy, dx, dweight, window, groups, flags):
    """The gradients of `forward`; those that are not wanted are not touched. flags: (wants dx, accumulates dx, wants
    dweight, accumulates dweight)."""
    wants_dx, accumulates_dx, wants_dweight, accumulates_dweight = flags
    samples, channels = x.shape[0], x.shape[1] // groups
    maps, depth = weight.shape[0] // groups, weight.shape[1]
    size = dy.shape[2]
    at_once = _samples_at_once(samples, size)
    plain = _is_plain(window, at_once)
    parts = (samples + at_once - 1) // at_once
    shares = min(parts, _SHARES)
    sums = np.empty((shares, weight.shape[0] if wants_dweight else 0, depth), np.float32)
    for share in prange(shares):
        columns = np.empty((1 if plain else depth, at_once * size), np.float32)
        first_part = share * parts // shares
        for part in range(first_part, (share + 1) * parts // shares):
            first = part * at_once
            count = min(at_once, samples - first)
            wide = count * size
            if wants_dx and not plain and not accumulates_dx:
                dx[first : first + count] = 0
            packed = columns.reshape(-1)[: columns.shape[0] * wide].reshape((columns.shape[0], wide))
            for g in range(groups):
                gradient = dy[g * maps :, first:].ctypes.data
                if wants_dweight:
                    fields = x[first, g * channels :].ctypes.data
                    if not plain:
                        _gather(x, first, count, g * channels, channels, window, packed)
                        fields = packed.ctypes.data
                    total = sums[share, g * maps :].ctypes.data
                    beta = 0.0 if part == first_part else 1.0
                    gemm(0, 1, maps, depth, wide, gradient, samples * size, fields, wide, beta, total, depth)
                if wants_dx:
                    left = weight[g * maps :].ctypes.data
                    out, beta = packed.ctypes.data, 0.0
                    if plain:
                        out, beta = dx[first, g * channels :].ctypes.data, 1.0 if accumulates_dx else 0.0
                    gemm(1, 0, depth, wide, maps, left, depth, gradient, samples * size, beta, out, wide)
                    if not plain:
                        _scatter(packed, dx, first, count, g * channels, channels, window)
    if wants_dweight:
        for row in prange(weight.shape[0]):
            if not accumulates_dweight:
                dweight[row] = 0
            for share in range(shares):
                for i in range(depth):
                    dweight[row, i] += sums[share, row, i]
