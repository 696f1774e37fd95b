"""The static graph of one micro-batch: a network with its loss and its errors."""

import nnabla as nn
import nnabla.functions as F

from nnas.errors import NnasError, check_number, check_positive_integer


class Classification:
    """Cross entropy with label smoothing, the error rate, and what a user adds to them.

    label_smoothing: the share of a label that is spread over all classes (Szegedy et al., 2016).
    auxiliary_weight: of the loss of an auxiliary head, where the network has one; {output: weight} for a network with
    several named outputs. columns: {output: column of the labels} for those that have labels of their own; all others
    are trained on column 0, that of the main output.
    loss: instead of cross entropy, error: instead of the error rate, by which architectures are judged, and metrics,
    {name: ...}, recorded beside it: functions from logits (N, classes) and labels (N, 1) to (N, 1), one value a sample.
    Those of error lie in [0, 1].
    """

    def __init__(self, label_smoothing=0.0, auxiliary_weight=0.4, columns=None, loss=None, error=None, metrics=None):
        self._smoothing = check_number("label_smoothing", label_smoothing, 0, 1)
        if loss is not None and self._smoothing:
            raise NnasError(
                "label_smoothing is part of the built-in loss; set it to 0 together with a loss of your own"
            )
        for name, value in (("columns", columns), ("metrics", metrics)):
            if not isinstance(value or {}, dict):
                raise NnasError(f"{name}={value!r}: it must be a mapping")
        self._weights = auxiliary_weight if isinstance(auxiliary_weight, dict) else {"auxiliary": auxiliary_weight}
        for name, weight in self._weights.items():
            check_number(f"auxiliary_weight of {name}", weight, 0)
        self._columns = {
            name: check_positive_integer(f"columns.{name}", column, least=0) for name, column in (columns or {}).items()
        }
        self._loss, self._error = loss or self._cross_entropy, error or F.top_n_error
        self._metrics = metrics or {}
        self.label_columns = 1 + max(self._columns.values(), default=0)

    def loss(self, outputs, labels):
        """Scalar; outputs: the network's, labels: (N, label_columns)."""
        loss = F.mean(self._loss(outputs.logits, self._labels(labels)))
        for name, logits in outputs.others.items():
            if name not in self._weights:
                raise NnasError(
                    f"the network has an output {name!r}, but task.auxiliary_weight has weights for "
                    f"{', '.join(self._weights)}; set it to {{{', '.join(f'{each}: ...' for each in outputs.others)}}}"
                )
            loss += self._weights[name] * F.mean(self._loss(logits, self._labels(labels, name)))
        return loss

    def errors(self, outputs, labels):
        """(N, 1): 1 where the most probable class is wrong, else 0; or those of a user's `error`."""
        return self._error(outputs.logits, self._labels(labels))

    def metrics(self, outputs, labels):
        """{name: (N, 1)}: further values of each sample, and the errors of outputs with labels of their own."""
        found = {name: metric(outputs.logits, self._labels(labels)) for name, metric in self._metrics.items()}
        for name, logits in outputs.others.items():
            if name in self._columns:
                found[f"{name}_error"] = self._error(logits, self._labels(labels, name))
        return found

    def _labels(self, labels, name=None):
        if self.label_columns == 1:
            return labels
        column = self._columns.get(name, 0)
        return F.slice(labels, (0, column), (labels.shape[0], column + 1))

    def _cross_entropy(self, logits, labels):
        loss = F.softmax_cross_entropy(logits, labels)
        if self._smoothing > 0:
            uniform = -F.mean(F.log_softmax(logits, axis=1), axis=1, keepdims=True)
            loss = (1 - self._smoothing) * loss + self._smoothing * uniform
        return loss


class ClassifierGraph:
    """A network built once for a micro-batch of fixed size, in nnabla's current parameter scope.

    augmentation: a function of the images (N, C, H, W), used where mode.training, or None."""

    def __init__(self, network, decide, mode, task, batch, augmentation=None):
        self.images = nn.Variable((batch, *network.input_shape))
        self.labels = nn.Variable((batch, task.label_columns))
        images = augmentation(self.images) if augmentation is not None and mode.training else self.images
        self.outputs = network(images, decide, mode)
        self.loss = task.loss(self.outputs, self.labels)
        # The logits are needed by both the loss and the errors.
        self.outputs.logits.persistent = self.loss.persistent = True
        self._values = {"error": task.errors(self.outputs, self.labels), **task.metrics(self.outputs, self.labels)}
        for values in self._values.values():
            values.persistent = True

    @property
    def names(self):
        """Of the values of each sample that evaluate returns."""
        return list(self._values)

    def forward(self, images, labels):
        """Compute the loss, and keep what the backward pass needs."""
        self._feed(images, labels)
        nn.forward_all([self.loss, *self._values.values()], clear_no_need_grad=True)

    def figures(self):
        """{loss, error and further metrics: mean over the samples} of the last forward pass."""
        return {"loss": float(self.loss.d), **{name: float(one.d.mean()) for name, one in self._values.items()}}

    def evaluate(self, images, labels):
        """Return {error and further metrics: (N, 1)} as arrays; nothing is kept for a backward pass."""
        self._feed(images, labels)
        nn.forward_all(list(self._values.values()), clear_buffer=True)
        return {name: values.d.copy() for name, values in self._values.items()}

    def accuracy(self, images, labels, count=None):
        """The share of the first `count` samples, all by default, that is classified rightly."""
        return 1 - float(self.evaluate(images, labels)["error"][:count].mean())

    def _feed(self, images, labels):
        if labels.shape != self.labels.shape:
            raise NnasError(f"the data has labels of shape {labels.shape}, but the task takes {self.labels.shape}")
        self.images.d, self.labels.d = images, labels
