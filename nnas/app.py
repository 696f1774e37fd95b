"""The commands: the only reader of the configuration, and where spaces, searchers and estimators meet."""

import hashlib
import os
import re
import shlex
import shutil
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import nnabla as nn
import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import nnas
from estimators import device as devices
from estimators import foreign
from estimators import table as latency_tables
from estimators.adapted import Adapted
from estimators.base import EstimatorError, Part
from estimators.latency import Latency
from estimators.macs import MACs
from estimators.memory import Memory
from estimators.onnx_graph import onnx_model
from estimators.parameters import Parameters
from nnas import communicator as communicators
from nnas import config as configuration
from nnas.checkpoint import load as load_checkpoint
from nnas.checkpoint import read_weights, write_arrays
from nnas.costs import extremes, load_costs
from nnas.deciders import listed
from nnas.errors import NnasError, check_positive_integer, nearest, one_line
from nnas.export import export_modules, export_nnp, modules, shipped_network
from nnas.files import hashed, read_json, read_yaml, write_bytes, write_json
from nnas.hooks import Hook, call, observed
from nnas.interruption import interruptible, postponed
from nnas.kernels import loading
from nnas.measurements import occurrences, read_measurements
from nnas.objectives import constraint
from nnas.pricing import cut, price
from nnas.rundir import RunFolder, find_run, start_run, working_in
from nnas.search import Search
from nnas.searchers.base import Searcher
from nnas.space import Architecture
from nnas.terminal import Terminal, adapted_text, costs_text, coverage_text, epoch_line, summary_text
from nnas.train import Training


def run_command(arguments):
    """Run one command; returns the exit status. Errors that the user can mend are one line on standard error."""
    sys.path.insert(0, os.getcwd())
    try:
        name, config_dir, action, overrides = configuration.parse(arguments)
        if name == "resume":
            name, config_dir, overrides = _resumed(overrides)
        config = configuration.load(name, config_dir, overrides, complete=action == "run")
        if action == "show":
            print(OmegaConf.to_yaml(config), end="")
            return 0
        command = config.get("command")
        possible = COMMANDS | FILE_COMMANDS
        if command not in possible:
            raise NnasError(f"command={command}: there are {', '.join(possible)}{nearest(command, possible)}")
        if command in FILE_COMMANDS:
            with interruptible():
                FILE_COMMANDS[command](config, Terminal())
            return 0
        with interruptible(), Session(config, Invocation(name, config_dir, overrides)) as session:
            COMMANDS[command](config, session)
        return 0
    except (NnasError, EstimatorError) as error:
        return _failed(one_line(error))
    except OmegaConfBaseException as error:
        return _failed(f"{one_line(error)}; --cfg job shows what the configuration has")
    except OSError as error:
        return _failed(
            f"{one_line(error.filename or 'file')}: {error.strerror or one_line(error)}; what was finished is kept: "
            "when that is mended, the same command, with the same run_dir, goes on"
        )
    except (MemoryError, RecursionError) as error:
        reason = "memory" if isinstance(error, MemoryError) else "room on the stack: something is nested too deep"
        return _failed(f"there is not enough {reason} ({one_line(error)}); make the sizes in the command smaller")
    except KeyboardInterrupt as error:
        return _failed(
            "interrupted; what was finished is kept: the same command, with the same run_dir, goes on",
            status=128 + getattr(error, "number", signal.SIGINT),
        )


def _resumed(overrides):
    """(name, config_dir, overrides) of the command that began a run, with changes."""
    given = dict(override.partition("=")[::2] for override in overrides)
    if "run_dir" not in given:
        raise NnasError("run_dir is not given; say resume run_dir=FOLDER, the folder of the run to go on with")
    path = RunFolder(given["run_dir"]).command
    command = read_json(path, "the command that began a run")
    try:
        before = [override for override in command["overrides"] if override.partition("=")[0] not in given]
        return command["name"], command["config_dir"], [*before, *overrides]
    except (KeyError, TypeError, AttributeError):
        raise NnasError(f"{path}: it is not the command of a run; start the same command again instead") from None


def _failed(text, status=1):
    print(f"error: {text}", file=sys.stderr, flush=True)
    return status


@dataclass(frozen=True)
class Invocation:
    """How a command was called: its name, --config-dir or None, and the overrides."""

    name: str
    config_dir: str
    overrides: list

    def to_json(self):
        config_dir = self.config_dir and os.path.abspath(self.config_dir)
        return {"name": self.name, "config_dir": config_dir, "overrides": self.overrides}

    def kept(self, keep=None, changes=()):
        """The overrides of these sections (None: all), but for run_dir and what is changed."""
        changed = {change.partition("=")[0] for change in changes} | {"run_dir"}
        return [
            override
            for override in self.overrides
            if override.lstrip("+~").partition("=")[0] not in changed
            and (keep is None or re.split(r"[.=@]", override.lstrip("+~"))[0] in keep)
        ]

    def variant(self, name, *changes, keep=None):
        """A command line like this one with another command and changes, as it works from where the user stands.

        keep: the sections whose overrides go along; None: all but run_dir and what is changed."""
        kept = [shlex.quote(override) for override in self.kept(keep, changes)]
        config_dir = [f"--config-dir={self.config_dir}"] if self.config_dir else []
        if os.path.basename(sys.argv[0]) == "main.py":
            inside = sys.executable.startswith(os.getcwd() + os.sep)
            start = [os.path.relpath(sys.executable) if inside else sys.executable, "main.py", f"--config-name={name}"]
        else:
            on_path = shutil.which("nnas") or os.path.basename(sys.argv[0]) != "nnas"
            start = ["nnas" if on_path else os.path.relpath(sys.argv[0]), name]
        return " ".join([*start, *config_dir, *kept, *map(shlex.quote, changes)])


class Session:
    """What every command needs: the device, the space, a terminal, hooks and the processes."""

    def __init__(self, config, invocation):
        check_positive_integer("seed", config.get("seed", 0), least=0, most=2**64 - 1)
        self.invocation = invocation
        self._held, self._run = ExitStack(), None
        self.communicator = communicators.find()
        self.terminal = Terminal(quiet=self.communicator.rank > 0)
        if not config.get("device"):
            raise NnasError(f"device is not given; take one of {', '.join(devices.NAMES)}")
        self.device = devices.find(config.device.backend)
        self._kernels, self._threads = config.device.kernels, config.device.threads
        self.hooks = _hooks(config)
        nn.set_default_context(self.device.context)
        self.network = _built(config, "space")
        self.space = listed(self.network)
        self.terminal.say(self.device.description)
        self.terminal.say(
            f"space: {self.space.name}, {len(self.space.decisions)} decisions, {self.space.size:.3g} architectures"
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.terminal.close()
        self._held.close()

    def hold(self, run):
        """Keep other processes out of the folder of a run until the command ends."""
        if self._run is None:
            self._held.enter_context(working_in(run))
            self._run = run

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


def search(config, session):
    """Search, train, export and measure; goes on where a run of the same folder and configuration stopped."""
    data = _data(config, session)
    estimators = _estimators(config)
    exports = _exports(config)
    make_searcher = _searcher(config)
    run = _find_run(config, session)
    start = time.monotonic()
    if run.costs.exists():
        tables = load_costs(run.costs)
    else:
        tables = {name: session.price(estimator) for name, estimator in estimators.items()}
    constraints = _constraints(config, session, tables)
    # What is wrong with any settings is found before a run folder is made, and not after a search.
    loop = _search_loop(config, session, data, constraints, make_searcher)
    some = session.space.complete(lambda decision: decision.options[0])
    _training(config, session, data, some)
    _check_exports(session, exports, some)
    _warm_start(config, session, loop)
    _start_run(config, session, run, {"data": _described(data), **_warmth(config)})
    session.space.save(run.space)
    if not run.costs.exists():
        write_json(run.costs, {name: costs.to_json() for name, costs in tables.items()})
        run.append({"phase": "costs", "seconds": round(time.monotonic() - start, 3)})
    if not run.architecture.exists():
        _follow(session, run, "search", ("warmup", "search"), loop, constraints)
        _derive(session, run, loop, constraints)
    elif all(record["phase"] != "derived" for record in run.records()):
        session.terminal.warn(f"{run.metrics}: records of the search are missing; the summary goes without them")
    architecture = Architecture.load(run.architecture)
    session.space.check(architecture.choices)
    _check_exports(session, exports, architecture.choices)
    latency = _latency(session, estimators.values())
    training = _training(config, session, data, architecture.choices)
    _train_and_ship(config, session, data, run, architecture, latency, exports, training, constraints)


def train(config, session):
    """Train, export and measure the architecture of a file."""
    data = _data(config, session)
    estimator = _built(config, "estimator")
    exports = _exports(config)
    source = str(config.architecture)
    architecture = Architecture.load(source)
    if architecture.space != session.space.name:
        raise NnasError(
            f"{source}: it is an architecture of {architecture.space}, not of {session.space.name}; add "
            f"space={shlex.quote(architecture.space)}"
        )
    architecture = replace(architecture, choices=session.space.check(architecture.choices))
    weights = None if config.weights is None else read_weights(str(config.weights), "a weights file")
    run = _find_run(config, session)
    if run.architecture.exists() and Architecture.load(run.architecture).choices != architecture.choices:
        raise NnasError(f"{source}: it has changed since the run in {run.path} began; choose another run_dir")
    training = _training(config, session, data, architecture.choices, weights)
    _check_exports(session, exports, architecture.choices)
    _start_run(config, session, run, {"data": _described(data), "weights": _digest(config.weights)})
    architecture.save(run.architecture)
    _train_and_ship(config, session, data, run, architecture, _latency(session, [estimator]), exports, training)


def profile(config, session):
    """Measure what the latency table of this device lacks of a space."""
    estimator = _built(config, "estimator")
    session.terminal.say(costs_text(estimator.description()["estimator"], session.price(estimator)))


def coverage(config, session):
    """List what a latency table lacks of a space."""
    estimator = _built(config, "estimator")
    if not isinstance(estimator, Latency):
        raise NnasError("coverage is of a latency table; take estimator=latency")
    parts = cut(session.network, session.space, estimator.batch)
    session.terminal.say(coverage_text(*estimator.coverage(parts)))


def import_table(config, terminal):
    """Make a latency table from one that others made."""
    keys = ("unit", "processor", "backend", "batch")
    table, left = foreign.import_table(
        str(config.source),
        _built(config, "format"),
        **{key: config[key] for key in keys},
        came_from=config.came_from,
    )
    name = latency_tables.file_name(table.fingerprint, table.dtype, table.batch)
    path = str(config.table or os.path.join("latency_tables", name))
    foreign.write_new(path, table.write)
    what = (f"{path}: {len(table.entries)} modules from {config.source}", foreign.repeated_text(table))
    terminal.say("; ".join(filter(None, what)))
    terminal.say(f"not taken {foreign.left_text(left)}")


def export_table(config, terminal):
    """Write a latency table in a format of others."""
    table = latency_tables.read(str(config.table))
    text, left = foreign.export_table(table, _built(config, "format"))
    foreign.write_new(str(config.target), lambda path: path.write_text(text, encoding="utf-8"))
    terminal.say(f"{config.target}: {len(table.entries) - len(left)} modules, in ms, from {config.table}")
    terminal.say(f"not exported {foreign.left_text(left)}")


def adapt(config, session):
    """Predict a device on which some whole networks were measured, and write its latency table."""
    source = str(config.measurements)
    architectures, latencies = zip(*read_measurements(source, session.space), strict=True)
    if not OmegaConf.is_list(config.sources):
        raise NnasError(f"sources={config.sources}: it must be a list; write sources=[{config.sources}]")
    tables = [Latency(session.device, table=str(path), batch=config.batch) for path in config.sources]
    name = Path(source).stem if config.device_name is None else str(config.device_name)
    estimator = Adapted(tables, name, latencies, lambda parts: occurrences(parts, architectures), source)
    costs = session.price(estimator)
    path = estimator.write(str(config.folder))
    session.terminal.say(adapted_text(name, path, len(latencies), costs, extremes(session.space, costs)))
    session.terminal.say(f"next: {session.invocation.variant('proxyless', f'table={path}', keep=('space',))}")


def _estimators(config):
    """{constraint: its estimator}; what a constraint needs is checked here, before anything is measured."""
    for name, one in _section("constraints", config.constraints).items():
        one = _section(f"constraints.{name}", one)
        missing = "" if one.get("estimator") else "estimator"
        if missing or all(one.get(key) is None for key in ("bound", "fraction")):
            raise NnasError(
                f"constraints.{name}: {missing or 'bound or fraction'} is not given; choose constraints by name, as "
                f"constraints=[latency,macs,memory], or give one of your own an estimator (as +estimator@constraints."
                f"{name}.estimator=macs), a bound or a fraction of the largest network's cost, and perhaps a weight"
            )
    return {name: _built(one, "estimator") for name, one in config.constraints.items()}


def _section(name, value):
    if not OmegaConf.is_dict(value):
        raise NnasError(f"{name}={one_line(value)}: it must be a mapping, as {{key: value}}; --cfg job shows it")
    return value


def _built(config, name):
    """What a section describes by its _target_."""
    made = configuration.build(_section(name, config.get(name)))
    if isinstance(made, dict):
        raise NnasError(f"{name}: it has no _target_, which says what is to be made; --cfg job shows it")
    return made


def _settings(config, name):
    """What the configuration says of the search or of training."""
    section = _section(name, config.get(name))
    _section(f"{name}.solver", section.get("solver"))
    return {**configuration.build(section), "task": _built(section, "task")}


@contextmanager
def _taking(name):
    """A setting that nothing takes, or one that is missing, is the fault of a section of the configuration."""
    try:
        yield
    except TypeError as error:
        raise NnasError(f"{name}: {one_line(error)}; --cfg job shows what the configuration has") from error


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
        x, outputs, parameters = shipped_network(session.network, choices, 1)
        onnx_model(session.space.name, {"x": x}, outputs, parameters)


def _write_onnx(path, *network):
    write_bytes(path, onnx_model(*network))


def _data(config, session):
    data, network = _built(config, "data"), session.network
    if (data.shape, data.classes) != (network.input_shape, network.classes):
        raise NnasError(
            f"the data has images of {data.shape} in {data.classes} classes, but the space {network.name} takes "
            f"{network.input_shape} in {network.classes} classes; set space.input_shape and space.classes, or choose "
            "other data"
        )
    for notice in data.notices:
        session.terminal.warn(notice)
    return data


def _find_run(config, session):
    """The RunFolder of a command; writes nothing."""
    run = find_run(config.run_dir, config.command, _kept(config), GROWING)
    if run.config.exists():
        session.hold(run)
    return run


def _start_run(config, session, run, inputs):
    """inputs: {name: what identifies the content of something that is read}."""
    session.hold(run)
    resumed = run.config.exists()
    grown = start_run(run, _kept(config), inputs, GROWING)
    if not run.command.exists():
        write_json(run.command, session.invocation.to_json())
    session.terminal.say(f"run folder: {run.path}{' (resumed)' if resumed else ''}")
    for phase in grown:
        session.terminal.say(f"{phase}: goes on to {config[phase].epochs} epochs")
    call(session.hooks, "start_run", run)


def _described(data):
    """What identifies the content of the data, as far as they say it."""
    return data.description() if hasattr(data, "description") else None


def _digest(path):
    """The SHA-256 of a file, or None where no path is given."""
    return None if path is None else hashed(str(path), hashlib.sha256()).hexdigest()


def _kept(config):
    """The configuration as a run folder keeps it."""
    settings = OmegaConf.to_container(config)
    del settings["run_dir"]
    return settings


def _hooks(config):
    """The hooks of a configuration, in its order."""
    if config.get("hooks") is None:
        return []
    hooks = []
    for name, one in _section("hooks", config.hooks).items():
        hook = configuration.build(_section(f"hooks.{name}", one))
        if not isinstance(hook, Hook):
            raise NnasError(f"hooks.{name}: {type(hook).__name__} is not a hook; derive it from nnas.hooks.Hook")
        hooks.append(hook)
    return hooks


def _constraints(config, session, tables):
    if tables.keys() != config.constraints.keys():
        raise NnasError(
            f"costs.json has the costs {', '.join(tables)}, but the constraints are {', '.join(config.constraints)}; "
            "remove the run folder and search again"
        )
    found = []
    for name, one in config.constraints.items():
        session.terminal.say(costs_text(name, tables[name]))
        bound, fraction, weight = (one.get(key) for key in ("bound", "fraction", "weight"))
        made, warning = constraint(session.space, name, tables[name], bound, fraction, weight)
        if warning:
            session.terminal.warn(warning)
        session.terminal.say(f"{name}: bound {made.bound:.4g} {made.costs.unit}")
        found.append(made)
    return found


def _searcher(config):
    """A function of (space, constraints, communicator, seed) to the searcher; whether it takes the objective is checked
    here, before anything is measured."""
    make, objective = _built(config, "searcher"), _built(config, "objective")
    made = getattr(make, "func", None)
    if not (isinstance(made, type) and issubclass(made, Searcher)):
        raise NnasError(
            f"searcher._target_={config.searcher.get('_target_')}: it must be a class made of nnas.searchers.base."
            "Searcher, with _partial_: true beside it"
        )
    made.check_objective(objective)

    def of(*arguments, **settings):
        with _taking("searcher"):
            return make(*arguments, objective=objective, **settings)

    return of


def _search_loop(config, session, data, constraints, make_searcher):
    shared = {"communicator": session.communicator, "seed": config.seed}
    searcher = make_searcher(session.space, constraints, **shared)
    settings = _settings(config, "search")
    with _taking("search"):
        return Search(session.network, data, searcher=searcher, kernels=session.kernels, **shared, **settings)


def _warm_start(config, session, loop):
    """Begin with what an earlier search of the same space learnt: its weights, and with the same searcher its state."""
    if config.get("warm_start") is None:
        return
    source = RunFolder(str(config.warm_start))
    if read_json(source.space, "the space of an earlier search") != session.space.to_json():
        raise NnasError(
            f"warm_start={source.path}: it searched another space than {session.space.name} as it is configured here; "
            "take a run of this space"
        )
    weights = read_weights(source.supernet, "the weights of an earlier search")
    before = read_yaml(source.config, "the configuration of a run")
    learnt = None
    if before["searcher"]["_target_"] == config.searcher["_target_"]:
        saved, _ = load_checkpoint(source.checkpoint("search"))
        learnt = saved and saved["state"]["searcher"]
    loop.start_from(weights, learnt, f"warm_start={source.path}")
    what = "weights and probabilities" if learnt else "weights alone"
    session.terminal.say(f"warm start: {what} of {source.path}")


def _warmth(config):
    """What identifies the search that this one begins with."""
    source = config.get("warm_start")
    return {"warm_start": _digest(source and RunFolder(str(source)).supernet)}


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
        try:
            loop.restore(state)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise NnasError(
                f"the checkpoint in {run.checkpoint(phase)} is not of this {phase} as it is now ({error!r}); "
                "remove that folder to start the phase anew"
            ) from error
        part = f" and {state['step']} steps" if state["step"] else ""
        session.terminal.say(f"{phase}: goes on from the checkpoint after epoch {state['epoch']}{part}")
    epoch = loop.upcoming.epoch - 1 if loop.upcoming else None
    try:
        with postponed(session.terminal.say) as request:
            for progress in session.terminal.follow(observed(loop, session.hooks)):
                if progress.record:
                    session.terminal.say(epoch_line(progress, constraints))
                    state = loop.state()
                    run.append(progress.record)
                    run.save_checkpoint(phase, state)
                    epoch = progress.epoch
                elif request.number:
                    run.save_checkpoint(phase, loop.state())
                request.check()
    except NnasError as error:
        kept = f"the checkpoint after epoch {epoch} is kept in {run.checkpoint(phase)}" if epoch else "nothing is lost"
        raise NnasError(f"{one_line(error)}; {kept}") from error


def _training(config, session, data, choices, weights=None):
    settings = _settings(config, "train")
    with _taking("train"):
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


def _train_and_ship(config, session, data, run, architecture, latency, exports, training, constraints=()):
    if exports.modules:  # a table that lacks one of them says so before anything is trained
        latencies = latency.costs(
            modules(session.network, architecture.choices, latency.batch)[0],
            session.terminal.progress,
            session.space.name,
        )
    if run.weights.exists():
        trained = read_weights(run.weights, "the weights of this run")
        training.set_weights(trained)
    else:
        _follow(session, run, "train", ("train",), training)
        trained = training.weights()
        write_arrays(run.weights, trained)
    records = run.records()
    start = time.monotonic()
    x, outputs, parameters = shipped_network(session.network, architecture.choices, latency.batch, trained)
    for form, write in exports.writers.items():
        write(run.network.with_suffix(f".{form}"), session.space.name, {"x": x}, outputs, parameters)
    if exports.modules:
        _ship_modules(session, run, architecture, latency, latencies, exports.writers, trained)
    whole = Part(tuple(outputs.values()), (x,), f"{session.space.name}: exported network")
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
    call(session.hooks, "end_run", run, summary)
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
        if record["phase"] == "derived":
            validation_accuracy = record["validation_accuracy"]
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
    changes = f"architecture={run.architecture}", longer
    commands = []
    try:
        composed = configuration.load("train", invocation.config_dir, [*invocation.kept(sections, changes), *changes])
        # An experiment has a space and data of its own, which the command `train` does not know.
        if (composed.space, composed.data) == (config.space, config.data):
            commands = [invocation.variant("train", *changes, keep=sections)]
    except NnasError:
        pass  # an override that `train` has no key for
    latency = next((one for one in constraints if one.name == "latency"), None)
    if latency and 0.8 * latency.bound > extremes(session.space, latency.costs)[0]:
        commands += [invocation.variant(invocation.name, f"bound_ms={0.8 * latency.bound:.3g}")]
    return [*commands, invocation.variant("profile", "space=mobilenet_cifar10", keep=("device",))]


FORMATS = {"nnp": export_nnp, "onnx": _write_onnx}
# What a run folder may be resumed with more of: {key: the phase that then goes on}.
GROWING = {"search.epochs": "search", "train.epochs": "train"}
COMMANDS = {"search": search, "train": train, "profile": profile, "coverage": coverage, "adapt": adapt}
# These need neither a device nor a space, and get a terminal instead of a session.
FILE_COMMANDS = {"import_table": import_table, "export_table": export_table}
