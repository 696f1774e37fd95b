"""Batch normalization with the activation after it.

The input is given as lines: y of the layout (channels, samples, size). It is read twice in the forward and twice in
the backward pass, one channel after the other, each of which fits in a cache; nothing normalized is kept. Sums are
float32 within a line and float64 over lines.
"""

import numpy as np
from numba import njit, prange

from nnas.kernels import FAST, LINE_OF_SUM

IDENTITY, RELU, RELU6, SWISH = range(4)
NONE, RUNNING, BATCH, SCRATCH = range(4)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _sum(line):
    total = np.float32(0)
    for i in range(line.shape[0]):
        total += line[i]
    return total


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _squared_deviations(line, mean):
    total = np.float32(0)
    for i in range(line.shape[0]):
        total += (line[i] - mean) * (line[i] - mean)
    return total


@njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _activate(line, mean, scale, shift, activation, out):
    zero, six, one = np.float32(0), np.float32(6), np.float32(1)
    if activation == IDENTITY:
        for i in range(line.shape[0]):
            out[i] = (line[i] - mean) * scale + shift
    elif activation == RELU:
        for i in range(line.shape[0]):
            value = (line[i] - mean) * scale + shift
            out[i] = zero if value < zero else value  # a number that is not one stays so
    elif activation == RELU6:
        for i in range(line.shape[0]):
            value = (line[i] - mean) * scale + shift
            value = zero if value < zero else value
            out[i] = six if value > six else value
    else:
        for i in range(line.shape[0]):
            value = (line[i] - mean) * scale + shift
            out[i] = value / (one + np.exp(-value))


@njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _through_activation(line, mean, scale, shift, activation, dz, out):
    """out = dz * activation'(the normalized line)."""
    zero, six, one = np.float32(0), np.float32(6), np.float32(1)
    if activation == IDENTITY:
        for i in range(line.shape[0]):
            out[i] = dz[i]
    elif activation == RELU:
        for i in range(line.shape[0]):
            out[i] = dz[i] if (line[i] - mean) * scale + shift > zero else zero
    elif activation == RELU6:
        for i in range(line.shape[0]):
            value = (line[i] - mean) * scale + shift
            out[i] = dz[i] if value > zero and value < six else zero
    else:
        for i in range(line.shape[0]):
            value = (line[i] - mean) * scale + shift
            sigmoid = one / (one + np.exp(-value))
            out[i] = dz[i] * sigmoid * (one + value * (one - sigmoid))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _gradient_sums(line, mean, gradient):
    total, product = np.float32(0), np.float32(0)
    for i in range(line.shape[0]):
        total += gradient[i]
        product += gradient[i] * (line[i] - mean)
    return total, product


@njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _center(line, mean, gradient, middle, slope, scale, out):
    for i in range(line.shape[0]):
        out[i] = scale * (gradient[i] - middle - (line[i] - mean) * slope)


@njit(cache=True)
def _scale(gradient, scale, out):
    for i in range(gradient.shape[0]):
        out[i] = scale * gradient[i]


@njit(cache=True)
def _line(lines, channel, sample, by_sample):
    return lines[sample, channel] if by_sample else lines[channel, sample]


@njit(cache=True, error_model="numpy")
def _moments(y, channel, samples, by_sample):
    """The mean and the biased variance of a channel."""
    total, squares = 0.0, 0.0
    count = samples * y.shape[2]
    if by_sample:
        for n in range(samples):
            total += _sum(y[n, channel])
        middle = np.float32(total / count)
        for n in range(samples):
            squares += _squared_deviations(y[n, channel], middle)
    else:
        line = y[channel].reshape(-1)
        for start in range(0, count, LINE_OF_SUM):
            total += _sum(line[start : start + LINE_OF_SUM])
        middle = np.float32(total / count)
        for start in range(0, count, LINE_OF_SUM):
            squares += _squared_deviations(line[start : start + LINE_OF_SUM], middle)
    return total / count, squares / count


@njit(cache=True, error_model="numpy")
def normalize(y, at, by_sample, c, norm, activation, shortcut, z, kept):
    """`forward` of channel c, whose place in y is `at`."""
    statistics, gamma, beta, running_mean, running_variance, decay, epsilon = norm
    samples = z.shape[0]
    count = samples * z.shape[2]
    mean, inverse = 0.0, 1.0
    if statistics == RUNNING:
        mean, inverse = running_mean[c], 1 / np.sqrt(running_variance[c] + epsilon)
    elif statistics != NONE:
        mean, variance = _moments(y, at, samples, by_sample)
        inverse = 1 / np.sqrt(variance + epsilon)
        if statistics == BATCH:
            unbiased = variance * count / max(count - 1, 1)
            running_mean[c] = decay * running_mean[c] + (1 - decay) * mean
            running_variance[c] = decay * running_variance[c] + (1 - decay) * unbiased
    kept[0, c], kept[1, c], kept[2, c], kept[3, c] = mean, inverse, gamma[c] * inverse, beta[c]
    for n in range(samples):
        _activate(_line(y, at, n, by_sample), kept[0, c], kept[2, c], kept[3, c], activation, z[n, c])
        if shortcut.shape[0] > 0:
            for i in range(z.shape[2]):
                z[n, c, i] += shortcut[n, c, i]


@njit(parallel=True, cache=True)
def forward(y, by_sample, norm, activation, shortcut, z, kept):
    """z = activation(normalized y) + shortcut.

    y: (channels, samples, size), or (samples, channels, size) if by_sample; z: (samples, channels, size), and so
    shortcut, which may be empty. norm: (statistics, gamma, beta, running mean, running variance, decay, epsilon). kept:
    (4, channels), gets what `backward` needs: mean, 1 / deviation, scale, shift.
    """
    for c in prange(z.shape[1]):
        normalize(y, c, by_sample, c, norm, activation, shortcut, z, kept)


@njit(cache=True, error_model="numpy")
def normalize_back(y, at, by_sample, c, statistics, activation, kept, dz, dy, dgamma, dbeta):
    """`backward` of channel c, whose place in y and dy is `at`."""
    samples, size = dz.shape[0], dz.shape[2]
    count = samples * size
    mean, inverse, scale, shift = kept[0, c], kept[1, c], kept[2, c], kept[3, c]
    gradient = np.empty((samples, size), np.float32)
    total, product = 0.0, 0.0
    for n in range(samples):
        line = _line(y, at, n, by_sample)
        _through_activation(line, mean, scale, shift, activation, dz[n, c], gradient[n])
        sums = _gradient_sums(line, mean, gradient[n])
        total += sums[0]
        product += sums[1]
    dbeta[c] = total
    dgamma[c] = product * inverse
    middle = np.float32(total / count)
    slope = np.float32(product * inverse * inverse / count)
    if statistics not in (BATCH, SCRATCH):
        for n in range(samples):
            _scale(gradient[n], scale, _line(dy, at, n, by_sample))
    elif by_sample:
        for n in range(samples):
            _center(y[n, at], mean, gradient[n], middle, slope, scale, dy[n, at])
    else:
        _center(y[at].reshape(-1), mean, gradient.reshape(-1), middle, slope, scale, dy[at].reshape(-1))


@njit(parallel=True, cache=True)
def backward(y, by_sample, statistics, activation, kept, dz, dy, dgamma, dbeta):
    """Gradients of `forward`, also through the statistics where they are of the batch. dy, of y's layout, may be y;
    dgamma and dbeta: (channels,)."""
    for c in prange(dz.shape[1]):
        normalize_back(y, c, by_sample, c, statistics, activation, kept, dz, dy, dgamma, dbeta)


@njit(parallel=True, cache=True)
def pass_on(source, target, accumulates):
    """Add a gradient to a target of its shape, (samples, channels, size), or write it there."""
    for n in prange(source.shape[0]):
        if accumulates:
            for c in range(source.shape[1]):
                for i in range(source.shape[2]):
                    target[n, c, i] += source[n, c, i]
        else:
            target[n] = source[n]
