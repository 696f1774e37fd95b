"""Latency on a device, measured or from a table of measurements."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from statistics import median

from estimators import device as devices
from estimators import table as tables
from estimators.base import Estimator, EstimatorError, Lack, MissingCost, Part
from estimators.calibration import fit_factor
from estimators.graph import functions_of, one_line
from estimators.pieces import pieces
from estimators.profiler import ROUND_SECONDS, Round, profile
from estimators.signature import signature
from estimators.yardstick import yardstick

# Whole networks are few, and are measured alone: long enough to outlast other work on the machine.
WHOLE_ROUND_SECONDS = 0.05


class Latency(Estimator):
    """Inference latency of parts, in ms, from a table; what the table of this device lacks is measured.

    device: a Device, or the name of one ("auto", "cpu", "cudnn").
    folder: where the tables of devices are; this device's is made when something is measured.
    table: path of one table to use as it is, perhaps of another device: then nothing is measured into it.
    batch: the batch size at which the network runs. rounds: how many an entry needs to be complete.
    In a table that others made, a part that is no module of it costs the sum of the modules that it can be cut into,
    and a whole network the sum of its parts.
    Raises EstimatorError for an unknown device, a damaged table, or one of another batch size.
    """

    unit = "ms"

    def __init__(self, device="auto", folder="latency_tables", table=None, batch=1, rounds=24):
        for name, value in (("batch", batch), ("rounds", rounds)):
            if type(value) is not int or value < 1:
                raise EstimatorError(f"latency: {name} has to be a whole number from 1 on, not {value!r}")
        self.device = devices.find(device) if isinstance(device, str) else device
        self.batch = batch
        self.rounds = rounds
        here = self.device.fingerprint
        own_path = Path(folder) / tables.file_name(here, self.device.dtype, batch)
        self.path = own_path if table is None else Path(table)
        if table is None and not self.path.exists():
            self.table = tables.Table(here, self.device.dtype, batch)
        else:
            self.table = tables.read(self.path)
        if self.table.batch != batch:
            raise EstimatorError(
                f"the latency table {self.path} is of batch size {self.table.batch}, asked for is {batch}: "
                f"set batch={self.table.batch}, or give another table"
            )
        self.is_given = table is not None
        self.measures_here = self.table.fingerprint == here and self.table.dtype == self.device.dtype
        if table is None and not self.measures_here:
            raise EstimatorError(
                f"the latency table {self.path} has the name of this device's, but is of "
                f"{self.table.fingerprint}, {self.table.dtype}: move it away, or ask for it with table={self.path}"
            )

    def description(self):
        """See Estimator."""
        return {
            "estimator": "latency",
            "unit": self.unit,
            "device": dict(self.table.fingerprint),
            "dtype": self.table.dtype,
            "batch": self.batch,
            "rounds": self.rounds,
            "table": str(self.path),
            "imported_from": self._imported_from,
        }

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator. The table is saved after every round, so that an interruption keeps what it has.

        Raises MissingCost for what a given table lacks, and for what cannot be measured here.
        """
        signatures = [signature(part, self.table.dtype) if functions_of(part) else None for part in parts]
        found = [text and self._modules(part, text) for part, text in zip(parts, signatures, strict=True)]
        lacking = {}
        for part, text, modules in zip(parts, signatures, found, strict=True):
            if modules == []:
                lacking.setdefault(text, part)
        if lacking and self.is_given:
            lacks = [Lack(part.label, signature=text) for text, part in lacking.items()]
            raise MissingCost(
                f"the latency table {self.path} is used as it is, and lacks parts", lacks, self._advice(space_name)
            )
        if lacking:
            self._measure_lacking(lacking, progress)
        return [
            sum((self.table.entries[module].measurement().median for module in modules or [text]), 0.0) if text else 0.0
            for text, modules in zip(signatures, found, strict=True)
        ]

    def coverage(self, parts):
        """(whole, cut, lacks) of parts: how many are modules of the table, how many are made of several, and a list
        of Lack of the others; a module that several parts have counts once, an identity not at all."""
        found = {}
        for part in parts:
            if functions_of(part):
                text = signature(part, self.table.dtype)
                found.setdefault(text, (part, self._modules(part, text)))
        counts = [len(modules) for _, modules in found.values()]
        lacks = [Lack(part.label, signature=text) for text, (part, modules) in found.items() if not modules]
        return counts.count(1), sum(count > 1 for count in counts), lacks

    def factor(self, space_name, parts, sums, progress=None):
        """See Estimator. Kept in the table, and fitted anew (fit_factor) when the networks or the sums are others.

        Raises MissingCost, EstimatorError.
        """
        fitted_on = digest([signature(part, self.table.dtype) for part in parts], sums)
        name = self._calibration_name(space_name)
        known = self.table.calibration.get(name)
        if known is None or known.fitted_on != fitted_on:
            if self._imported_from:
                return 1.0, None
            if self.is_given:
                raise MissingCost(
                    f"the latency table {self.path} has no factor from sums of modules to whole networks",
                    [Lack(f"{space_name} as it is configured here")],
                    self._advice(space_name),
                )
            measured = [measurement.median for measurement in self.measure_all(parts, progress)]
            known = tables.Calibration(*fit_factor(sums, measured), len(measured), fitted_on)
            self.table.calibration[name] = known
            self.table.write(self.path)
        return known.factor, known.error

    def measure(self, outputs, label, progress=None, inputs=()):
        """The Measurement of the whole network behind some Variables, in ms; always anew, and not kept.

        inputs: the Variables that are its data; where they are not given, all leaves are taken for weights.
        Raises MissingCost where it fails or where the table is of another device.
        """
        outputs = tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)
        return self.measure_all([Part(outputs, tuple(inputs), label)], progress)[0]

    def _measure_lacking(self, lacking, progress):
        if self.table.yardstick is None:
            # All processes that fill one table have to scale by one reference: by that of the first.
            self.table.yardstick = yardstick(self.device).reference
            self.table.write(self.path)
        rounds = {text: self.rounds - self._rounds_of(text) for text in lacking}
        failures = {}
        for result in self._profile(lacking, rounds, progress):
            failures |= result.failures
            for text, figure in result.milliseconds.items():
                self.table.add_round(text, lacking[text].label, figure, result.runs[text])
            for text in result.failures:
                # Whatever fails once is not trusted with what it gave before.
                self.table.entries.pop(text, None)
            self.table.write(self.path)
        self._report_failures(lacking, failures)

    def measure_all(self, parts, progress=None):
        """The Measurements of parts, whole networks for instance, interleaved, whatever the table holds."""
        modules = dict(enumerate(parts))
        self._need_this_device(modules)
        entries = {number: tables.Entry(part.label, (), 0) for number, part in modules.items()}
        failures, slowdowns = {}, {number: [] for number in modules}
        for result in self._profile(modules, dict.fromkeys(modules, self.rounds), progress, WHOLE_ROUND_SECONDS):
            failures |= result.failures
            for number, figure in result.milliseconds.items():
                entries[number] = entries[number].with_round(figure, result.runs[number])
                slowdowns[number].append(result.slowdowns[number])
        self._report_failures(modules, failures)
        return [replace(entry.measurement(), slowdown=median(slowdowns[number])) for number, entry in entries.items()]

    def _profile(self, parts, rounds, progress, round_seconds=ROUND_SECONDS):
        """Profile the copies of parts, {key: part}; what cannot be copied fails like what cannot be run."""
        copies, failures = {}, {}
        for key, part in parts.items():
            try:
                copies[key] = self.device.runnable(part)
            except EstimatorError as error:
                failures[key] = error
        if failures:
            yield Round({}, {}, failures)
        report = None
        if progress is not None:

            def report(done, total, key):
                progress(done, total, f"measuring {parts[key].label}")

        wanted = {key: rounds[key] for key in copies}
        if not copies:
            return
        ruler = yardstick(self.device, self.table.yardstick)
        self.table.yardstick = ruler.reference
        yield from profile(
            copies, self.device.synchronize, wanted, round_seconds, progress=report, slowdown=ruler.slowdown
        )

    def _calibration_name(self, space_name):
        """Under what the table keeps the factor of a space."""
        return space_name

    def _rounds_of(self, text):
        entry = self.table.entries.get(text)
        return 0 if entry is None else len(entry.rounds)

    @property
    def _imported_from(self):
        """The file of others that the table is from, or None."""
        origin = self.table.origin or {}
        return str(origin.get("file")) if "format" in origin else None

    def _modules(self, part, text):
        """The signatures of the table's modules that make up a part; an empty list if it lacks any."""
        if self._complete(text):
            return [text]
        if not self._imported_from:
            return []
        return [signature(piece, self.table.dtype) for piece in pieces(part, self._has)]

    def _has(self, part):
        return self._complete(signature(part, self.table.dtype))

    def _complete(self, text):
        """Whether the table's entry will do: a given table is used as it is."""
        return self._rounds_of(text) >= (1 if self.is_given else self.rounds)

    def _need_this_device(self, parts):
        if not self.measures_here:
            raise MissingCost(
                f"the latency table {self.path} is of another device, so nothing can be measured here",
                [Lack(part.label, signature=signature(part, self.table.dtype)) for part in parts.values()],
                self._advice(),
            )

    def _report_failures(self, parts, failures):
        if failures:
            raise MissingCost(
                f"some parts could not be measured on {self.device.name}, and have no latency",
                [Lack(parts[key].label, one_line(error)) for key, error in failures.items()],
                "Take these candidates out of the space, or measure on another device",
            )

    def _advice(self, space_name="SPACE"):
        if self._imported_from:
            return (
                f"It was imported from {self._imported_from}: run coverage for the whole list, and import a "
                "table that has more, or take these candidates out of the space"
            )
        fingerprint = self.table.fingerprint
        command = tables.command(space_name, fingerprint["backend"])
        return f"On {fingerprint['processor']}, run: {command}"


def digest(signatures, sums):
    """Of the networks that a factor was fitted on, and of the sums of their parts."""
    return hashlib.sha256(json.dumps([signatures, list(sums)]).encode()).hexdigest()[:16]
