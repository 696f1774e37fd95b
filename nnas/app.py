"""The commands: the only reader of the configuration, and where spaces, searchers and estimators meet."""

import os
import re
import shlex
import sys
import time
from dataclasses import asdict, dataclass, replace

import nnabla as nn
import numpy as np
from omegaconf import OmegaConf

import nnas
from estimators import device as devices
from estimators.base import EstimatorError
from nnas import communicator as communicators
from nnas import config as configuration
from nnas.checkpoint import read_arrays, write_arrays
from nnas.costs import load_costs
from nnas.deciders import listed
from nnas.errors import NnasError, check_positive_integer, nearest
from nnas.export import export_nnp, shipped_network
from nnas.files import write_json
from nnas.objectives import constraint
from nnas.pricing import price
from nnas.rundir import open_run
from nnas.search import Search
from nnas.space import Architecture
from nnas.terminal import Terminal, epoch_line, summary_text
from nnas.train import Training


def run_command(arguments):
    """Run one command; returns the exit status. Errors that the user can mend are one line on standard error."""
    sys.path.insert(0, os.getcwd())
    try:
        name, config_dir, action, overrides = configuration.parse(arguments)
        config = configuration.load(name, config_dir, overrides)
        if action == "show":
            print(OmegaConf.to_yaml(config), end="")
            return 0
        command = config.get("command")
        if command not in COMMANDS:
            raise NnasError(f"command={command}: there are {', '.join(COMMANDS)}{nearest(command, COMMANDS)}")
        COMMANDS[command](config, Invocation(name, config_dir, overrides))
        return 0
    except (NnasError, EstimatorError) as error:
        return _failed(configuration.one_line(error))
    except OSError as error:
        return _failed(
            f"{error.filename or 'file'}: {error.strerror or error}; nothing that was there is lost, and the same "
            "command with the same run_dir goes on"
        )
    except KeyboardInterrupt:
        return _failed("interrupted; the same command with the same run_dir goes on from the last epoch", status=130)


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
            start = ["nnas", name]
        return " ".join([*start, *config_dir, *kept, *changes])


class Session:
    """What every command needs: the device, the space, a terminal and the processes."""

    def __init__(self, config, invocation):
        check_positive_integer("seed", config.get("seed", 0), least=0)
        self.invocation = invocation
        self.communicator = communicators.find()
        self.terminal = Terminal(quiet=self.communicator.rank > 0)
        self.device = devices.find(config.device)
        nn.set_default_context(self.device.context)
        self.network = configuration.build(config.space)
        self.space = listed(self.network)
        self.terminal.say(self.device.description)
        self.terminal.say(
            f"space: {self.space.name}, {len(self.space.decisions)} decisions, {self.space.size:.3g} architectures"
        )


def search(config, invocation):
    """Search, train, export and measure; goes on where a run of the same folder and configuration stopped."""
    session = Session(config, invocation)
    data = _data(config, session.network)
    estimators = {name: configuration.build(one.estimator) for name, one in config.constraints.items()}
    run = _open(config, session)
    session.space.save(run.space)
    if not run.costs.exists():
        start = time.monotonic()
        tables = {
            name: price(session.network, session.space, estimator, session.terminal.progress)
            for name, estimator in estimators.items()
        }
        write_json(run.costs, {name: costs.to_json() for name, costs in tables.items()})
        run.append({"phase": "costs", "seconds": round(time.monotonic() - start, 3)})
    tables = load_costs(run.costs)
    if tables.keys() != estimators.keys():
        raise NnasError(
            f"{run.costs}: it has the costs {', '.join(tables)}, but the constraints are {', '.join(estimators)}; "
            "remove the run folder and search again"
        )
    constraints = _constraints(config, session, tables)
    if not run.architecture.exists():
        # Wrong settings of the training are found now, and not after the search.
        _training(config, session, data, session.space.complete(lambda decision: decision.options[0]))
        _search(config, session, data, constraints, run)
    architecture = Architecture.load(run.architecture)
    _train_and_ship(config, session, data, run, architecture, _measuring(estimators.values()), constraints=constraints)


def train(config, invocation):
    """Train, export and measure the architecture of a file."""
    session = Session(config, invocation)
    data = _data(config, session.network)
    estimator = configuration.build(config.estimator)
    architecture = Architecture.load(config.architecture)
    if architecture.space != session.space.name:
        raise NnasError(
            f"{config.architecture}: it is an architecture of {architecture.space}, not of {session.space.name}; add "
            f"space={architecture.space}"
        )
    architecture = replace(architecture, choices=session.space.check(architecture.choices))
    weights = None if config.weights is None else read_arrays(config.weights, "a weights file")[0]
    run = _open(config, session)
    architecture.save(run.architecture)
    _train_and_ship(config, session, data, run, architecture, _measuring([estimator]), weights=weights)


def profile(config, invocation):
    """Measure what the latency table of this device lacks of a space."""
    session = Session(config, invocation)
    estimator = configuration.build(config.estimator)
    costs = price(session.network, session.space, estimator, session.terminal.progress)
    session.terminal.say(
        f"{len(costs.terms)} modules and whole networks of {session.space.name} are known: factor from sums to whole "
        f"networks {costs.factor:.3f} ± {costs.error:.1%}"
    )
    for key, value in costs.description.items():
        session.terminal.say(f"  {key}: {value}")


def _measuring(estimators):
    """The first estimator that can measure whole networks on this machine, or None."""
    return next((one for one in estimators if getattr(one, "measures_here", False)), None)


def _data(config, network):
    data = configuration.build(config.data)
    if (data.shape, data.classes) != (network.input_shape, network.classes):
        raise NnasError(
            f"the data has images of {data.shape} in {data.classes} classes, but the space {network.name} takes "
            f"{network.input_shape} in {network.classes} classes; set space.input_shape and space.classes, or choose "
            "other data"
        )
    return data


def _open(config, session):
    plain = OmegaConf.to_container(config)
    run_dir = plain.pop("run_dir")
    run, resumed = open_run(run_dir, config.command, plain)
    session.terminal.say(f"run folder: {run.path}{' (resumed)' if resumed else ''}")
    return run


def _constraints(config, session, tables):
    found = []
    for name, one in config.constraints.items():
        made, warning = constraint(session.space, name, tables[name], one.get("bound"), one.get("fraction"), one.weight)
        if warning:
            session.terminal.warn(warning)
        session.terminal.say(f"{name}: bound {made.bound:.4g} {made.costs.unit}")
        found.append(made)
    return found


def _search(config, session, data, constraints, run):
    settings = configuration.build(config.search)
    searcher = configuration.build(config.searcher)(
        session.space,
        constraints,
        configuration.build(config.objective),
        communicator=session.communicator,
        seed=config.seed,
    )
    loop = Search(
        session.network, data, searcher=searcher, communicator=session.communicator, seed=config.seed, **settings
    )
    _follow(session, run, "search", ("warmup", "search"), loop, constraints)
    choices = searcher.best()
    accuracy = loop.accuracy(choices)
    run.append({"phase": "derived", "validation_accuracy": accuracy})
    write_arrays(run.supernet, loop.weights())
    predicted = {
        one.name: {
            "value": one.costs.cost(choices),
            "unit": one.costs.unit,
            "error": one.costs.error,
            "device": _device_of(one.costs),
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


def _device_of(costs):
    return (costs.description or {}).get("device")


def _training(config, session, data, choices, weights=None):
    settings = configuration.build(config.train)
    return Training(
        session.network,
        choices,
        data.retraining,
        communicator=session.communicator,
        seed=config.seed,
        weights=weights,
        **settings,
    )


def _train_and_ship(config, session, data, run, architecture, estimator, constraints=(), weights=None):
    training = _training(config, session, data, architecture.choices, weights)
    if run.weights.exists():
        trained, _ = read_arrays(run.weights, "the weights of this run")
        training.set_weights(trained)
    else:
        _follow(session, run, "train", ("train",), training)
        trained = training.weights()
        write_arrays(run.weights, trained)
    records = run.records()
    start = time.monotonic()
    batch = estimator.batch if estimator else 1
    x, logits, parameters = shipped_network(session.network, architecture.choices, batch, trained)
    export_nnp(run.network, session.space.name, x, logits, parameters)
    measured = _measured(session, estimator, logits)
    accuracy = training.accuracy(data.test)
    seconds = {"export": round(time.monotonic() - start, 3)}
    summary = {
        "space": session.space.name,
        **_recorded(records, seconds),
        "test_accuracy": accuracy,
        "samples": {"validation": len(data.validation), "test": len(data.test)},
        "costs": _predictions(architecture, constraints),
        "measured_latency": measured,
        "seed": config.seed,
        "versions": {"nnas": nnas.__version__, "nnabla": nn.__version__, "numpy": np.__version__},
        "run_dir": str(run.path),
        "next": _next_commands(config, session, run, constraints),
    }
    write_json(run.summary, summary)
    session.terminal.say(summary_text(summary, architecture.choices))


def _measured(session, estimator, logits):
    if estimator is None:
        return None
    session.terminal.say("measuring the exported network")
    label = f"{session.space.name}: exported network"
    measurement = estimator.measure((logits,), label, session.terminal.progress)
    device = "{processor}, {backend}".format(**session.device.fingerprint)
    return {**asdict(measurement), "device": device, "batch": estimator.batch}


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
    longer = f"train.epochs={2 * config.train.epochs}"
    sections = ("space", "data", "device", "table", "seed")
    commands = [invocation.variant("train", f"architecture={run.architecture}", longer, keep=sections)]
    latency = next((one for one in constraints if one.name == "latency"), None)
    if latency:
        commands += [invocation.variant(invocation.name, f"bound_ms={0.8 * latency.bound:.3g}")]
    return [*commands, invocation.variant("profile", "space=mobilenet_cifar10", keep=("device",))]


COMMANDS = {"search": search, "train": train, "profile": profile}
