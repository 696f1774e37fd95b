"""Planes laid out as one line of numbers, for what slides a window over them.

With rows of one length, what a window's tap sees at position i is line[i + offset of the tap], for all i at once: a
loop over a long line instead of loops over short rows. The padding after a row or plane is that before the next one.
"""

import numpy as np
from numba import njit

LINE = 2048  # numbers computed at once: a few such lines fit in the first cache
LONG_ROW = 16  # numbers of a row that are copied as one; shorter ones take longer to begin than to copy


@njit(cache=True)
def planes_at_once(planes, plane_step):
    return max(1, min(planes, LINE // plane_step))


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
def places(height, width, row_step, stride_h, stride_w):
    """Where the numbers of a plane, one row after the other, lie in a line, with `stride - 1` places between
    neighbours."""
    found = np.empty(height * width, np.uint32)  # without a sign there is no place from the end to look for
    for h in range(height):
        for w in range(width):
            found[h * width + w] = h * stride_h * row_step + w * stride_w
    return found


@njit(cache=True)
def _long_rows(places):
    """How many numbers of a row lie side by side, where copying them together is quicker than one by one; or 0."""
    together = 1
    while together < places.shape[0] and places[together] == together:
        together += 1
    return together if together >= LONG_ROW else 0


@njit(cache=True)
def write(plane, line, places, rectified):
    """line[places] = plane, or relu(plane) if rectified; places: as places() returns."""
    if rectified:
        for i in range(places.shape[0]):
            line[places[i]] = max(plane[i], np.float32(0))
        return
    row = _long_rows(places)
    if row:
        for start in range(0, places.shape[0], row):
            source, target = plane[start:], line[places[start] :]
            for w in range(row):
                target[w] = source[w]
    else:
        for i in range(places.shape[0]):
            line[places[i]] = plane[i]


@njit(cache=True)
def read(line, places, plane, adds):
    """plane = line[places], added to what is there if `adds`."""
    if adds:
        for i in range(places.shape[0]):
            plane[i] += line[places[i]]
        return
    row = _long_rows(places)
    if row:
        for start in range(0, places.shape[0], row):
            source, target = line[places[start] :], plane[start:]
            for w in range(row):
                target[w] = source[w]
    else:
        for i in range(places.shape[0]):
            plane[i] = line[places[i]]


@njit(cache=True)
def layout(planes, height, width, window):
    """Of planes in a line under a window: the step between planes, how many planes are laid out at once, where the
    first one begins, the offsets of the taps, and the places of a plane's numbers and of those of the output."""
    _, _, out_h, out_w, pad_h, pad_w, stride_h, stride_w, _, _ = window
    row = max(width + pad_w, (out_w - 1) * stride_w + 1)
    plane = max(height + pad_h, (out_h - 1) * stride_h + 1) * row
    return (
        plane,
        planes_at_once(planes, plane),
        pad_h * row + pad_w,
        tap_offsets(window, row),
        places(height, width, row, 1, 1),
        places(out_h, out_w, row, stride_h, stride_w),
    )
