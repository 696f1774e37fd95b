"""DARTS (Liu, Simonyan, Yang: DARTS: Differentiable Architecture Search, ICLR 2019)."""

from nnas.errors import NnasError
from nnas.searchers.base import MixtureSearcher


class Darts(MixtureSearcher):
    """Learns the weights of a sum of options, the softmax of the alphas, by gradient descent on the validation loss.

    order: 1, at the present weights of the network; 2, at those after one step of training, of which the alphas'
    gradient is taken too, by a finite difference. make_solver: a function to a nnabla solver for the alphas.
    """

    def __init__(self, space, constraints, objective, make_solver, communicator, seed, order=1):
        super().__init__(space, constraints, objective, make_solver, communicator, seed)
        if order not in (1, 2):
            raise NnasError(f"searcher.order={order!r}: possible are 1 and 2")
        self.looks_ahead = order == 2

    def _differentiate(self, evaluate):
        return evaluate.look_ahead() if self.looks_ahead else super()._differentiate(evaluate)
