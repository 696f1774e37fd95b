"""A network of which a part of the channels passes by the operators of its edges."""

import nnabla.functions as F

from nnas.errors import NnasError


class PartialChannels:
    """A space as another function of the same kind: of the input of each edge of a node one channel in `share` goes
    through the option, and the others join it behind, shuffled, as PC-DARTS has it. What halves height and width halves
    theirs by maximum pooling. Decisions that are no edges are as they were."""

    def __init__(self, network, share):
        self._network, self._share = network, share
        self.name, self.input_shape, self.classes = network.name, network.input_shape, network.classes

    def __call__(self, x, decide, mode):
        return self._network(x, _PartialDecider(decide, self._share), mode)


class _PartialDecider:
    def __init__(self, decide, share):
        self._decide, self._share = decide, share

    def __call__(self, name, candidates, x):
        return self._decide(name, candidates, x)

    def node(self, name, edges, keep):
        return self._decide.node(name, {edge: self._edge(edge, *rest) for edge, rest in edges.items()}, keep)

    def _edge(self, edge, candidates, x):
        channels = x.shape[1]
        if channels % self._share:
            raise NnasError(
                f"searcher.channel_share={self._share}: {edge} has {channels} channels, which it does not divide"
            )
        mixed = channels // self._share
        batch, _, *size = x.shape
        inside = F.slice(x, (0, 0, 0, 0), (batch, mixed, *size))
        outside = F.slice(x, (0, mixed, 0, 0), (batch, channels, *size))

        def joined(candidate, inside):
            y, rest = candidate(inside), outside
            if y.shape[2:] != rest.shape[2:]:
                rest = F.max_pooling(rest, (2, 2), (2, 2), ignore_border=False)
            return _shuffled(F.concatenate(y, rest, axis=1), self._share)

        return {
            option: (lambda inside, candidate=candidate: joined(candidate, inside))
            for option, candidate in candidates.items()
        }, inside


def _shuffled(x, groups):
    """The channels of x, (N, C, H, W), so that each group of C / groups ones is spread over all."""
    batch, channels, *size = x.shape
    y = F.transpose(F.reshape(x, (batch, groups, channels // groups, *size)), (0, 2, 1, 3, 4))
    return F.reshape(y, x.shape)
