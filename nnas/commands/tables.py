"""The commands on latency tables alone: `profile`, `coverage`, `import_table`, `export_table`."""

import os

from estimators import foreign
from estimators import table as latency_tables
from estimators.latency import Latency
from nnas.commands.settings import built
from nnas.errors import NnasError
from nnas.pricing import cut
from nnas.terminal import costs_text, coverage_text


def profile(config, session):
    """Measure what the latency table of this device lacks of a space."""
    estimator = built(config, "estimator")
    session.terminal.say(costs_text(estimator.description()["estimator"], session.price(estimator)))


def coverage(config, session):
    """List what a latency table lacks of a space."""
    estimator = built(config, "estimator")
    if not isinstance(estimator, Latency):
        raise NnasError("coverage is of a latency table; take estimator=latency")
    parts = cut(session.network, session.space, estimator.batch)
    session.terminal.say(coverage_text(*estimator.coverage(parts)))


def import_table(config, terminal):
    """Make a latency table from one that others made."""
    keys = ("unit", "processor", "backend", "batch")
    table, left = foreign.import_table(
        str(config.source),
        built(config, "format"),
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
    text, left = foreign.export_table(table, built(config, "format"))
    foreign.write_new(str(config.target), lambda path: path.write_text(text, encoding="utf-8"))
    terminal.say(f"{config.target}: {len(table.entries) - len(left)} modules, in ms, from {config.table}")
    terminal.say(f"not exported {foreign.left_text(left)}")
