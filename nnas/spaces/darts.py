"""The cells of DARTS (Liu, Simonyan, Yang: DARTS: Differentiable Architecture Search, ICLR 2019)."""

from dataclasses import replace
from functools import partial

import nnabla as nn
import nnabla.functions as F

from nnas.errors import NnasError, check_boolean, check_number, check_positive_integer, nearest
from nnas.genotype import edge_name, node_name
from nnas.layers import (
    Outputs,
    affine,
    average_pooling,
    batch_normalization,
    conv_bn,
    drop_path,
    factorized_reduction,
    global_average_pooling,
    max_pooling,
    relu,
    relu_conv_bn,
    separable_conv_bn,
    zeros,
)
from nnas.space import NONE

PRIMITIVES = (
    NONE,
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
STEMS = (1, 3)
KEPT = 2  # edges of a node


class Darts:
    """Classifier of normal cells, and reduction cells at one and two thirds of the depth; the cells of a type choose
    alike. At each node two edges stay, from one of the two cells before or from a node before.

    name: of the space, which stands in its files. input_shape: (C, H, W) of one image. cells, channels: of the network
    that ships; channels: those of the first cells, which double at a reduction. search: {cells, channels} of the
    network that is searched on, whose decisions are the same. nodes: of a cell. primitives: those of PRIMITIVES that an
    edge chooses from. stem_convolutions: 1, or 3 of stride 2 each (for ImageNet). auxiliary: whether there is a second
    classifier at two thirds of the depth in training. drop_path_rate: of the edges at the end of training.

    As in the paper the search has neither scale and shift after normalizing, auxiliary classifier nor drop path, and
    normalizes after pooling, which what ships does not.
    """

    def __init__(
        self,
        name,
        input_shape,
        classes,
        cells,
        channels,
        search,
        nodes=4,
        primitives=PRIMITIVES,
        stem_convolutions=1,
        auxiliary=True,
        drop_path_rate=0.2,
    ):
        if not isinstance(name, str) or not name:
            raise NnasError(f"space.name={name!r}: it must be a word")
        self.name = name
        if not isinstance(input_shape, (list, tuple)) or len(input_shape) != 3:
            raise NnasError(f"space.input_shape={input_shape!r}: it must be [channels, height, width]")
        self.input_shape = tuple(check_positive_integer("space.input_shape", size) for size in input_shape)
        self.classes = check_positive_integer("space.classes", classes, least=2)
        if not isinstance(search, dict) or search.keys() != {"cells", "channels"}:
            raise NnasError(f"space.search={search!r}: it must give cells, channels")
        for prefix, one in (("space", {"cells": cells, "channels": channels}), ("space.search", search)):
            check_positive_integer(f"{prefix}.cells", one["cells"], least=3)
            check_positive_integer(f"{prefix}.channels", one["channels"], least=2)
        self._cells, self._channels, self._search = cells, channels, search
        self._nodes = check_positive_integer("space.nodes", nodes)
        if not isinstance(primitives, (list, tuple)) or not set(primitives) - {NONE}:
            raise NnasError(f"space.primitives={primitives!r}: it must be a list with more than {NONE!r}")
        for primitive in primitives:
            if primitive not in PRIMITIVES:
                raise NnasError(
                    f"space.primitives={primitive!r}: possible are {', '.join(PRIMITIVES)}"
                    f"{nearest(primitive, PRIMITIVES)}"
                )
        self._primitives = tuple(primitives)
        if stem_convolutions not in STEMS:
            raise NnasError(f"space.stem_convolutions={stem_convolutions!r}: possible are 1 and 3")
        self._stem_convolutions = stem_convolutions
        self._auxiliary = check_boolean("space.auxiliary", auxiliary)
        self._drop_path_rate = check_number("space.drop_path_rate", drop_path_rate, 0, 0.99)
        self._is_searched = False

    @property
    def search_network(self):
        """The network that is searched on."""
        made = Darts(
            self.name,
            self.input_shape,
            self.classes,
            **self._search,
            search=self._search,
            nodes=self._nodes,
            primitives=self._primitives,
            stem_convolutions=self._stem_convolutions,
            auxiliary=False,
            drop_path_rate=0,
        )
        made._is_searched = True
        return made

    def __call__(self, x, decide, mode):
        """x: (N, C, H, W), float32. Returns Outputs(logits (N, classes), those of the auxiliary classifier or None)."""
        if self._is_searched:
            mode = replace(mode, affine=False)
        before, x, is_halved = self._stem(x, mode)
        channels, auxiliary = self._channels, None
        for cell in range(self._cells):
            is_reduction = cell in (self._cells // 3, 2 * self._cells // 3)
            channels *= 1 + is_reduction
            with nn.parameter_scope(f"cell{cell + 1}"):
                before, x = x, self._cell(before, x, decide, mode, channels, is_reduction, is_halved)
            is_halved = is_reduction
            if cell == 2 * self._cells // 3 and self._auxiliary and mode.training:
                auxiliary = self._auxiliary_head(x, mode)
        return Outputs(affine(global_average_pooling(x), self.classes, "classifier"), auxiliary)

    def _stem(self, x, mode):
        """(input before the last, last input, whether the last has half the height and width)."""
        if self._stem_convolutions == 1:
            x = conv_bn(x, 3 * self._channels, 3, mode, "stem")
            return x, x, False
        x = conv_bn(x, self._channels // 2, 3, mode, "stem1", stride=2, activation="relu")
        before = conv_bn(x, self._channels, 3, mode, "stem2", stride=2)
        return before, relu_conv_bn(before, self._channels, 3, mode, "stem3", stride=2), True

    def _cell(self, before, x, decide, mode, channels, is_reduction, is_halved):
        if is_halved:
            before = factorized_reduction(before, channels, mode, "before")
        else:
            before = relu_conv_bn(before, channels, 1, mode, "before")
        states = [before, relu_conv_bn(x, channels, 1, mode, "last")]
        cell = "reduction" if is_reduction else "normal"
        for node in range(1, self._nodes + 1):
            edges = {
                edge_name(cell, node, source): (
                    self._candidates(mode, f"node{node}/from{source}", 2 if is_reduction and source < 2 else 1),
                    state,
                )
                for source, state in enumerate(states)
            }
            states.append(decide.node(node_name(cell, node), edges, KEPT))
        return F.concatenate(*states[2:], axis=1)

    def _candidates(self, mode, name, stride):
        return {
            primitive: partial(
                self._operator, primitive=primitive, mode=mode, name=f"{name}/{primitive}", stride=stride
            )
            for primitive in self._primitives
        }

    def _operator(self, x, primitive, mode, name, stride):
        if primitive == NONE:
            return zeros(x, stride)
        if primitive == "skip_connect" and stride == 1:
            return x  # the only operator that drop path leaves in place, as in the paper's code
        kind, _, size = primitive.rpartition("_")
        maps = x.shape[1]
        if primitive == "skip_connect":
            y = factorized_reduction(x, maps, mode, name)
        elif kind in ("max_pool", "avg_pool"):
            y = (max_pooling if kind == "max_pool" else average_pooling)(x, 3, mode, stride)
            y = batch_normalization(y, mode, name) if self._is_searched else y
        elif kind == "sep_conv":
            with nn.parameter_scope(name):
                y = separable_conv_bn(x, maps, int(size[0]), mode, "first", stride)
                y = separable_conv_bn(y, maps, int(size[0]), mode, "second")
        else:
            y = separable_conv_bn(x, maps, int(size[0]), mode, name, stride, dilation=2)
        return drop_path(y, self._drop_path_rate, mode)

    def _auxiliary_head(self, x, mode):
        """Pools to 2x2 (windows of 5x5 as far as there is room), and classifies."""
        kernel = [min(5, max(1, size - 1)) for size in x.shape[2:]]
        stride = [max(1, size - k) for size, k in zip(x.shape[2:], kernel, strict=True)]
        with nn.parameter_scope("auxiliary"):
            y = F.average_pooling(relu(x, mode), kernel, stride, including_pad=False)
            y = conv_bn(y, 128, 1, mode, "conv1", activation="relu")
            # A convolution that covers all that is left, 2x2.
            y = F.reshape(y, (y.shape[0], -1, 1, 1))
            y = conv_bn(y, 768, 1, mode, "conv2", activation="relu")
            return affine(y, self.classes, "classifier")
