"""A loss and a metric of one's own: functions from logits (N, classes) and labels (N, 1) to (N, 1).

From this folder: nnas focal --config-dir=conf
"""

import nnabla.functions as F


def focal_loss(logits, labels, gamma=2.0):
    """Cross entropy that counts less where the network is sure already (Lin et al.: Focal Loss, 2017)."""
    cross_entropy = F.softmax_cross_entropy(logits, labels)
    return (1 - F.exp(-cross_entropy)) ** gamma * cross_entropy


def probability(logits, labels):
    """What the network gives to the right class."""
    return F.exp(-F.softmax_cross_entropy(logits, labels))
