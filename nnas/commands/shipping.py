"""From an architecture to a trained, exported and measured network, and its summary."""

import time
from dataclasses import asdict, dataclass

import nnabla as nn
import numpy as np
from omegaconf import OmegaConf

import nnas
from estimators.base import EstimatorError, Part
from estimators.macs import MACs
from estimators.memory import Memory
from estimators.onnx_graph import onnx_model
from estimators.parameters import Parameters
from nnas import config as configuration
from nnas.checkpoint import read_weights, write_arrays
from nnas.commands.runs import follow
from nnas.commands.settings import built_settings, taking
from nnas.costs import extremes
from nnas.errors import NnasError, check_boolean, nearest, one_line
from nnas.export import export_modules, export_nnp, modules, shipped_network
from nnas.files import write_bytes, write_json
from nnas.hooks import call
from nnas.reports.report import write_report
from nnas.terminal import summary_text
from nnas.train import Training


@dataclass(frozen=True)
class Exports:
    """What is written of the final network. writers: {format: what writes it}. modules: whether its modules are too."""

    writers: dict
    modules: bool


def _write_onnx(path, *network):
    write_bytes(path, onnx_model(*network))


FORMATS = {"nnp": export_nnp, "onnx": _write_onnx}


def requested_exports(config):
    given = config.get("export")
    given = OmegaConf.to_container(given) if OmegaConf.is_dict(given) else {}
    formats, with_modules = given.get("formats", "nnp"), given.get("modules", False)
    names = formats if isinstance(formats, list) else [formats]
    wrong = next((name for name in names if name not in FORMATS), None)
    if wrong is not None or not names:
        raise NnasError(f"export.formats={formats}: possible are {', '.join(FORMATS)}{nearest(wrong, FORMATS)}")
    return Exports({name: FORMATS[name] for name in names}, check_boolean("export.modules", with_modules))


def check_exports(session, exports, choices):
    """Find what cannot be written of an architecture before it is trained."""
    if "onnx" in exports.writers:
        x, outputs, parameters = shipped_network(session.network, choices, 1)
        onnx_model(session.space.name, {"x": x}, outputs, parameters)


def training_loop(config, session, data, choices, weights=None):
    settings = built_settings(config, "train")
    with taking("train"):
        return Training(
            session.network,
            choices,
            data,
            communicator=session.communicator,
            seed=config.seed,
            weights=weights,
            kernels=session.kernels,
            **settings,
        )


def train_and_ship(config, session, data, run, architecture, latency, exports, training, constraints=()):
    """Train, and let the first process write and measure what came of it."""
    once, latencies = session.communicator.once, None
    if exports.modules:  # a table that lacks one of them says so before anything is trained
        latencies = once(
            lambda: list(
                latency.costs(
                    modules(session.network, architecture.choices, latency.batch)[0],
                    session.terminal.progress,
                    session.space.name,
                )
            )
        )
    if once(run.weights.exists):
        trained = read_weights(run.weights, "the weights of this run")
        training.set_weights(trained)
    else:
        follow(session, run, "train", ("train",), training)
        trained = training.weights()
        once(lambda: write_arrays(run.weights, trained))
    accuracy = training.accuracy(data.test)
    once(
        lambda: _ship(
            config, session, data, run, architecture, latency, exports, latencies, trained, accuracy, constraints
        )
    )


def _ship(config, session, data, run, architecture, latency, exports, latencies, trained, accuracy, constraints):
    """Export, measure and summarize."""
    records = run.records()
    start = time.monotonic()
    x, outputs, parameters = shipped_network(session.network, architecture.choices, latency.batch, trained)
    for form, write in exports.writers.items():
        write(run.network.with_suffix(f".{form}"), session.space.name, {"x": x}, outputs, parameters)
    if exports.modules:
        _ship_modules(session, run, architecture, latency, latencies, exports.writers, trained)
    whole = Part(tuple(outputs.values()), (x,), f"{session.space.name}: exported network")
    measured = _measured(session, latency, whole)
    seconds = {"export": round(time.monotonic() - start, 3)}
    summary = {
        "space": session.space.name,
        **_recorded(records, seconds),
        "test_accuracy": accuracy,
        "samples": {"validation": len(data.validation), "test": len(data.test)},
        "costs": _predictions(architecture, constraints),
        "counted": _counted(session, whole),
        "measured_latency": measured,
        "seed": config.seed,
        "versions": {"nnas": nnas.__version__, "nnabla": nn.__version__, "numpy": np.__version__},
        "run_dir": str(run.path),
        "next": _next_commands(config, session, run, constraints, architecture, measured),
    }
    write_json(run.summary, summary)
    session.terminal.say(summary_text(summary, architecture.choices, session.space.nodes))
    _report(session, run)
    call(session.hooks, "end_run", run, summary)


def _report(session, run):
    """Write the report; what fails in it is no reason for a run to end."""
    try:
        page = write_report(run.path)
    except Exception as error:  # whatever it is: the run has its results
        again = f"nnas report run_dir={run.path}"
        session.terminal.warn(f"no report was written: {one_line(error)}; {again} makes it again")
    else:
        session.terminal.say(f"report: {page}")


def _ship_modules(session, run, architecture, latency, latencies, writers, trained):
    """Write the modules of the network, and their latencies."""
    parts, parameters = modules(session.network, architecture.choices, latency.batch, trained)
    files = export_modules(run.modules, parts, parameters, writers)
    content = {
        "space": session.space.name,
        "unit": latency.unit,
        "latency": latency.description(),
        "modules": [
            {"module": part.label.partition(": ")[2], "latency": cost, "files": names}
            for part, cost, names in zip(parts, latencies, files, strict=True)
        ],
    }
    write_json(run.modules / "modules.json", content)
    session.terminal.say(f"modules: {len(parts)} in {run.modules}")


def _counted(session, whole):
    """MACs, parameters and memory of the exported network; None for what has no rule."""
    found = {"macs": None}
    try:
        found["macs"] = int(MACs().costs([whole])[0])
    except EstimatorError as error:
        session.terminal.warn(one_line(error))
    found["parameters"] = int(Parameters().costs([whole])[0])
    return {**found, "memory": {"unit": Memory.unit, **Memory().exact(whole)}}


def counted_text(session, choices):
    """What an architecture takes, for people."""
    x, outputs, _ = shipped_network(session.network, choices, 1)
    counted = _counted(session, Part(tuple(outputs.values()), (x,), f"{session.space.name}: an architecture"))
    macs = "unknown" if counted["macs"] is None else f"{counted['macs'] / 1e6:.4g} M"
    return f"{macs} MACs, {counted['parameters'] / 1e6:.4g} M parameters, batch normalization folded"


def _measured(session, latency, whole):
    """The measured latency of the exported network; None where the search was for another device."""
    if not latency.measures_here:
        return None
    session.terminal.say("measuring the exported network")
    measurement = latency.measure(whole.outputs, whole.label, session.terminal.progress, whole.inputs)
    device = "{processor}, {backend}".format(**session.device.fingerprint)
    return {**asdict(measurement), "device": device, "batch": latency.batch}


def _recorded(records, seconds):
    """What the records of a run add to its summary: the accuracies before training, and the seconds of each phase."""
    found, phases = {"validation_accuracy": None}, {}
    for record in records:
        if "seconds" in record:
            phases[record["phase"]] = phases.get(record["phase"], 0) + record["seconds"]
        if record["phase"] == "derived":
            found = {name: value for name, value in record.items() if name.endswith("_accuracy")}
    rounded = {phase: round(total, 3) for phase, total in phases.items()}
    return {**found, "seconds": {**rounded, **seconds}}


def _predictions(architecture, constraints):
    """{constraint: what was predicted, in which unit and how surely, and the bound where there was one}."""
    errors = {one.name: one.costs.error for one in constraints}
    bounds = {one.name: one.bound for one in constraints}
    return {
        name: {
            "predicted": cost["value"],
            "predicted_error": errors.get(name, cost.get("error", 0.0)),
            "unit": cost["unit"],
            "bound": bounds.get(name),
        }
        for name, cost in architecture.predicted.items()
    }


def _next_commands(config, session, run, constraints, architecture, measured):
    invocation = session.invocation
    longer = f"train.epochs={2 * config.train.epochs or 1}"
    kept = "space", "data", "device", "table", "seed", "train", "solver", "export"
    given = f"architecture={run.architecture}", longer
    # An experiment has a space and data of its own, or settings that `train` does not have: it goes on instead.
    commands = _alike(config, invocation, "train", kept, ("space", "data"), *given) or [
        invocation.variant("resume", f"run_dir={run.path}", longer, keep=())
    ]
    latency = next((one for one in constraints if one.name == "latency"), None)
    if latency:
        smaller = 0.8 * min(latency.bound, architecture.predicted["latency"]["value"])
        if smaller > extremes(session.space, latency.costs)[0]:
            commands += [invocation.variant(invocation.name, f"bound_ms={smaller:.3g}")]
        if measured is not None and measured["median"] > latency.bound:
            commands += _alike(config, invocation, "calibrate", ("space", "device", "table"), ("space",))
    return commands


def _alike(config, invocation, command, keep, sections, *changes):
    """A list of the command line of another command, as Invocation.variant makes it; an empty one where some sections
    of its configuration would differ from those here."""
    try:
        composed = configuration.load(command, invocation.config_dir, [*invocation.kept(keep, changes), *changes])
    except NnasError:
        return []  # an override that the command has no key for
    same = all(composed[name] == config[name] for name in sections)
    return [invocation.variant(command, *changes, keep=keep)] if same else []
