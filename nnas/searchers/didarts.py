"""DiDARTS: one level; weights and alphas descend on the same training loss."""

from nnas.searchers.base import MixtureSearcher


class DiDarts(MixtureSearcher):
    """DARTS whose alphas learn from training samples, with a solver of their own."""

    split = "training"
