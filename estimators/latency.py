"""Latency on a device, measured or from a table of measurements."""

import hashlib
import json
import math
from pathlib import Path
from statistics import median

import numpy as np

from estimators import device as devices
from estimators import host
from estimators import table as tables
from estimators.adaptation import adapt
from estimators.base import Estimator, EstimatorError, Lack, Measurement, MissingCost, Part
from estimators.calibration import fit_factor
from estimators.graph import functions_of, one_line
from estimators.pieces import pieces
from estimators.profiler import ROUND_SECONDS, Round, profile
from estimators.signature import kind_and_shape, signature
from estimators.statistics import scatter
from estimators.yardstick import yardstick

# Whole networks are few, and are measured alone: long enough to outlast other work on the machine.
WHOLE_ROUND_SECONDS = 0.05
# The first few rounds may agree by chance.
LEAST_ROUNDS = 12
# A machine is busy when other processes have its cores for a part of the time, or slow it down.
BUSY_LOAD = 1.1
BUSY_SLOWDOWN = 1.3


class Latency(Estimator):
    """Inference latency of parts, in ms, from a table; what the table of this device lacks is measured.

    device: a Device, or the name of one ("auto", "cpu", "cudnn").
    folder: where the tables of devices are; this device's is made when something is measured.
    table: path of one table to use as it is, perhaps of another device: then nothing is measured into it.
    batch: the batch size at which the network runs. precision: measuring ends when the median is known to +- this share
    of it, with 95 % confidence, or after so many rounds.
    In a table that others made, a part that is no module of it costs the sum of the modules that it can be cut into,
    and a whole network the sum of its parts.
    Raises EstimatorError for an unknown device, a damaged table, or one of another batch size.
    """

    unit = "ms"

    def __init__(self, device="auto", folder="latency_tables", table=None, batch=1, rounds=60, precision=0.02):
        for name, value in (("batch", batch), ("rounds", rounds)):
            if type(value) is not int or value < 1:
                raise EstimatorError(f"latency: {name} has to be a whole number from 1 on, not {value!r}")
        if type(precision) not in (int, float) or not 0 < precision < 1:
            raise EstimatorError(f"latency: precision has to be a share between 0 and 1, not {precision!r}")
        self.device = devices.find(device) if isinstance(device, str) else device
        self.batch = batch
        self.rounds = rounds
        self.precision = precision
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
            "precision": self.precision,
            "table": str(self.path),
            "imported_from": self._imported_from,
        }

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator. The table is saved after every round, so that an interruption keeps what it has.

        Raises MissingCost for what a given table lacks, and for what cannot be measured here.
        """
        pieces_of_parts = [self._priced_by(part) for part in parts]
        lacking = {}
        for text, piece in (one for found in pieces_of_parts for one in found):
            if not self._complete(text):
                lacking.setdefault(text, piece)
        if lacking and self.is_given:
            lacks = [Lack(part.label, signature=text) for text, part in lacking.items()]
            raise MissingCost(
                f"the latency table {self.path} is used as it is, and lacks parts", lacks, self._advice(space_name)
            )
        if lacking:
            self._measure_lacking(lacking, progress)
        texts = {text for found in pieces_of_parts for text, _ in found}
        medians = {text: self.table.entries[text].measurement().median for text in texts}
        return [sum((medians[text] for text, _ in found), 0.0) for found in pieces_of_parts]

    def coverage(self, parts):
        """(whole, cut, lacks) of parts: how many are modules of the table, how many are made of several, and a list
        of Lack of the others; a module that several parts have counts once, an identity not at all."""
        whole, cut, lacks = set(), set(), {}
        for part in parts:
            found = self._priced_by(part)
            texts = tuple(text for text, _ in found)
            missing = [text for text in texts if not self._complete(text)]
            for text in missing:
                lacks.setdefault(text, Lack(part.label, signature=text))
            if found and not missing:
                (whole if len(texts) == 1 else cut).add(texts)
        return len(whole), len(cut), list(lacks.values())

    def calibrated(self, space_name, parts, costs, networks, progress=None):
        """See Estimator. What the table keeps for these parts and costs, from `calibrate` perhaps; without it, one
        factor by the networks (fit_factor), which is then kept.

        Raises MissingCost, EstimatorError.
        """
        known = self.table.calibration.get(self._calibration_name(space_name))
        if known is None or known.fitted_on != self._digest(parts, costs):
            if self._imported_from:
                return costs, 1.0, None
            if self.is_given:
                raise MissingCost(
                    f"the latency table {self.path} has no factor from sums of modules to whole networks",
                    [Lack(f"{space_name} as it is configured here")],
                    self._advice(space_name),
                )
            sums = [sum(costs[place] for place in network.parts) for network in networks]
            measured = self._measured_wholes(networks, progress)
            known = self._keep(space_name, parts, costs, len(networks), *fit_factor(sums, measured))
        if known.costs:
            costs = [sum((known.costs[text] for text, _ in self._priced_by(part)), 0.0) for part in parts]
        return costs, known.factor, known.error

    def calibrate(self, space_name, parts, costs, networks, progress=None):
        """Measure whole networks of a space, and keep in the table what its parts cost within them.

        The modules' latencies by themselves are the prior of estimators.adaptation: modules of one kind, or of one
        shape, or each for itself, may take more or less within a network. See `calibrated` for the arguments; four
        networks at least, better twenty. Returns the Calibration, with the error of cross-validation.
        Raises MissingCost, EstimatorError.
        """
        found = [self._priced_by(part) for part in parts]
        columns = {text: column for column, text in enumerate(dict.fromkeys(text for one in found for text, _ in one))}
        counts = np.zeros((len(networks), len(columns)))
        for row, network in zip(counts, networks, strict=True):
            for place in network.parts:
                for text, _ in found[place]:
                    row[columns[text]] += 1
        alone = [self.table.entries[text].measurement().median for text in columns]
        groupings = list(zip(*map(kind_and_shape, columns), strict=True))
        adaptation = adapt(counts, self._measured_wholes(networks, progress), [alone], groupings)
        within = dict(zip(columns, adaptation.costs.tolist(), strict=True))
        return self._keep(space_name, parts, costs, len(networks), 1.0, adaptation.error, within)

    def _measured_wholes(self, networks, progress):
        return [one.median for one in self.measure_all([network.whole for network in networks], progress)]

    def _keep(self, space_name, parts, costs, networks, factor, error, within=None):
        calibration = tables.Calibration(factor, error, networks, self._digest(parts, costs), within or {})
        self.table.calibration[self._calibration_name(space_name)] = calibration
        self.table.write(self.path)
        return calibration

    def _digest(self, parts, costs):
        return digest([signature(part, self.table.dtype) for part in parts], costs)

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
        failures = {}

        def left(text):
            entry = self.table.entries.get(text)
            return self._rounds_left(entry.rounds if entry else ())

        for result in self._profile(lacking, left, progress):
            failures |= result.failures
            for text, figure in result.milliseconds.items():
                self.table.add_round(text, lacking[text].label, figure, result.runs[text], result.slowdowns[text])
            for text in result.failures:
                # Whatever fails once is not trusted with what it gave before.
                self.table.entries.pop(text, None)
            self.table.write(self.path)
        self._report_failures(lacking, failures)
        self._tell([self.table.entries[text].measurement() for text in lacking], "modules")

    def measure_all(self, parts, progress=None):
        """The Measurements of parts, whole networks for instance, interleaved, whatever the table holds."""
        modules = dict(enumerate(parts))
        self._need_this_device(modules)
        rounds = {number: [] for number in modules}  # of each: (figure, runs, slowdown)
        failures = {}

        def measurement(number):
            figures, runs, slowdowns = zip(*rounds[number], strict=True)
            return Measurement.of(figures, sum(runs), median(slowdowns))

        def left(number):
            return self._rounds_left([figure for figure, *_ in rounds[number]])

        for result in self._profile(modules, left, progress, WHOLE_ROUND_SECONDS):
            failures |= result.failures
            for number, figure in result.milliseconds.items():
                rounds[number].append((figure, result.runs[number], result.slowdowns[number]))
        self._report_failures(modules, failures)
        found = [measurement(number) for number in modules]
        self._tell(found, "whole networks")
        return found

    def _rounds_left(self, figures):
        """In how many more rounds something should be measured, by the figures of those that were."""
        done = len(figures)
        most, least = self.rounds - done, min(LEAST_ROUNDS, self.rounds) - done
        if most <= 0 or least > 0:
            return max(least, 0)
        excess = scatter(figures) / self.precision
        # The interval shrinks with the root of the number of rounds.
        return 0 if excess <= 1 else min(most, math.ceil(done * (min(excess, 100) ** 2 - 1)))

    def _tell(self, measurements, what):
        """Put into words how surely something is now known, and what disturbed the measurements."""
        errors = [one.error for one in measurements]
        sure = sum(error <= self.precision for error in errors)
        line = f"{len(measurements)} {what} measured, {sure} of them to ± {self.precision:.1%}"
        if sure < len(measurements):
            widest = max(errors)
            line += f", the others to {f'± {widest:.1%} at most' if widest < math.inf else 'an unknown error'}"
            line += f", after {self.rounds} rounds at most"
        self.notices += (line,)

    def _profile(self, parts, left, progress, round_seconds=ROUND_SECONDS):
        """Profile the copies of parts, {key: part}; what cannot be copied fails like what cannot be run."""
        copies, failures = {}, {}
        for key, part in parts.items():
            try:
                copies[key] = self.device.runnable(part)
            except EstimatorError as error:
                failures[key] = error
        if failures:
            yield Round({}, {}, failures)
        if not copies:
            return
        report, waiting = None, lambda text: None
        if progress is not None:

            def report(done, total, key):
                progress(done, total, f"measuring {parts[key].label}")

            def waiting(text):
                progress(0, 1, text)

        loads, slowdowns = [], []
        with host.alone(waiting):
            self.table.conditions = host.conditions(self.device.name)
            ruler = yardstick(self.device, self.table.yardstick)
            self.table.yardstick = ruler.reference
            for result in profile(
                copies,
                self.device.synchronize,
                left,
                round_seconds,
                clock=self.device.clock,
                progress=report,
                slowdown=ruler.slowdown,
            ):
                loads.extend(result.loads.values())
                slowdowns.extend(result.slowdowns.values())
                yield result
        self._tell_of_load(loads, slowdowns)

    def _tell_of_load(self, loads, slowdowns):
        """Warn of a machine that was busy meanwhile."""
        if not loads:
            return
        load, slowdown = median(loads), median(slowdowns)
        signs = []
        if load > BUSY_LOAD:
            signs.append(f"other processes had the core for {1 - 1 / load:.0%} of the time")
        if slowdown > BUSY_SLOWDOWN:
            signs.append(f"what ran took {slowdown:.2f} x as long as undisturbed")
        if signs:
            self.notices += (
                f"the machine was busy while it was measured: {' and '.join(signs)}. That is taken out of the figures, "
                "but their errors are larger: measure again when nothing else runs",
            )

    def _calibration_name(self, space_name):
        """Under what the table keeps the factor of a space."""
        return space_name

    @property
    def _imported_from(self):
        """The file of others that the table is from, or None."""
        origin = self.table.origin or {}
        return str(origin.get("file")) if "format" in origin else None

    def _priced_by(self, part):
        """What a part costs the sum of, as pairs of signature and part: nothing, itself, or modules of the table."""
        if not functions_of(part):
            return []
        text = signature(part, self.table.dtype)
        found = []
        if self._imported_from and not self._complete(text):
            found = [(signature(piece, self.table.dtype), piece) for piece in pieces(part, self._has)]
        return found or [(text, part)]

    def _has(self, part):
        return self._complete(signature(part, self.table.dtype))

    def _complete(self, text):
        """Whether the table's entry will do: a given table is used as it is."""
        entry = self.table.entries.get(text)
        return entry is not None and (self.is_given or not self._rounds_left(entry.rounds))

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


def digest(signatures, costs):
    """Of the parts of a space and of what they cost by themselves, on which a calibration is fitted."""
    return hashlib.sha256(json.dumps([signatures, list(costs)]).encode()).hexdigest()[:16]
