"""The command `adapt`."""

from pathlib import Path

from omegaconf import OmegaConf

from estimators.adapted import Adapted
from estimators.latency import Latency
from nnas.costs import extremes
from nnas.errors import NnasError
from nnas.measurements import occurrences, read_measurements
from nnas.terminal import adapted_text


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
