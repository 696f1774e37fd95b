"""The static graph of one micro-batch: a network with its loss and its errors."""

import nnabla as nn
import nnabla.functions as F

from nnas.errors import check_number


class Classification:
    """Cross entropy with label smoothing, and the error rate.

    label_smoothing: the share of a label that is spread over all classes (Szegedy et al., 2016).
    auxiliary_weight: of the loss of an auxiliary head, where the network has one.
    """

    def __init__(self, label_smoothing=0.0, auxiliary_weight=0.4):
        self._smoothing = check_number("label_smoothing", label_smoothing, 0, 1)
        self._auxiliary_weight = auxiliary_weight

    def loss(self, outputs, labels):
        """Scalar; outputs: the network's, labels: (N, 1)."""
        loss = self._cross_entropy(outputs.logits, labels)
        if outputs.auxiliary is not None:
            loss += self._auxiliary_weight * self._cross_entropy(outputs.auxiliary, labels)
        return loss

    def errors(self, outputs, labels):
        """(N, 1): 1 where the most probable class is wrong, else 0."""
        return F.top_n_error(outputs.logits, labels)

    def _cross_entropy(self, logits, labels):
        loss = F.mean(F.softmax_cross_entropy(logits, labels))
        if self._smoothing > 0:
            uniform = -F.mean(F.log_softmax(logits, axis=1))
            loss = (1 - self._smoothing) * loss + self._smoothing * uniform
        return loss


class ClassifierGraph:
    """A network built once for a micro-batch of fixed size, in nnabla's current parameter scope.

    augmentation: a function of the images (N, C, H, W), used where mode.training, or None."""

    def __init__(self, network, decide, mode, task, batch, augmentation=None):
        self.images = nn.Variable((batch, *network.input_shape))
        self.labels = nn.Variable((batch, 1))
        images = augmentation(self.images) if augmentation is not None and mode.training else self.images
        self.outputs = network(images, decide, mode)
        self.loss = task.loss(self.outputs, self.labels)
        # The logits are needed by both the loss and the errors.
        self.outputs.logits.persistent = self.loss.persistent = True
        self.errors = task.errors(self.outputs, self.labels)

    def forward(self, images, labels):
        """Compute the loss, and keep what the backward pass needs."""
        self._feed(images, labels)
        nn.forward_all([self.loss, self.errors], clear_no_need_grad=True)

    def evaluate(self, images, labels):
        """Return the errors (N, 1) as an array; nothing is kept for a backward pass."""
        self._feed(images, labels)
        self.errors.forward(clear_buffer=True)
        return self.errors.d.copy()

    def _feed(self, images, labels):
        self.images.d, self.labels.d = images, labels
