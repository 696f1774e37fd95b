"""Latency tables made by others: import, export, and the layers that they speak of."""

from estimators.foreign.base import (
    Figure,
    Format,
    export_table,
    import_table,
    left_text,
    repeated_text,
    write_new,
)
from estimators.foreign.blocks import Layer

__all__ = ["Figure", "Format", "Layer", "export_table", "import_table", "left_text", "repeated_text", "write_new"]
