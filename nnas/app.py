"""The commands: the only reader of the configuration, and where spaces, searchers and estimators meet."""

import os
import re
import shlex
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import nnabla as nn
import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import nnas
from estimators import device as devices
from estimators.base import EstimatorError, Part
from estimators.latency import Latency
from estimators.macs import MACs
from estimators.memory import Memory
from estimators.onnx_graph import onnx_model
from estimators.parameters import Parameters
from nnas import communicator as communicators
from nnas import config as configuration
from nnas.checkpoint import read_arrays, write_arrays
from nnas.costs import extremes, load_costs
from nnas.deciders import listed
from nnas.errors import NnasError, check_positive_integer, nearest, one_line
from nnas.export import export_modules, export_nnp, modules, shipped_network
from nnas.files import write_bytes, write_json
from nnas.kernels import loading
from nnas.objectives import constraint
from nnas.pricing import price
from nnas.rundir import find_run, start_run
from nnas.search import Search
from nnas.space import Architecture
from nnas.terminal import Terminal, costs_text, epoch_line, summary_text
from nnas.train import Training


def run_command(arguments):
    """Run one command; returns the exit status. Errors that the user can mend are one line on standard error."""
    sys.path.insert(0, os.getcwd())
    try:
        name, config_dir, action, overrides = configuration.parse(arguments)
        config = configuration.load(name, config_dir, overrides, complete=action == "run")
        if action == "show":
            print(OmegaConf.to_yaml(config), end="")
            return 0
        command = config.get("command")
        if command not in COMMANDS:
            raise NnasError(f"command={command}: there are {', '.join(COMMANDS)}{nearest(command, COMMANDS)}")
        COMMANDS[command](config, Invocation(name, config_dir, overrides))
        return 0
    except (NnasError, EstimatorError) as error:
        return _failed(one_line(error))
    except OmegaConfBaseException as error:
        return _failed(f"{one_line(error)}; --cfg job shows what the configuration has")
    except OSError as error:
        return _failed(f"{error.filename or 'file'}: {error.strerror or error}; what was finished is kept")
    except KeyboardInterrupt:
        return _failed(
            "interrupted; what was finished is kept: the same command, with the same run_dir, goes on", status=130
        )


def _failed(text, status=1):
    print(f"error: {text}", file=sys.stderr, flush=True)
    return status


@dataclass(frozen=True)
class Invocation:
    """How a command was called: its name, --config-dir or None, and the overrides."""

    name: str
    config_dir: str
    overrides: list

    def variant(self, name, *changes, keep=None):
        """A command line like this one with another command and changes, as it works from where the user stands.

        keep: the sections whose overrides go along; None: all but run_dir and what is changed."""
        changed = {change.partition("=")[0] for change in changes} | {"run_dir"}
        kept = [
            shlex.quote(override)
            for override in self.overrides
            if override.lstrip("+~").partition("=")[0] not in changed
            and (keep is None or re.split(r"[.=@]", override.lstrip("+~"))[0] in keep)
        ]
        config_dir = [f"--config-dir={self.config_dir}"] if self.config_dir else []
        if os.path.basename(sys.argv[0]) == "main.py":
            inside = sys.executable.startswith(os.getcwd() + os.sep)
            start = [os.path.relpath(sys.executable) if inside else sys.executable, "main.py", f"--config-name={name}"]
        else:
            on_path = shutil.which("nnas") or os.path.basename(sys.argv[0]) != "nnas"
            start = ["nnas" if on_path else os.path.relpath(sys.argv[0]), name]
        return " ".join([*start, *config_dir, *kept, *map(shlex.quote, changes)])


class Session:
    """What every command needs: the device, the space, a terminal and the processes."""

    def __init__(self, config, invocation):
        check_positive_integer("seed", config.get("seed", 0), least=0)
        self.invocation = invocation
        self.communicator = communicators.find()
        self.terminal = Terminal(quiet=self.communicator.rank > 0)
        if not config.get("device"):
            raise NnasError(f"device is not given; take one of {', '.join(devices.NAMES)}")
        self.device = devices.find(config.device.backend)
        self._kernels, self._threads = config.device.kernels, config.device.threads
        nn.set_default_context(self.device.context)
        self.network = configuration.build(config.space)
        self.space = listed(self.network)
        self.terminal.say(self.device.description)
        self.terminal.say(
            f"space: {self.space.name}, {len(self.space.decisions)} decisions, {self.space.size:.3g} architectures"
        )

    @cached_property
    def kernels(self):
        """The fast functions to search and train with, or None for nnabla's own."""
        chosen, possible = self._kernels, ("auto", "native", "fast")
        if chosen not in possible:
            raise NnasError(f"device.kernels={chosen}: possible are {', '.join(possible)}{nearest(chosen, possible)}")
        if chosen == "native" or (chosen == "auto" and not self.device.on_cpu):
            return None
        if not self.device.on_cpu:
            raise NnasError("device.kernels=fast: these are for the CPU; take device=cpu, or device.kernels=auto")
        try:
            functions = loading.load(self._threads, self.terminal.say)
        except loading.KernelsUnavailable as error:
            if chosen == "fast":
                raise NnasError(f"device.kernels=fast: {one_line(error)}") from error
            self.terminal.warn(f"training with nnabla's own CPU functions, which are slower: {one_line(error)}")
            return None
        self.terminal.say(f"training with the fast CPU kernels, threads: {functions.threads()}")
        return functions

    def price(self, estimator):
        return price(self.network, self.space, estimator, self.terminal.progress)


def search(config, invocation):
    """Search, train, export and measure; goes on where a run of the same folder and configuration stopped."""
    session = Session(config, invocation)
    data = _data(config, session.network)
    estimators = _estimators(config)
    exports = _exports(config)
    run, settings = _find_run(config)
    start = time.monotonic()
    if run.costs.exists():
        tables = load_costs(run.costs)
    else:
        tables = {name: session.price(estimator) for name, estimator in estimators.items()}
    constraints = _constraints(config, session, tables)
    # What is wrong with any settings is found before a run folder is made, and not after a search.
    loop = _search_loop(config, session, data, constraints)
    some = session.space.complete(lambda decision: decision.options[0])
    _training(config, session, data, some)
    _check_exports(session, exports, some)
    _start_run(session, run, settings)
    session.space.save(run.space)
    if not run.costs.exists():
        write_json(run.costs, {name: costs.to_json() for name, costs in tables.items()})
        run.append({"phase": "costs", "seconds": round(time.monotonic() - start, 3)})
    if not run.architecture.exists():
        _follow(session, run, "search", ("warmup", "search"), loop, constraints)
        _derive(session, run, loop, constraints)
    architecture = Architecture.load(run.architecture)
    session.space.check(architecture.choices)
    _check_exports(session, exports, architecture.choices)
    latency = _latency(session, estimators.values())
    training = _training(config, session, data, architecture.choices)
    _train_and_ship(config, session, data, run, architecture, latency, exports, training, constraints)


def train(config, invocation):
    """Train, export and measure the architecture of a file."""
    session = Session(config, invocation)
    data = _data(config, session.network)
    estimator = configuration.build(config.estimator)
    exports = _exports(config)
    source = str(config.architecture)
    architecture = Architecture.load(source)
    if architecture.space != session.space.name:
        raise NnasError(
            f"{source}: it is an architecture of {architecture.space}, not of {session.space.name}; add "
            f"space={architecture.space}"
        )
    architecture = replace(architecture, choices=session.space.check(architecture.choices))
    weights = None if config.weights is None else read_arrays(str(config.weights), "a weights file")[0]
    run, settings = _find_run(config)
    if run.architecture.exists() and Architecture.load(run.architecture).choices != architecture.choices:
        raise NnasError(f"{source}: it has changed since the run in {run.path} began; choose another run_dir")
    training = _training(config, session, data, architecture.choices, weights)
    _check_exports(session, exports, architecture.choices)
    _start_run(session, run, settings)
    architecture.save(run.architecture)
    _train_and_ship(config, session, data, run, architecture, _latency(session, [estimator]), exports, training)


def profile(config, invocation):
    """Measure what the latency table of this device lacks of a space."""
    session = Session(config, invocation)
    estimator = configuration.build(config.estimator)
    session.terminal.say(costs_text(estimator.description()["estimator"], session.price(estimator)))


def _estimators(config):
    """{constraint: its estimator}; what a constraint needs is checked here, before anything is measured."""
    for name, one in config.constraints.items():
        given = one if OmegaConf.is_dict(one) else {}
        missing = [key for key in ("estimator", "weight") if not given.get(key)]
        if missing or all(given.get(key) is None for key in ("bound", "fraction")):
            raise NnasError(
                f"constraints.{name}: {', '.join(missing) or 'bound or fraction'} is not given; choose constraints by "
                "name, as constraints=[latency,macs,memory], or give one of your own an estimator (as "
                f"+estimator@constraints.{name}.estimator=macs), a weight, and a bound or a fraction of the largest "
                "network's cost"
            )
    return {name: configuration.build(one.estimator) for name, one in config.constraints.items()}


def _latency(session, estimators):
    """The latency estimator of the exported network: that of the search, or one of this device where the search needed
    none."""
    latencies = [estimator for estimator in estimators if isinstance(estimator, Latency)]
    return latencies[0] if latencies else Latency(session.device)


@dataclass(frozen=True)
class Exports:
    """What is written of the final network. writers: {format: what writes it}. modules: whether its modules are too."""

    writers: dict
    modules: bool


def _exports(config):
    given = config.get("export")
    given = OmegaConf.to_container(given) if OmegaConf.is_dict(given) else {}
    formats, with_modules = given.get("formats", "nnp"), given.get("modules", False)
    names = formats if isinstance(formats, list) else [formats]
    wrong = next((name for name in names if name not in FORMATS), None)
    if wrong is not None or not names:
        raise NnasError(f"export.formats={formats}: possible are {', '.join(FORMATS)}{nearest(wrong, FORMATS)}")
    if type(with_modules) is not bool:
        raise NnasError(f"export.modules={with_modules!r}: it must be true or false")
    return Exports({name: FORMATS[name] for name in names}, with_modules)


def _check_exports(session, exports, choices):
    """Find what cannot be written of an architecture before it is trained."""
    if "onnx" in exports.writers:
        x, logits, parameters = shipped_network(session.network, choices, 1)
        onnx_model(session.space.name, {"x": x}, {"logits": logits}, parameters)


def _write_onnx(path, *network):
    write_bytes(path, onnx_model(*network))


def _data(config, network):
    data = configuration.build(config.data)
    if (data.shape, data.classes) != (network.input_shape, network.classes):
        raise NnasError(
            f"the data has images of {data.shape} in {data.classes} classes, but the space {network.name} takes "
            f"{network.input_shape} in {network.classes} classes; set space.input_shape and space.classes, or choose "
            "other data"
        )
    return data


def _find_run(config):
    """(RunFolder, the configuration as it is kept there); writes nothing."""
    settings = OmegaConf.to_container(config)
    run, _ = find_run(settings.pop("run_dir"), config.command, settings)
    return run, settings


def _start_run(session, run, settings):
    resumed = run.config.exists()
    start_run(run, settings)
    session.terminal.say(f"run folder: {run.path}{' (resumed)' if resumed else ''}")


def _constraints(config, session, tables):
    if tables.keys() != config.constraints.keys():
        raise NnasError(
            f"costs.json has the costs {', '.join(tables)}, but the constraints are {', '.join(config.constraints)}; "
            "remove the run folder and search again"
        )
    found = []
    for name, one in config.constraints.items():
        session.terminal.say(costs_text(name, tables[name]))
        made, warning = constraint(session.space, name, tables[name], one.get("bound"), one.get("fraction"), one.weight)
        if warning:
            session.terminal.warn(warning)
        session.terminal.say(f"{name}: bound {made.bound:.4g} {made.costs.unit}")
        found.append(made)
    return found


def _search_loop(config, session, data, constraints):
    shared = {"communicator": session.communicator, "seed": config.seed}
    objective = configuration.build(config.objective)
    searcher = configuration.build(config.searcher)(session.space, constraints, objective, **shared)
    settings = configuration.build(config.search)
    return Search(session.network, data, searcher=searcher, kernels=session.kernels, **shared, **settings)


def _derive(session, run, loop, constraints):
    """Write what a search ended with."""
    choices = loop.searcher.best()
    run.append({"phase": "derived", "validation_accuracy": loop.accuracy(choices)})
    write_arrays(run.supernet, loop.weights())
    predicted = {
        one.name: {
            "value": one.costs.cost(choices),
            "unit": one.costs.unit,
            "error": one.costs.error,
            "device": (one.costs.description or {}).get("device"),
        }
        for one in constraints
    }
    Architecture(session.space.name, choices, predicted).save(run.architecture)


def _follow(session, run, phase, names, loop, constraints=()):
    """Run a loop to its end from its newest checkpoint, with a line, a record and a checkpoint an epoch."""
    state, notes = run.load_checkpoint(phase)
    for note in notes:
        session.terminal.warn(note)
    if state is None:
        run.forget_records_of(names)
    else:
        loop.restore(state)
        session.terminal.say(f"{phase}: goes on from the checkpoint after epoch {state['epoch']}")
    for progress in session.terminal.follow(loop):
        if progress.record:
            session.terminal.say(epoch_line(progress, constraints))
            run.append(progress.record)
            run.save_checkpoint(phase, loop.state())


def _training(config, session, data, choices, weights=None):
    settings = configuration.build(config.train)
    return Training(
        session.network,
        choices,
        data.retraining,
        communicator=session.communicator,
        seed=config.seed,
        weights=weights,
        kernels=session.kernels,
        **settings,
    )


def _train_and_ship(config, session, data, run, architecture, latency, exports, training, constraints=()):
    if exports.modules:  # a table that lacks one of them says so before anything is trained
        latencies = latency.costs(
            modules(session.network, architecture.choices, latency.batch)[0],
            session.terminal.progress,
            session.space.name,
        )
    if run.weights.exists():
        trained, _ = read_arrays(run.weights, "the weights of this run")
        training.set_weights(trained)
    else:
        _follow(session, run, "train", ("train",), training)
        trained = training.weights()
        write_arrays(run.weights, trained)
    records = run.records()
    start = time.monotonic()
    x, logits, parameters = shipped_network(session.network, architecture.choices, latency.batch, trained)
    for form, write in exports.writers.items():
        write(run.network.with_suffix(f".{form}"), session.space.name, {"x": x}, {"logits": logits}, parameters)
    if exports.modules:
        _ship_modules(session, run, architecture, latency, latencies, exports.writers, trained)
    whole = Part((logits,), (x,), f"{session.space.name}: exported network")
    measured = _measured(session, latency, whole)
    accuracy = training.accuracy(data.test)
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
        "next": _next_commands(config, session, run, constraints),
    }
    write_json(run.summary, summary)
    session.terminal.say(summary_text(summary, architecture.choices))


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


def _measured(session, latency, whole):
    """The measured latency of the exported network; None where the search was for another device."""
    if not latency.measures_here:
        return None
    session.terminal.say("measuring the exported network")
    measurement = latency.measure(whole.outputs, whole.label, session.terminal.progress, whole.inputs)
    device = "{processor}, {backend}".format(**session.device.fingerprint)
    return {**asdict(measurement), "device": device, "batch": latency.batch}


def _recorded(records, seconds):
    """What the records of a run add to its summary: the accuracy before training, and the seconds of each phase."""
    validation_accuracy, phases = None, {}
    for record in records:
        if "seconds" in record:
            phases[record["phase"]] = phases.get(record["phase"], 0) + record["seconds"]
        validation_accuracy = record.get("validation_accuracy", validation_accuracy)
    rounded = {phase: round(total, 3) for phase, total in phases.items()}
    return {"validation_accuracy": validation_accuracy, "seconds": {**rounded, **seconds}}


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


def _next_commands(config, session, run, constraints):
    invocation = session.invocation
    longer = f"train.epochs={2 * config.train.epochs or 1}"
    sections = ("space", "data", "device", "table", "seed", "train", "solver", "export")
    commands = [invocation.variant("train", f"architecture={run.architecture}", longer, keep=sections)]
    latency = next((one for one in constraints if one.name == "latency"), None)
    if latency and 0.8 * latency.bound > extremes(session.space, latency.costs)[0]:
        commands += [invocation.variant(invocation.name, f"bound_ms={0.8 * latency.bound:.3g}")]
    return [*commands, invocation.variant("profile", "space=mobilenet_cifar10", keep=("device",))]


FORMATS = {"nnp": export_nnp, "onnx": _write_onnx}
COMMANDS = {"search": search, "train": train, "profile": profile}
