"""The command `list`."""

from estimators import device as devices
from estimators.base import EstimatorError
from estimators.macs import MACs
from estimators.parameters import Parameters
from nnas import config as configuration
from nnas.costs import extremes
from nnas.deciders import listed
from nnas.errors import NnasError, nearest, one_line
from nnas.pricing import price
from nnas.reports.words import large

# What is asked for: the group, and the command whose defaults are told.
SINGULAR = {"spaces": "space", "searchers": "searcher", "devices": "device", "objectives": "objective"}
SINGULAR |= {"estimators": "estimator", "data": "data", "constraints": "constraints", "solvers": "solver"}
DEFAULTS_OF = "proxyless"


def listing(config, terminal, config_dir=None):
    """Say what there is of something, the default marked with *."""
    what = str(config.what)
    group = SINGULAR.get(what, what)
    found = configuration.groups(config_dir)
    if group not in found:
        possible = [*SINGULAR, *(name for name in found if name not in SINGULAR.values())]
        raise NnasError(f"what={what}: there are {', '.join(possible)}{nearest(what, possible)}")
    default = configuration.defaults(DEFAULTS_OF, config_dir).get(group)
    width = max(map(len, found[group]))
    for name in found[group]:
        mark = "*" if name == default else " "
        terminal.say(f"{mark} {name:{width}}  {configuration.about(group, name, config_dir)}".rstrip())
        for line in DETAILS.get(group, lambda *_: ())(name, config_dir):
            terminal.say(f"  {'':{width}}  {line}")
    if default:
        terminal.say(f"* is what {DEFAULTS_OF} takes unless told otherwise; {group}=NAME chooses another")


def _space(name, config_dir):
    """Lines on the size of a space and what its networks cost."""
    try:
        network = configuration.build(configuration.load(DEFAULTS_OF, config_dir, [f"space={name}"]).space)
    except NnasError as error:
        return [one_line(error)]
    space = listed(network)
    shape = "x".join(map(str, network.input_shape))
    lines = [f"{len(space.decisions)} decisions, {space.size:.3g} architectures; {shape} in {network.classes} classes"]
    costs = []
    for estimator, unit in ((MACs(), "MACs"), (Parameters(), "parameters")):
        try:
            least, most = extremes(space, price(network, space, estimator))
            costs.append(f"{large(least, '')} to {large(most, '')} {unit}")
        except (EstimatorError, NnasError) as error:
            costs.append(f"no {unit}: {one_line(error)}")
    return [*lines, "; ".join(costs)]


def _device(name, config_dir):
    try:
        found = devices.find(configuration.load(DEFAULTS_OF, config_dir, [f"device={name}"]).device.backend)
        return [f"here: {found.description}"]
    except (EstimatorError, NnasError) as error:
        return [f"not here: {one_line(error)}"]


DETAILS = {"space": _space, "device": _device}
