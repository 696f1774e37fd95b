"""Depthwise convolution and the normalization after it, channel by channel, which stays in a cache meanwhile.

Planes are laid out as lines. Of a stride, the outputs of stride 1 are computed and some kept; its gradients get zeros
in between.
"""

import numpy as np
from numba import njit, prange

from nnas.kernels import FAST
from nnas.kernels.lines import layout, places, planes_at_once, read, tap_offsets, write
from nnas.kernels.normalization import IDENTITY, NONE, normalize, normalize_back


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _correlate(line, offsets, weights, out, length):
    """out[i] = sum over taps of weights[t] * line[i + offsets[t]]."""
    taps = weights.shape[0]
    out[:length] = 0
    t = 0
    # The taps are written out: a loop over them within the loop over i is several times slower.
    while t + 9 <= taps:
        w0, w1, w2, w3, w4 = weights[t], weights[t + 1], weights[t + 2], weights[t + 3], weights[t + 4]
        w5, w6, w7, w8 = weights[t + 5], weights[t + 6], weights[t + 7], weights[t + 8]
        l0, l1, l2 = line[offsets[t] :], line[offsets[t + 1] :], line[offsets[t + 2] :]
        l3, l4, l5 = line[offsets[t + 3] :], line[offsets[t + 4] :], line[offsets[t + 5] :]
        l6, l7, l8 = line[offsets[t + 6] :], line[offsets[t + 7] :], line[offsets[t + 8] :]
        for i in range(length):
            out[i] += (
                w0 * l0[i]
                + w1 * l1[i]
                + w2 * l2[i]
                + w3 * l3[i]
                + w4 * l4[i]
                + w5 * l5[i]
                + w6 * l6[i]
                + w7 * l7[i]
                + w8 * l8[i]
            )
        t += 9
    while t + 4 <= taps:
        w0, w1, w2, w3 = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        l0, l1 = line[offsets[t] :], line[offsets[t + 1] :]
        l2, l3 = line[offsets[t + 2] :], line[offsets[t + 3] :]
        for i in range(length):
            out[i] += w0 * l0[i] + w1 * l1[i] + w2 * l2[i] + w3 * l3[i]
        t += 4
    while t < taps:
        w0, l0 = weights[t], line[offsets[t] :]
        for i in range(length):
            out[i] += w0 * l0[i]
        t += 1


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _products(line, offsets, gradient, length, out):
    """out[t] += sum over i of gradient[i] * line[i + offsets[t]]."""
    taps = out.shape[0]
    t = 0
    while t + 5 <= taps:
        l0, l1, l2 = line[offsets[t] :], line[offsets[t + 1] :], line[offsets[t + 2] :]
        l3, l4 = line[offsets[t + 3] :], line[offsets[t + 4] :]
        s0 = s1 = s2 = s3 = s4 = np.float32(0)
        for i in range(length):
            g = gradient[i]
            s0 += g * l0[i]
            s1 += g * l1[i]
            s2 += g * l2[i]
            s3 += g * l3[i]
            s4 += g * l4[i]
        out[t] += s0
        out[t + 1] += s1
        out[t + 2] += s2
        out[t + 3] += s3
        out[t + 4] += s4
        t += 5
    while t < taps:
        l0 = line[offsets[t] :]
        s0 = np.float32(0)
        for i in range(length):
            s0 += gradient[i] * l0[i]
        out[t] += s0
        t += 1


@njit(cache=True)
def _convolve(x, weight, y, c, rectified, lines):
    """y = channel c of x * weight: (N, out_h * out_w). x: (N, C, H * W); lines: as layout() returns."""
    samples = x.shape[0]
    plane, at_once, begin, offsets, inside, outside = lines
    line = np.zeros(at_once * plane + 2 * begin, np.float32)
    out = np.empty(at_once * plane, np.float32)
    for first in range(0, samples, at_once):
        count = min(at_once, samples - first)
        for n in range(count):
            write(x[first + n, c], line[begin + n * plane :], inside, rectified)
        _correlate(line, offsets, weight[c], out, (count - 1) * plane + outside[-1] + 1)
        for n in range(count):
            read(out[n * plane :], outside, y[first + n], False)


@njit(cache=True)
def _layout_back(samples, height, width, window):
    """As layout(), of lines for x and for the output's gradient alike: the step between planes, how many of them are
    laid out at once, where the first one begins in x and in the gradient, the offsets of the taps, those of the
    gradient under the mirrored window, and the places of a plane's numbers in x and in the gradient."""
    kh, kw, out_h, out_w, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w = window
    wide_h, wide_w = (out_h - 1) * stride_h + 1, (out_w - 1) * stride_w + 1  # of the gradient with its zeros
    top, left = max((kh - 1) * dilation_h - pad_h, 0), max((kw - 1) * dilation_w - pad_w, 0)
    row = max(width + pad_w, wide_w + left)
    plane = max(height + pad_h, wide_h + top) * row
    mirrored = np.empty(kh * kw, np.int64)
    for i in range(kh):
        for j in range(kw):
            mirrored[i * kw + j] = (pad_h - i * dilation_h + top) * row + pad_w - j * dilation_w + left
    return (
        plane,
        planes_at_once(samples, plane),
        pad_h * row + pad_w,
        top * row + left,
        tap_offsets(window, row),
        mirrored,
        places(height, width, row, 1, 1),
        places(out_h, out_w, row, stride_h, stride_w),
    )


@njit(cache=True)
def _convolve_back(x, weight, dy, dx, dweight, c, rectified, lines, flags):
    """The gradients of channel c of `_convolve`; those that are not wanted are not touched. dy: (N, out_h * out_w);
    lines: as _layout_back() returns; flags: (wants dx, accumulates dx, wants dweight, accumulates dweight)."""
    wants_dx, accumulates_dx, wants_dweight, accumulates_dweight = flags
    samples = x.shape[0]
    plane, at_once, begin, gradient_begin, offsets, mirrored, inside, outside = lines
    line = np.zeros(at_once * plane + 2 * begin, np.float32)
    gradient = np.zeros(at_once * plane + gradient_begin + begin, np.float32)
    out = np.empty(at_once * plane, np.float32)
    sums = np.zeros(offsets.shape[0], np.float64)
    for first in range(0, samples, at_once):
        count = min(at_once, samples - first)
        if count < at_once:
            gradient[:] = 0  # of planes that the last group has not
        for n in range(count):
            write(dy[first + n], gradient[gradient_begin + n * plane :], outside, False)
        if wants_dweight:
            for n in range(count):
                write(x[first + n, c], line[begin + n * plane :], inside, rectified)
            length = (count - 1) * plane + outside[-1] + 1
            _products(line, offsets, gradient[gradient_begin:], length, sums)
        if wants_dx:
            _correlate(gradient, mirrored, weight[c], out, (count - 1) * plane + inside[-1] + 1)
            for n in range(count):
                result = out[n * plane :]
                if rectified:
                    source = x[first + n, c]
                    for i in range(inside.shape[0]):
                        if not source[i] > 0:
                            result[inside[i]] = 0
                read(result, inside, dx[first + n, c], accumulates_dx)
    if wants_dweight:
        for t in range(sums.shape[0]):
            dweight[c, t] = sums[t] + (dweight[c, t] if accumulates_dweight else 0)


@njit(parallel=True, cache=True)
def forward(x, weight, window, rectified, y, norm, activation, shortcut, z, kept):
    """z = activation(normalized x * weight) + shortcut. x: (N, C, H, W); weight: (C, kh * kw).

    rectified: whether x goes through a ReLU first. y: (C, N, out_h * out_w), gets x * weight, or is empty. The rest:
    as in normalization.forward.
    """
    samples, channels, size = z.shape
    lines = layout(samples, x.shape[2], x.shape[3], window)
    planes = x.reshape((samples, channels, -1))
    for c in prange(channels):
        line = y[c : c + 1] if y.shape[0] > 0 else np.empty((1, samples, size), np.float32)
        _convolve(planes, weight, line[0], c, rectified, lines)
        normalize(line, 0, False, c, norm, activation, shortcut, z, kept)


@njit(parallel=True, cache=True)
def backward(x, weight, window, rectified, y, statistics, activation, kept, dz, dgamma, dbeta, dx, dweight, flags):
    """The gradients of `forward`; those of x and weight that are not wanted are not touched.

    y: as `forward` left it; what it has not kept is computed again. flags: as in _convolve_back.
    """
    samples, channels, size = dz.shape
    lines = layout(samples, x.shape[2], x.shape[3], window)
    lines_back = _layout_back(samples, x.shape[2], x.shape[3], window)
    planes, dplanes = x.reshape((samples, channels, -1)), dx.reshape((dx.shape[0], dx.shape[1], -1))
    for c in prange(channels):
        line = y[c : c + 1] if y.shape[0] > 0 else np.empty((1, samples, size), np.float32)
        if y.shape[0] == 0 and (statistics != NONE or activation != IDENTITY):  # otherwise the numbers do not matter
            _convolve(planes, weight, line[0], c, rectified, lines)
        dline = np.empty((1, samples, size), np.float32)
        normalize_back(line, 0, False, c, statistics, activation, kept, dz, dline, dgamma, dbeta)
        _convolve_back(planes, weight, dline[0], dplanes, dweight, c, rectified, lines_back, flags)
