"""The latency table of a device on which only a few whole networks were measured."""

from pathlib import Path

from estimators import table as tables
from estimators.adaptation import adapt
from estimators.base import Estimator, EstimatorError
from estimators.graph import functions_of
from estimators.latency import digest
from estimators.signature import kind_and_shape, signature


class Adapted(Estimator):
    """Inference latency of parts, in ms, on a new device: what the sources say of them, adapted to measured networks.

    sources: Latency estimators over tables of other devices, of one data type and batch size. name: of the new device.
    latencies: of the measured networks, ms. count: a function of parts that gives (networks, parts), how often each
    part stands in each measured network. measured_in: the file that the measurements are from, for the table.

    Each signature gets a cost, by estimators.adaptation: a sum over parts is the prediction of a whole network then,
    so that the factor from sums to wholes is 1, and its error that of networks left out. Signatures of one kind of
    function (types and kernel sizes), and those of one input shape, deviate from the sources together as well.
    Raises EstimatorError for no sources, and for sources that differ in data type.
    """

    unit = tables.UNIT

    def __init__(self, sources, name, latencies, count, measured_in=""):
        if not sources:
            raise EstimatorError("adaptation needs the latency table of one other device at least, and got none")
        devices = [source.table for source in sources]
        for attribute in ("dtype", "batch"):
            given = sorted({str(getattr(device, attribute)) for device in devices})
            if len(given) > 1:
                raise EstimatorError(
                    f"the sources are of different {attribute}: {', '.join(given)}; take tables of one {attribute}"
                )
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise EstimatorError(f"the new device has the name {name!r}: it has to be a printable word")
        self.batch = sources[0].batch
        self._sources, self._latencies, self._count = sources, latencies, count
        backends = {device.fingerprint["backend"] for device in devices}
        # Without nnabla's version: this is no device that nnabla was seen to run on, and never taken for one.
        fingerprint = {"processor": name, "backend": backends.pop() if len(backends) == 1 else "other"}
        self.table = tables.Table(fingerprint, devices[0].dtype, self.batch)
        self.table.origin = {
            "file": measured_in,
            "networks": len(latencies),
            "adapted_from": [{"table": str(source.path), "device": source.table.fingerprint} for source in sources],
        }

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator. Raises EstimatorError, and MissingCost for what a source lacks."""
        signatures = [signature(part, self.table.dtype) if functions_of(part) else None for part in parts]
        columns = {text: column for column, text in enumerate(dict.fromkeys(filter(None, signatures)))}
        labels = {text: part.label for text, part in zip(reversed(signatures), reversed(list(parts)), strict=True)}
        sources = []
        for source in self._sources:
            costs = dict(zip(signatures, source.costs(parts, progress, space_name), strict=True))
            sources.append([costs[text] for text in columns])
        counts = [[0] * len(columns) for _ in self._latencies]
        for row, times in zip(counts, self._count(parts), strict=True):
            for text, number in zip(signatures, times, strict=True):
                if text is not None:
                    row[columns[text]] += number
        groupings = list(zip(*(kind_and_shape(text) for text in columns), strict=True))
        adaptation = adapt(counts, self._latencies, sources, groupings)
        self.error = adaptation.error
        for text, cost in zip(columns, adaptation.costs.tolist(), strict=True):
            self.table.add_round(text, labels[text], cost, 1)
        return [0.0 if text is None else self.table.entries[text].measurement().median for text in signatures]

    def calibrated(self, space_name, parts, costs, networks, progress=None):
        """See Estimator: the costs as they are, and the error of the adaptation; it is put into the table."""
        signatures = [signature(part, self.table.dtype) for part in parts]
        calibration = tables.Calibration(1.0, self.error, len(self._latencies), digest(signatures, costs))
        self.table.calibration[space_name] = calibration
        return costs, calibration.factor, calibration.error

    def description(self):
        """See Estimator."""
        return {
            "estimator": "adapted",
            "unit": self.unit,
            "device": dict(self.table.fingerprint),
            "dtype": self.table.dtype,
            "batch": self.batch,
        }

    def write(self, folder):
        """Write the table into a folder; returns its path. Raises EstimatorError where one of that name is there."""
        path = Path(folder) / tables.file_name(self.table.fingerprint, self.table.dtype, self.batch)
        if path.exists():
            raise EstimatorError(
                f"the latency table {path} is there already, and is kept: move it away, or give another device_name"
            )
        self.table.write(path)
        return path
