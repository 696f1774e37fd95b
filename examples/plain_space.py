"""A space of one's own: a network written once, which asks `decide` wherever it is open.

From this folder: nnas proxyless --config-dir=conf space=plain
"""

from functools import partial

from nnas.layers import Outputs, affine, conv_bn, global_average_pooling


class Plain:
    """Plain convolutions, each with a choice of its kernel."""

    name = "plain"

    def __init__(self, input_shape, classes, channels, layers):
        self.input_shape, self.classes = tuple(input_shape), classes
        self._channels, self._layers = channels, layers

    def __call__(self, x, decide, mode):
        """x: (N, C, H, W), float32. Returns Outputs(logits (N, classes))."""
        x = conv_bn(x, self._channels, 3, mode, "stem", stride=2, activation="relu")
        for number in range(1, self._layers + 1):
            name = f"layer{number}"
            candidates = {
                f"k{kernel}": partial(
                    conv_bn,
                    outmaps=self._channels,
                    kernel=kernel,
                    mode=mode,
                    name=f"{name}/k{kernel}",
                    activation="relu",
                )
                for kernel in (1, 3, 5)
            }
            x = decide(name, candidates, x)
        return Outputs(affine(global_average_pooling(x), self.classes, "classifier"))
