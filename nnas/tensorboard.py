"""A hook that shows a run in TensorBoard: scalars, histograms of the alphas, and the pictures of the report."""

from importlib import import_module
from pathlib import Path

import numpy as np
from PIL import Image

from nnas.errors import NnasError, one_line
from nnas.hooks import Hook


class TensorBoard(Hook):
    """folder: of the event files; None: tensorboard/ in the run folder. Steps are epochs, counted by phase."""

    def __init__(self, folder=None):
        # Not at the top: tensorboardX is an extra.
        try:
            self._make = import_module("tensorboardX").SummaryWriter
        except ImportError as error:
            raise NnasError(
                f"hooks.tensorboard: the package tensorboardX is missing ({one_line(error)}); pip install "
                "'nnas[tensorboard]'"
            ) from error
        self._folder, self._writer = folder, None

    def start_run(self, run):
        self._writer = self._make(str(self._folder or run.path / "tensorboard"))

    def end_epoch(self, progress, loop):
        record = progress.record
        for name, value in scalars(record):
            self._writer.add_scalar(f"{record['phase']}/{name}", value, progress.epoch)
        searcher = getattr(loop, "searcher", None)
        for name, alphas in (searcher.state().get("alphas", {}) if searcher else {}).items():
            self._writer.add_histogram(f"alphas/{name}", np.asarray(alphas), progress.epoch)
        self._writer.flush()

    def end_run(self, run, summary):
        for path in sorted((Path(run.path) / "report").glob("*.png")):
            self._writer.add_image(path.stem, np.asarray(Image.open(path).convert("RGB")), dataformats="HWC")
        self._writer.close()


def scalars(record):
    """(name, number) of an epoch's record; what is given by constraint has its name behind a slash."""
    for name, value in record.items():
        if name in ("phase", "epoch", "probabilities"):
            continue
        for inner, one in value.items() if isinstance(value, dict) else (("", value),):
            if isinstance(one, (int, float)) and not isinstance(one, bool):
                yield f"{name}/{inner}" if inner else name, float(one)
