"""Objects from sections of the configuration, each checked before anything is begun."""

from contextlib import contextmanager

from omegaconf import OmegaConf

from estimators.latency import Latency
from nnas import config as configuration
from nnas.errors import NnasError, one_line
from nnas.finalizers import Finalizer
from nnas.hooks import Hook
from nnas.searchers.base import Searcher


def _section(name, value):
    if not OmegaConf.is_dict(value):
        raise NnasError(f"{name}={one_line(value)}: it must be a mapping, as {{key: value}}; --cfg job shows it")
    return value


def built(config, name):
    """What a section describes by its _target_."""
    made = configuration.build(_section(name, config.get(name)))
    if isinstance(made, dict):
        raise NnasError(f"{name}: it has no _target_, which says what is to be made; --cfg job shows it")
    return made


def built_settings(config, name):
    """What the configuration says of the search or of training."""
    section = _section(name, config.get(name))
    _section(f"{name}.solver", section.get("solver"))
    return {**configuration.build(section), "task": built(section, "task")}


@contextmanager
def taking(name):
    """A setting that nothing takes, or one that is missing, is the fault of a section of the configuration."""
    try:
        yield
    except TypeError as error:
        raise NnasError(f"{name}: {one_line(error)}; --cfg job shows what the configuration has") from error


def built_data(config, session):
    # In turn: the first process of a machine downloads what the others read.
    data, network = session.communicator.in_turn(lambda: built(config, "data")), session.network
    if (data.shape, data.classes) != (network.input_shape, network.classes):
        raise NnasError(
            f"the data has images of {data.shape} in {data.classes} classes, but the space {network.name} takes "
            f"{network.input_shape} in {network.classes} classes; set space.input_shape and space.classes, or choose "
            "other data"
        )
    for notice in data.notices:
        session.terminal.warn(notice)
    return data


def built_hooks(config):
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


def built_estimators(config):
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
    return {name: built(one, "estimator") for name, one in config.constraints.items()}


def latency_estimator(session, estimators):
    """The latency estimator of the exported network: that of the search, or one of this device where the search needed
    none."""
    latencies = [estimator for estimator in estimators if isinstance(estimator, Latency)]
    return latencies[0] if latencies else Latency(session.device)


def built_finalizer(config):
    made = built(config, "finalizer")
    if not isinstance(made, Finalizer):
        raise NnasError(f"finalizer: {type(made).__name__} is none; derive it from nnas.finalizers.Finalizer")
    return made


def searcher_maker(config):
    """A function of (space, constraints, communicator, seed) to the searcher; whether it takes the objective is checked
    here, before anything is measured."""
    make, objective = built(config, "searcher"), built(config, "objective")
    made = getattr(make, "func", None)
    if not (isinstance(made, type) and issubclass(made, Searcher)):
        raise NnasError(
            f"searcher._target_={config.searcher.get('_target_')}: it must be a class made of nnas.searchers.base."
            "Searcher, with _partial_: true beside it"
        )
    made.check_objective(objective)

    def of(*arguments, **settings):
        with taking("searcher"):
            return make(*arguments, objective=objective, **settings)

    return of
