"""The space of ProxylessNAS: a MobileNetV2 that chooses the operator of every block (Cai, Zhu, Han 2019)."""

from functools import partial

from nnas.errors import NnasError, check_number, check_positive_integer
from nnas.layers import Outputs, affine, conv_bn, dropout, global_average_pooling, inverted_residual


class MobileNet:
    """Classifier with one decision per inverted residual block: its expansion and kernel, or to skip it.

    name: of the space, which stands in its files. input_shape: (C, H, W) of one image. stem: {channels, stride}.
    first: {channels, stride} of a block of expansion 1 without a choice, or None. stages: a list of
    {channels, blocks, stride}, the stride being that of the first block of a stage. head: channels of the last
    convolution. A block may be skipped where its input and output have one shape.
    """

    def __init__(
        self,
        name,
        input_shape,
        classes,
        stem,
        stages,
        head,
        first=None,
        expansions=(3, 6),
        kernels=(3, 5, 7),
        dropout_rate=0.0,
    ):
        if not isinstance(name, str) or not name:
            raise NnasError(f"space.name={name!r}: it must be a word")
        self.name = name
        sizes = _listed("space.input_shape", input_shape)
        if len(sizes) != 3:
            raise NnasError(f"space.input_shape={input_shape}: it must be [channels, height, width]")
        self.input_shape = tuple(check_positive_integer("space.input_shape", size) for size in sizes)
        self.classes = check_positive_integer("space.classes", classes, least=2)
        self._stem = _checked("space.stem", stem, ("channels", "stride"))
        self._first = first and _checked("space.first", first, ("channels", "stride"))
        self._stages = [
            _checked("space.stages", stage, ("channels", "blocks", "stride"))
            for stage in _listed("space.stages", stages)
        ]
        self._head = check_positive_integer("space.head", head)
        self._dropout_rate = check_number("space.dropout_rate", dropout_rate, 0, 0.99)
        for expansion in _listed("space.expansions", expansions):
            check_positive_integer("space.expansions", expansion)
        for kernel in _listed("space.kernels", kernels):
            if check_positive_integer("space.kernels", kernel) % 2 == 0:
                raise NnasError(f"space.kernels={kernel}: kernels must be odd")
        self._operators = {
            f"e{expansion}_k{kernel}": {"expansion": expansion, "kernel": kernel}
            for expansion in expansions
            for kernel in kernels
        }

    def __call__(self, x, decide, mode):
        """x: (N, C, H, W), float32. Returns Outputs(logits (N, classes))."""
        x = conv_bn(x, self._stem["channels"], 3, mode, "stem", self._stem["stride"], activation="relu6")
        if self._first:
            x = inverted_residual(x, self._first["channels"], 1, 3, self._first["stride"], mode, "first")
        for stage_number, stage in enumerate(self._stages, start=1):
            for block_number in range(1, stage["blocks"] + 1):
                name = f"stage{stage_number}_block{block_number}"
                stride = stage["stride"] if block_number == 1 else 1
                x = decide(name, self._candidates(x, stage["channels"], stride, mode, name), x)
        x = conv_bn(x, self._head, 1, mode, "head", activation="relu6")
        x = dropout(global_average_pooling(x), self._dropout_rate, mode)
        return Outputs(affine(x, self.classes, "classifier"))

    def _candidates(self, x, channels, stride, mode, name):
        candidates = {
            option: partial(
                inverted_residual, outmaps=channels, stride=stride, mode=mode, name=f"{name}/{option}", **operator
            )
            for option, operator in self._operators.items()
        }
        if stride == 1 and x.shape[1] == channels:
            candidates["skip"] = lambda x: x
        return candidates


def _listed(name, values):
    if not isinstance(values, (list, tuple)) or not values:
        raise NnasError(f"{name}={values!r}: it must be a list with at least one entry")
    return values


def _checked(name, values, keys):
    """A mapping of positive integers under exactly these keys."""
    if not isinstance(values, dict) or values.keys() != set(keys):
        raise NnasError(f"{name}={values!r}: it must give {', '.join(keys)}")
    for key, value in values.items():
        check_positive_integer(f"{name}.{key}", value)
    return values
