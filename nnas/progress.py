"""What loops yield."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a loop stands; record: at an epoch's end what metrics.jsonl keeps of it, else None."""

    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    record: dict = None
