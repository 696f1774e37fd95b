"""Depthwise convolution, channel by channel, over planes laid out as lines.

Of a stride, the outputs of stride 1 are computed and some kept; its gradients get zeros in between.
"""

import numpy as np
from numba import njit, prange

from nnas.kernels import FAST
from nnas.kernels.lines import copy_row, layout, planes_at_once, take_row, tap_offsets


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
def _write_planes(
    x, by_sample, channel, first, count, line, begin, plane_step, row_step, stride_h, stride_w, rectified
):
    """Lay the planes of some samples into a line, with `stride - 1` places left between neighbours.

    x: (N, C, H, W) if by_sample, or (C, N, H, W). rectified: negative numbers become 0.
    """
    height, width = x.shape[2], x.shape[3]
    for n in range(count):
        for h in range(height):
            at = begin + n * plane_step + h * stride_h * row_step
            source = x[first + n, channel, h] if by_sample else x[channel, first + n, h]
            target = line[at : at + (width - 1) * stride_w + 1]
            copy_row(source, target, stride_w)
            if rectified:
                for w in range(width):
                    target[w] = max(target[w], np.float32(0))


@njit(parallel=True, cache=True)
def forward(x, weight, y, window, rectified):
    """y = x * weight. x: (N, C, H, W); weight: (C, kh * kw); y: (C, N, out_h, out_w).

    rectified: whether x goes through a ReLU first.
    """
    _, _, out_h, out_w, _, _, stride_h, stride_w, _, _ = window
    samples, channels, height, width = x.shape
    row, plane, at_once, begin, offsets = layout(samples, height, width, window)
    for c in prange(channels):
        line = np.zeros(at_once * plane + 2 * begin, np.float32)
        out = np.empty(at_once * plane, np.float32)
        for first in range(0, samples, at_once):
            count = min(at_once, samples - first)
            _write_planes(x, True, c, first, count, line, begin, plane, row, 1, 1, rectified)
            length = (count - 1) * plane + (out_h - 1) * stride_h * row + (out_w - 1) * stride_w + 1
            _correlate(line, offsets, weight[c], out, length)
            for n in range(count):
                for h in range(out_h):
                    take_row(out[n * plane + h * stride_h * row :], stride_w, y[c, first + n, h], False)


@njit(parallel=True, cache=True)
def backward(
    x, weight, dy, dx, dweight, window, rectified, wants_dx, accumulates_dx, wants_dweight, accumulates_dweight
):
    """The gradients of `forward`; those that are not wanted are not touched. dy: as y."""
    kh, kw, out_h, out_w, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w = window
    samples, channels, height, width = x.shape
    wide_h, wide_w = (out_h - 1) * stride_h + 1, (out_w - 1) * stride_w + 1  # of the gradient with its zeros
    top, left = max((kh - 1) * dilation_h - pad_h, 0), max((kw - 1) * dilation_w - pad_w, 0)
    row = max(width + pad_w, wide_w + left)
    plane = max(height + pad_h, wide_h + top) * row
    at_once = planes_at_once(samples, plane)
    offsets, mirrored = tap_offsets(window, row), np.empty(kh * kw, np.int64)
    for i in range(kh):
        for j in range(kw):
            mirrored[i * kw + j] = (pad_h - i * dilation_h + top) * row + pad_w - j * dilation_w + left
    begin, gradient_begin = pad_h * row + pad_w, top * row + left
    for c in prange(channels):
        line = np.zeros(at_once * plane + 2 * begin, np.float32)
        gradient = np.zeros(at_once * plane + gradient_begin + begin, np.float32)
        out = np.empty(at_once * plane, np.float32)
        sums = np.zeros(kh * kw, np.float64)
        for first in range(0, samples, at_once):
            count = min(at_once, samples - first)
            if count < at_once:
                gradient[:] = 0  # of planes that the last group has not
            _write_planes(dy, False, c, first, count, gradient, gradient_begin, plane, row, stride_h, stride_w, False)
            if wants_dweight:
                _write_planes(x, True, c, first, count, line, begin, plane, row, 1, 1, rectified)
                _products(
                    line, offsets, gradient[gradient_begin:], (count - 1) * plane + (wide_h - 1) * row + wide_w, sums
                )
            if wants_dx:
                _correlate(gradient, mirrored, weight[c], out, (count - 1) * plane + (height - 1) * row + width)
                for n in range(count):
                    for h in range(height):
                        result = out[n * plane + h * row : n * plane + h * row + width]
                        if rectified:
                            source = x[first + n, c, h]
                            for w in range(width):
                                result[w] = result[w] if source[w] > 0 else np.float32(0)
                        take_row(result, 1, dx[first + n, c, h], accumulates_dx)
        if wants_dweight:
            for t in range(kh * kw):
                dweight[c, t] = sums[t] + (dweight[c, t] if accumulates_dweight else 0)
