"""nnas: hardware-aware neural architecture search on nnabla."""

__version__ = "0.1.0"
