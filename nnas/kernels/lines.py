"""Planes laid out as one line of numbers, for what slides a window over them.

With rows of one length, what a window's tap sees at position i is line[i + offset of the tap], for all i at once: a
loop over a long line instead of loops over short rows. The padding after a row or plane is that before the next one.
"""

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
def tap_offsets(window, row_step, offsets):
    """Where each tap of a window lies in a line, from its first tap on."""
    kh, kw, _, _, _, _, _, _, dilation_h, dilation_w = window
    for i in range(kh):
        for j in range(kw):
            offsets[i * kw + j] = i * dilation_h * row_step + j * dilation_w
