"""Planes laid out as one line of numbers, for what slides a window over them.

With rows of one length, what a window's tap sees at position i is line[i + offset of the tap], for all i at once: a
loop over a long line instead of loops over short rows. The padding after a row or plane is that before the next one.
"""

import numpy as np
from numba import njit

LINE = 2048  # numbers computed at once: a few such lines fit in the first cache


@njit(cache=True)
def planes_at_once(planes, plane_step):
    return max(1, min(planes, LINE // plane_step))


@njit(cache=True)
def copy_row(source, target, step):
    """target[:: step] = source."""
    if step == 1:
        for w in range(source.shape[0]):
            target[w] = source[w]
    else:
        for w in range(source.shape[0]):
            target[w * step] = source[w]


@njit(cache=True)
def add_row(source, target, step):
    """target[:: step] += source."""
    if step == 1:
        for w in range(source.shape[0]):
            target[w] += source[w]
    else:
        for w in range(source.shape[0]):
            target[w * step] += source[w]


@njit(cache=True)
def take_row(source, step, target, adds):
    """target = source[:: step], added to what is there if `adds`."""
    if adds:
        for w in range(target.shape[0]):
            target[w] += source[w * step]
    elif step == 1:
        for w in range(target.shape[0]):
            target[w] = source[w]
    else:
        for w in range(target.shape[0]):
            target[w] = source[w * step]


@njit(cache=True)
def tap_offsets(window, row_step):
    """Where each tap of a window lies in a line, from its first tap on."""
    kh, kw, _, _, _, _, _, _, dilation_h, dilation_w = window
    offsets = np.empty(kh * kw, np.int64)
    for i in range(kh):
        for j in range(kw):
            offsets[i * kw + j] = i * dilation_h * row_step + j * dilation_w
    return offsets


@njit(cache=True)
def layout(planes, height, width, window):
    """Of planes in a line under a window: the steps between rows and between planes, how many planes are laid out at
    once, where the first one begins, and the offsets of the taps."""
    _, _, out_h, out_w, pad_h, pad_w, stride_h, stride_w, _, _ = window
    row = max(width + pad_w, (out_w - 1) * stride_w + 1)
    plane = max(height + pad_h, (out_h - 1) * stride_h + 1) * row
    return row, plane, planes_at_once(planes, plane), pad_h * row + pad_w, tap_offsets(window, row)
