"""The commands on whole networks of a space: `calibrate`, and `validate` on networks that nothing was fitted on."""

import csv
import io
from dataclasses import asdict
from pathlib import Path

from estimators.latency import Latency
from estimators.validation import agreement
from nnas.commands.settings import built
from nnas.errors import NnasError, check_positive_integer
from nnas.files import write_bytes, write_json, write_text
from nnas.pricing import calibrated, cut, random_networks
from nnas.reports.scatter import scatter_png
from nnas.rundir import new_path
from nnas.terminal import calibration_text, validation_text

FEWEST = 4


def calibrate(config, session):
    """Measure whole networks, and keep in the latency table what the parts of the space cost within them."""
    estimator = _latency(config)
    parts = cut(session.network, session.space, estimator.batch)
    networks = _drawn(config, session, parts, estimator.batch, "calibrate", FEWEST)
    with session.telling(estimator):
        costs = estimator.costs(parts, session.terminal.progress, session.space.name)
        calibration = estimator.calibrate(session.space.name, parts, costs, networks, session.terminal.progress)
    session.terminal.say(calibration_text(session.space.name, calibration, str(estimator.path)))
    again = session.invocation.variant("validate", keep=("space", "device", "table", "estimator"))
    session.terminal.say(f"next: {again}")


def validate(config, session):
    """Measure fresh networks twice, and tell how far predictions are from that."""
    estimator = _latency(config)
    parts = cut(session.network, session.space, estimator.batch)
    with session.telling(estimator):
        alone = estimator.costs(parts, session.terminal.progress, session.space.name)
        costs = calibrated(session.network, session.space, parts, alone, estimator, session.terminal.progress)
    networks = _drawn(config, session, parts, estimator.batch, "validate", 2)
    # Both measurements of a network are interleaved with those of all others: their difference is noise alone.
    with session.telling(estimator):
        measured = estimator.measure_all([one.whole for one in (*networks, *networks)], session.terminal.progress)
    points = [
        {
            "measured": first.median,
            "again": second.median,
            "predicted": costs.cost(network.choices),
            "uncalibrated": sum(alone[place] for place in network.parts),
            **network.choices,
        }
        for network, first, second in zip(networks, measured[: len(networks)], measured[len(networks) :], strict=True)
    ]
    figures = {
        name: asdict(agreement([point[one] for point in points], [point[other] for point in points]))
        for name, one, other in (
            ("calibrated", "predicted", "measured"),
            ("uncalibrated", "uncalibrated", "measured"),
            ("noise_floor", "again", "measured"),
        )
    }
    folder = Path(config.folder or new_path("validate"))
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "space": session.space.name,
        "unit": estimator.unit,
        "stated_error": costs.error,
        "agreement": figures,
        "estimator": estimator.description(),
        "networks": points,
    }
    write_json(folder / "validation.json", content)
    write_text(folder / "validation.csv", _csv(points))
    title = f"{session.space.name} on {estimator.device.fingerprint['processor']}, {estimator.device.name}"
    write_bytes(folder / "validation.png", scatter_png(points, estimator.unit, title))
    session.terminal.say(validation_text(figures, costs, len(points), folder))


def _latency(config):
    estimator = built(config, "estimator")
    if not isinstance(estimator, Latency):
        raise NnasError("counted costs are exact; take estimator=latency or estimator=latency_by_graph")
    return estimator


def _drawn(config, session, parts, batch, purpose, fewest):
    count = check_positive_integer("networks", config.networks, least=fewest, most=500)
    seed = check_positive_integer("seed", config.seed, least=0)
    return random_networks(session.network, session.space, parts, batch, count, purpose, seed)


def _csv(points):
    # Networks may have different decisions.
    columns = list(dict.fromkeys(key for point in points for key in point))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(points)
    return text.getvalue()
