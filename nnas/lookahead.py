"""The second-order gradient of DARTS: of the validation loss after one step of training."""

import numpy as np

from nnas.errors import NnasError

REACH = 0.01  # of the finite difference, over the norm of the gradient: the paper's


class Lookahead:
    """Gradients of the weights of a mixture, its gates, where the weights of the network make one more step.

    graph: a ClassifierGraph whose weights and gates both have gradients, and which moves no running statistics.
    weights: {name: variable}, those that are trained. gates: {decision: variable}. update: the WeightUpdate of the
    weights, whose solver must be plain gradient descent with or without momentum.

    With w' = w - rate (gradient + decay w) - momentum velocity and v the validation gradient at w', the gradient is
    d L_val(w') / d gates - rate (d L_train(w + e v) / d gates - d L_train(w - e v) / d gates) / 2e, e = 0.01 / |v|
    (Liu, Simonyan, Yang, 2019, equation 8). Clipping is left out. The weights are as before afterwards, to the bit.
    """

    def __init__(self, graph, weights, gates, update):
        self._graph, self._weights, self._gates, self._update = graph, weights, gates, update

    def __call__(self, training, validation, learning_rate):
        """Return (loss, error) of validation at w'; the gradient is left at the gates. training, validation: (images,
        labels)."""
        before = {name: weight.d.copy() for name, weight in self._weights.items()}
        try:
            self._differentiate(*training)
            moves = self._update.moves(self._gradients(), learning_rate)
            self._set({name: value + moves[name] for name, value in before.items()})
            loss, error = self._differentiate(*validation)
            direction, here = self._gradients(), self._of_gates()
            norm = np.sqrt(sum(float(np.vdot(one, one)) for one in direction.values()))
            reach = REACH / max(norm, 1e-12)
            ends = []
            for sign in (1, -1):
                self._set({name: value + np.float32(sign * reach) * direction[name] for name, value in before.items()})
                self._differentiate(*training)
                ends.append(self._of_gates())
        finally:
            self._set(before)
        for name, gate in self._gates.items():
            gate.g = here[name] - learning_rate * (ends[0][name] - ends[1][name]) / (2 * reach)
        return loss, error

    def _differentiate(self, images, labels):
        for variable in (*self._weights.values(), *self._gates.values()):
            variable.grad.zero()
        self._graph.forward(images, labels)
        self._graph.loss.backward(clear_buffer=True)
        figures = self._graph.figures()
        if not np.isfinite(figures["loss"]):
            raise NnasError("the loss of a step ahead is not finite; a smaller search.solver.learning_rate may help")
        return figures["loss"], figures["error"]

    def _gradients(self):
        return {name: weight.g.copy() for name, weight in self._weights.items()}

    def _of_gates(self):
        return {name: gate.g.astype(np.float64) for name, gate in self._gates.items()}

    def _set(self, values):
        for name, value in values.items():
            self._weights[name].d = value
