"""The command `search`."""

import time

from nnas.checkpoint import load as load_checkpoint
from nnas.checkpoint import read_weights, write_arrays
from nnas.commands.runs import begin_run, described_data, file_digest, follow, open_run
from nnas.commands.settings import (
    built_data,
    built_estimators,
    built_finalizer,
    built_settings,
    latency_estimator,
    searcher_maker,
    taking,
)
from nnas.commands.shipping import check_exports, requested_exports, train_and_ship, training_loop
from nnas.costs import Costs, load_costs
from nnas.errors import NnasError
from nnas.files import read_json, read_yaml, write_json
from nnas.objectives import constraint
from nnas.rundir import RunFolder
from nnas.search import Search
from nnas.space import Architecture
from nnas.terminal import costs_text


def search(config, session):
    """Search, train, export and measure; goes on where a run of the same folder and configuration stopped."""
    data = built_data(config, session)
    estimators = built_estimators(config)
    exports = requested_exports(config)
    make_searcher, finalizer = searcher_maker(config), built_finalizer(config)
    run = open_run(config, session)
    start = time.monotonic()
    once = session.communicator.once
    if once(run.costs.exists):
        tables = load_costs(run.costs)
    else:
        # Measured by one process, while the others leave it the machine.
        measured = once(lambda: {name: session.price(one).to_json() for name, one in estimators.items()})
        tables = {name: Costs.from_json(costs, run.costs) for name, costs in measured.items()}
    constraints = _constraints(config, session, tables)
    # What is wrong with any settings is found before a run folder is made, and not after a search.
    loop = _search_loop(config, session, data, constraints, make_searcher)
    finalizer.check(loop.searcher)
    some = session.space.complete(lambda decision: decision.options[0])
    training_loop(config, session, data, some)
    check_exports(session, exports, some)
    _warm_start(config, session, loop)
    begin_run(config, session, run, {"data": described_data(data), **_warmth(config)})

    def keep_costs():
        session.space.save(run.space)
        if not run.costs.exists():
            write_json(run.costs, {name: costs.to_json() for name, costs in tables.items()})
            run.append({"phase": "costs", "seconds": round(time.monotonic() - start, 3)})

    once(keep_costs)
    if not once(run.architecture.exists):
        follow(session, run, "search", ("warmup", "search"), loop, constraints)
        _derive(session, run, loop, constraints, finalizer, data)
    elif all(record["phase"] != "derived" for record in run.records()):
        session.terminal.warn(f"{run.metrics}: records of the search are missing; the summary goes without them")
    architecture = Architecture.load(run.architecture)
    session.space.check(architecture.choices)
    check_exports(session, exports, architecture.choices)
    latency = latency_estimator(session, estimators.values())
    training = training_loop(config, session, data, architecture.choices)
    train_and_ship(config, session, data, run, architecture, latency, exports, training, constraints)


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


def _search_loop(config, session, data, constraints, make_searcher):
    shared = {"communicator": session.communicator, "seed": config.seed}
    searcher = make_searcher(session.space, constraints, **shared)
    settings = built_settings(config, "search")
    with taking("search"):
        return Search(
            _searched(session.network), data, searcher=searcher, kernels=session.kernels, **shared, **settings
        )


def _searched(network):
    """The network that is searched on, where it is another than the one that ships."""
    return getattr(network, "search_network", network)


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
    return {"warm_start": file_digest(source and RunFolder(str(source)).supernet)}


def _derive(session, run, loop, constraints, finalizer, data):
    """Write what a search ended with."""
    choices = finalizer(loop.searcher, _searched(session.network), loop.weights(), data.validation, session.kernels)
    run.append({"phase": "derived", **loop.accuracies(choices)})
    session.communicator.once(lambda: write_arrays(run.supernet, loop.weights()))
    predicted = {
        one.name: {
            "value": one.costs.cost(choices),
            "unit": one.costs.unit,
            "error": one.costs.error,
            "device": (one.costs.description or {}).get("device"),
        }
        for one in constraints
    }
    architecture = Architecture(session.space.name, choices, predicted)
    session.communicator.once(lambda: architecture.save(run.architecture))
