"""The same operators in numpy at double precision, forward and backward, in the plainest form."""

import numpy as np


def taps(window, x_shape):
    """Yield (i, j, rows, columns, ...): what each tap of a window sees of a padded image."""
    (kh, kw), (ph, pw), (sh, sw), (dh, dw) = window
    height, width = x_shape[2] + 2 * ph, x_shape[3] + 2 * pw
    out_h, out_w = (height - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1
    for i in range(kh):
        for j in range(kw):
            yield (
                i,
                j,
                slice(i * dh, i * dh + (out_h - 1) * sh + 1, sh),
                slice(j * dw, j * dw + (out_w - 1) * sw + 1, sw),
            )


def padded(x, pad, value=0.0):
    return np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2), constant_values=value)


def convolution(x, weight, window, group):
    xp = padded(x, window[1])
    grouped = xp.reshape(len(x), group, -1, *xp.shape[2:])
    kernel = weight.reshape(group, -1, *weight.shape[1:])
    y = sum(
        np.einsum("ngchw,goc->ngohw", grouped[..., rows, columns], kernel[..., i, j])
        for i, j, rows, columns in taps(window, x.shape)
    )
    return y.reshape(len(x), -1, *y.shape[3:])


def convolution_gradients(x, weight, window, group, dy):
    xp = padded(x, window[1])
    dxp = np.zeros_like(xp)
    grouped, dgrouped = (a.reshape(len(x), group, -1, *xp.shape[2:]) for a in (xp, dxp))
    kernel = weight.reshape(group, -1, *weight.shape[1:])
    dkernel = np.zeros_like(kernel)
    dy = dy.reshape(len(x), group, -1, *dy.shape[2:])
    for i, j, rows, columns in taps(window, x.shape):
        dkernel[..., i, j] = np.einsum("ngchw,ngohw->goc", grouped[..., rows, columns], dy)
        dgrouped[..., rows, columns] += np.einsum("ngohw,goc->ngchw", dy, kernel[..., i, j])
    (ph, pw) = window[1]
    return dxp[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]], dkernel.reshape(weight.shape)


def _channels(a):
    return np.asarray(a, np.float64).reshape(1, -1, 1, 1)


ACTIVATIONS = {
    None: (lambda v: v, lambda v: np.ones_like(v)),
    "relu": (lambda v: np.maximum(v, 0), lambda v: (v > 0) * 1.0),
    "relu6": (lambda v: np.clip(v, 0, 6), lambda v: ((v > 0) & (v < 6)) * 1.0),
    "swish": (
        lambda v: v / (1 + np.exp(-v)),
        lambda v: (1 / (1 + np.exp(-v))) * (1 + v * (1 - 1 / (1 + np.exp(-v)))),
    ),
}


def normalized(y, statistics, gamma, beta, mean, variance, epsilon, activation, dz):
    """(z, dy, dgamma, dbeta) of activation(normalization(y)) and its gradients under dz."""
    axes = (0, 2, 3)
    if statistics in ("batch", "scratch"):
        mean, variance = y.mean(axes), y.var(axes)
    inverse = 1 / np.sqrt(_channels(variance) + epsilon)
    hat = (y - _channels(mean)) * inverse
    value = hat * _channels(gamma) + _channels(beta)
    function, slope = ACTIVATIONS[activation]
    gradient = dz * slope(value)
    dgamma, dbeta = (gradient * hat).sum(axes), gradient.sum(axes)
    dhat = gradient * _channels(gamma)
    if statistics in ("batch", "scratch"):
        dhat = dhat - dhat.mean(axes, keepdims=True) - hat * (dhat * hat).mean(axes, keepdims=True)
    return function(value), dhat * inverse, dgamma, dbeta
