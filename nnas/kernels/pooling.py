"""Maximum and average pooling, plane by plane, over planes laid out as lines."""

import numpy as np
from numba import njit, prange

from nnas.kernels.lines import layout, read, write

_PARTS = 64  # a batch's planes are shared out in so many parts, if there are enough


@njit(cache=True)
def _largest(line, offsets, length, out):
    """The largest number that a window sees at each place."""
    out[:length] = line[offsets[0] : offsets[0] + length]
    for t in range(1, offsets.shape[0]):
        seen = line[offsets[t] :]
        for i in range(length):
            out[i] = np.maximum(out[i], seen[i])  # the only form here that becomes vector instructions


@njit(cache=True)
def _sums(line, offsets, length, out):
    out[:length] = 0
    for t in range(offsets.shape[0]):
        seen = line[offsets[t] :]
        for i in range(length):
            out[i] += seen[i]


@njit(cache=True)
def _counts(height, width, window, counts_pad):
    """How many numbers each average is of: (out_h * out_w,)."""
    kh, kw, out_h, out_w, pad_h, pad_w, stride_h, stride_w, _, _ = window
    counts = np.empty(out_h * out_w, np.float32)
    for h in range(out_h):
        rows = min(h * stride_h - pad_h + kh, height) - max(h * stride_h - pad_h, 0)
        for w in range(out_w):
            columns = min(w * stride_w - pad_w + kw, width) - max(w * stride_w - pad_w, 0)
            counts[h * out_w + w] = kh * kw if counts_pad else max(rows, 0) * max(columns, 0)
    return counts


@njit(parallel=True, cache=True, error_model="numpy")
def forward(x, y, size, window, averages, counts_pad):
    """x: (planes, H * W); y: (planes, out_h * out_w); size: (H, W). averages: or else the maximum. counts_pad: in an
    average."""
    planes = x.shape[0]
    plane, at_once, begin, offsets, inside, outside = layout(planes, *size, window)
    counts = _counts(*size, window, counts_pad)
    parts = min(_PARTS, (planes + at_once - 1) // at_once)
    for part in prange(parts):
        line = np.full(at_once * plane + 2 * begin, 0 if averages else -np.inf, np.float32)
        out = np.empty(at_once * plane, np.float32)
        last = (part + 1) * planes // parts
        for first in range(part * planes // parts, last, at_once):
            count = min(at_once, last - first)
            for n in range(count):
                write(x[first + n], line[begin + n * plane :], inside, False)
            length = (count - 1) * plane + outside[-1] + 1
            if averages:
                _sums(line, offsets, length, out)
            else:
                _largest(line, offsets, length, out)
            for n in range(count):
                target = y[first + n]
                read(out[n * plane :], outside, target, False)
                if averages:
                    for i in range(counts.shape[0]):
                        target[i] /= counts[i]


@njit(parallel=True, cache=True, error_model="numpy")
def backward(x, dy, dx, size, window, averages, counts_pad, accumulates):
    """The gradient of `forward`."""
    planes = x.shape[0]
    plane, at_once, begin, offsets, inside, outside = layout(planes, *size, window)
    counts = _counts(*size, window, counts_pad)
    parts = min(_PARTS, (planes + at_once - 1) // at_once)
    for part in prange(parts):
        line = np.full(at_once * plane + 2 * begin, 0 if averages else -np.inf, np.float32)
        out = np.empty(at_once * plane, np.float32)
        gradient = np.zeros(at_once * plane, np.float32)
        last = (part + 1) * planes // parts
        for first in range(part * planes // parts, last, at_once):
            count = min(at_once, last - first)
            length = (count - 1) * plane + outside[-1] + 1
            if not averages:
                for n in range(count):
                    write(x[first + n], line[begin + n * plane :], inside, False)
                _largest(line, offsets, length, out)
            for n in range(count):
                source, target = dy[first + n], gradient[n * plane :]
                for i in range(counts.shape[0]):
                    target[outside[i]] = source[i] / counts[i] if averages else source[i]
            # Each number gets what the windows that saw it hand back: those of a maximum all to its first place.
            back = np.zeros(at_once * plane + 2 * begin, np.float32)
            for t in range(offsets.shape[0]):
                target, seen = back[offsets[t] :], line[offsets[t] :]
                if averages:
                    for i in range(length):
                        target[i] += gradient[i]
                else:
                    for i in range(length):
                        handed = gradient[i] if seen[i] == out[i] else np.float32(0)
                        target[i] += handed
                        gradient[i] -= handed
            if not averages:
                gradient[:] = 0
            for n in range(count):
                read(back[begin + n * plane :], inside, dx[first + n], accumulates)
