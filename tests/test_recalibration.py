"""Running statistics taken anew, by their definition."""

import nnabla as nn
import numpy as np
import pytest
import tiny
from tiny import CLASSES, SHAPE

from nnas.classifier import Classification
from nnas.layers import BATCH_NORMALIZATION_EPSILON, Outputs, affine, batch_normalization, global_average_pooling
from nnas.recalibration import recalibrated

pytestmark = pytest.mark.usefixtures("kernels")


class Scaled:
    """Normalizes its input, or three times that."""

    name, input_shape, classes = "scaled", SHAPE, CLASSES

    def __call__(self, x, decide, mode):
        x = decide("scale", {"same": lambda x: x, "three": lambda x: 3 * x}, x)
        y = batch_normalization(x, mode, "norm")
        return Outputs(affine(global_average_pooling(y), self.classes, "classifier"))


def test_statistics_are_means_over_the_minibatches(random):
    """Of those of each, the variances unbiased, for the path that was chosen; whatever the shared ones were."""
    arrays = {
        "norm/gamma": random.normal(size=(1, 1, 1, 1)),
        "norm/beta": random.normal(size=(1, 1, 1, 1)),
        "norm/mean": np.full((1, 1, 1, 1), 50.0),
        "norm/variance": np.full((1, 1, 1, 1), 70.0),
        "classifier/W": random.normal(size=(1, CLASSES)),
        "classifier/b": random.normal(size=CLASSES),
    }
    batches = [
        (random.normal(number, number, (5, *SHAPE)), random.integers(CLASSES, size=(5, 1))) for number in (1, 2, 4)
    ]
    made = recalibrated(Scaled(), {"scale": "three"}, arrays, Classification(), 5, batches, tiny.kernels)
    mean = np.mean([3 * images.mean() for images, _ in batches])
    variance = np.mean([9 * images.var(ddof=1) for images, _ in batches])

    images = random.normal(2, 3, (5, *SHAPE))
    normalized = (3 * images - mean) / np.sqrt(variance + BATCH_NORMALIZATION_EPSILON)
    pooled = (normalized * arrays["norm/gamma"] + arrays["norm/beta"]).mean(axis=(2, 3))
    logits = pooled @ arrays["classifier/W"] + arrays["classifier/b"]
    labels = (logits.argmax(axis=1) + [0, 0, 1, 0, 1]).reshape(5, 1) % CLASSES
    assert made.accuracy(images, labels) == pytest.approx(3 / 5)
    assert made.accuracy(images, labels, 3) == pytest.approx(2 / 3)
    np.testing.assert_allclose(made.outputs.logits.d, logits, rtol=1e-4, atol=1e-5)
    assert not nn.get_parameters(grad_only=False)
