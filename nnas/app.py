"""The commands: the only reader of the configuration, and where spaces, searchers and estimators meet."""

import os
import sys
import time
from dataclasses import replace

import nnabla as nn
import numpy as np
from omegaconf import OmegaConf

import nnas
from estimators import device as devices
from estimators.base import EstimatorError
from nnas import communicator as communicators
from nnas import config as configuration
from nnas.checkpoint import read_arrays, write_arrays
from nnas.costs import Costs, Term, load_costs
from nnas.deciders import Costing, Listing, Part
from nnas.errors import NnasError
from nnas.export import export_nnp, shipped_network
from nnas.files import write_json
from nnas.layers import SHIPPED
from nnas.objectives import constraint
from nnas.randomness import generator, seed_initializers
from nnas.rundir import open_run
from nnas.search import Search
from nnas.space import Architecture
from nnas.terminal import Terminal, epoch_line, summary_text
from nnas.train import Training

CALIBRATION_NETWORKS = 5


def run_command(arguments):
    """Run one command; returns the exit status. Errors that the user can mend are one line on standard error."""
    sys.path.insert(0, os.getcwd())
    try:
        name, config_dir, action, overrides = configuration.parse(arguments)
        config = configuration.load(name, config_dir, overrides)
        if action == "show":
            print(OmegaConf.to_yaml(config), end="")
            return 0
        _commands()[config.command](config)
        return 0
    except (NnasError, EstimatorError) as error:
        return _failed(configuration.one_line(error))
    except OSError as error:
        return _failed(
            f"{error.filename or 'file'}: {error.strerror or error}; nothing that was there is lost, and the same command "
            "with the same run_dir goes on"
        )
    except KeyboardInterrupt:
        return _failed("interrupted; the same command with the same run_dir goes on from the last epoch", status=130)


def _failed(text, status=1):
    print(f"error: {text}", file=sys.stderr, flush=True)
    return status


def _commands():
    return {"search": search, "train": train, "profile": profile}


class Session:
    """What every command needs: the device, the space, a terminal and the processes."""

    def __init__(self, config):
        self.communicator = communicators.find()
        self.terminal = Terminal(quiet=self.communicator.rank > 0)
        self.device = devices.find(config.device)
        nn.set_default_context(self.device.context)
        self.network = configuration.build(config.space)
        with nn.parameter_scope("", {}):
            listing = Listing()
            self.network(nn.Variable((1, *self.network.input_shape)), listing, SHIPPED)
        self.space = listing.space(self.network.name)
        self.terminal.say(self.device.description)
        self.terminal.say(
            f"space: {self.space.name}, {len(self.space.decisions)} decisions, {self.space.size:.3g} architectures"
        )


def search(config):
    """Search, train, export and measure; goes on where a run of the same folder and configuration stopped."""
    session = Session(config)
    data = _data(config, session.network)
    estimators = {name: configuration.build(one.estimator) for name, one in config.constraints.items()}
    run = _open(config, session)
    session.space.save(run.space)
    if not run.costs.exists():
        tables = {name: price(session, estimator) for name, estimator in estimators.items()}
        write_json(run.costs, {name: costs.to_json() for name, costs in tables.items()})
    tables = load_costs(run.costs)
    constraints = _constraints(config, session, tables)
    if not run.architecture.exists():
        _search(config, session, data, constraints, run)
    architecture = Architecture.load(run.architecture)
    _train_and_ship(config, session, data, run, architecture, _measuring(estimators.values()), constraints=constraints)


def train(config):
    """Train, export and measure the architecture of a file."""
    session = Session(config)
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


def profile(config):
    """Measure what the latency table of this device lacks of a space."""
    session = Session(config)
    estimator = configuration.build(config.estimator)
    costs = price(session, estimator)
    session.terminal.say(
        f"{len(costs.terms)} modules and whole networks of {session.space.name} are known: factor from sums to whole "
        f"networks {costs.factor:.3f} ± {costs.error:.1%}"
    )
    for key, value in costs.description.items():
        session.terminal.say(f"  {key}: {value}")


def price(session, estimator):
    """The Costs of a space by an estimator, which measures what it lacks."""
    name, network = session.space.name, session.network
    batch = estimator.batch
    seed_initializers(0, "costs")
    with nn.parameter_scope("", {}):
        x = nn.Variable((batch, *network.input_shape))
        costing = Costing(name, x)
        costing.finish(network(x, costing, SHIPPED).logits)
    costs = estimator.costs(costing.parts, session.terminal.progress)
    terms = tuple(Term(part.when, cost, part.label) for part, cost in zip(costing.parts, costs, strict=True))
    if not estimator.calibrated(name):
        random = generator(0, "calibration")
        sums = Costs(estimator.unit, terms)
        drawn = [session.space.sample(random) for _ in range(CALIBRATION_NETWORKS)]
        wholes = [
            _whole(session, choices, batch, f"{name}: whole network {number}")
            for number, choices in enumerate(drawn, start=1)
        ]
        estimator.calibrate(name, wholes, [sums.cost(choices) for choices in drawn], session.terminal.progress)
    factor, error = estimator.whole(name)
    return Costs(estimator.unit, terms, factor, error, estimator.description())


def _whole(session, choices, batch, label, weights=None):
    x, logits, _ = shipped_network(session.network, choices, batch, weights)
    return Part((), (logits,), (x,), label)


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
    run.append({"phase": "derived", "validation_accuracy": accuracy, "seconds": 0.0})
    write_arrays(run.supernet, loop.weights())
    predicted = {
        one.name: {"value": one.costs.cost(choices), "unit": one.costs.unit, "device": _device_of(one.costs)}
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
            run.save_checkpoint(phase, len(run.records()), loop.state())


def _device_of(costs):
    return (costs.description or {}).get("device")


def _train_and_ship(config, session, data, run, architecture, estimator, constraints=(), weights=None):
    settings = configuration.build(config.train)
    training = Training(
        session.network,
        architecture.choices,
        data.retraining,
        communicator=session.communicator,
        seed=config.seed,
        weights=weights,
        **settings,
    )
    if run.weights.exists():
        trained, _ = read_arrays(run.weights, "the weights of this run")
        training.set_weights(trained)
    else:
        _follow(session, run, "train", ("train",), training)
        trained = training.weights()
        write_arrays(run.weights, trained)
    start = time.monotonic()
    x, logits, parameters = shipped_network(
        session.network, architecture.choices, getattr(estimator, "batch", 1), trained
    )
    export_nnp(run.network, session.space.name, x, logits, parameters)
    measured = None
    if estimator is not None:
        session.terminal.say("measuring the exported network")
        measurement = estimator.measure((logits,), f"{session.space.name}: exported network")
        measured = {
            "median": measurement.median,
            "spread": measurement.spread,
            "rounds": measurement.rounds,
            "runs": measurement.runs,
            "unit": measurement.unit,
            "device": "{processor}, {backend}".format(**session.device.fingerprint),
            "batch": estimator.batch,
        }
    summary = _summary(
        config,
        session,
        data,
        run,
        architecture,
        constraints,
        training.accuracy(data.test),
        measured,
        time.monotonic() - start,
    )
    write_json(run.summary, summary)
    session.terminal.say(summary_text(summary, architecture.choices))


def _summary(config, session, data, run, architecture, constraints, test_accuracy, measured, seconds_of_export):
    records = run.records()
    seconds = {}
    for record in records:
        seconds[record["phase"]] = round(seconds.get(record["phase"], 0) + record["seconds"], 3)
    costs = {
        name: {"predicted": cost["value"], "unit": cost["unit"], "predicted_error": 0.0, "bound": None}
        for name, cost in architecture.predicted.items()
    }
    for one in constraints:
        costs[one.name].update(bound=one.bound, predicted_error=one.costs.error)
    return {
        "space": session.space.name,
        "test_accuracy": test_accuracy,
        "validation_accuracy": next(
            (record["validation_accuracy"] for record in records if record["phase"] == "derived"), None
        ),
        "samples": {"validation": len(data.validation), "test": len(data.test)},
        "costs": costs,
        "measured_latency": measured,
        "seconds": {**seconds, "export": round(seconds_of_export, 3)},
        "seed": config.seed,
        "versions": {"nnas": nnas.__version__, "nnabla": nn.__version__, "numpy": np.__version__},
        "run_dir": str(run.path),
        "next": [
            f"nnas train architecture={run.architecture} space={session.space.name} train.epochs={2 * config.train.epochs}",
            *(
                [f"nnas proxyless bound_ms={0.8 * constraints[0].bound:.3g}", "nnas profile space=mobilenet_cifar10"]
                if constraints
                else []
            ),
        ],
    }
