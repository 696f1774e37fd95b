"""PC-DARTS (Xu et al.: PC-DARTS: Partial Channel Connections for Memory-Efficient Architecture Search, ICLR 2020)."""

from nnas.errors import check_positive_integer
from nnas.searchers.base import MixtureSearcher


class PcDarts(MixtureSearcher):
    """DARTS in which a part of the channels of a node's edges passes through its operators, and the rest by them; edges
    of a node have weights of their own, a softmax too (edge normalization).

    channel_share: K; one channel in K is mixed.
    """

    def __init__(self, space, constraints, objective, make_solver, communicator, seed, channel_share=4):
        self._edges = {node.name: node.edges for node in space.nodes}
        super().__init__(space, constraints, objective, make_solver, communicator, seed)
        self.channel_share = check_positive_integer("searcher.channel_share", channel_share)

    def best(self):
        """As of AlphaSearcher; an option of an edge is as probable as the product of both weights."""
        logs = {name: self._log_probabilities[name].copy() for name in self._probabilities if name not in self._edges}
        for node, edges in self._edges.items():
            for edge, share in zip(edges, self._log_probabilities[node], strict=True):
                logs[edge] += share
        return self._most_probable(logs)

    def _sizes(self):
        return {**super()._sizes(), **{node: len(edges) for node, edges in self._edges.items()}}
