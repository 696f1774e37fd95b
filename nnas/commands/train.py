"""The command `train`."""

import shlex
from dataclasses import replace

from nnas.checkpoint import read_weights
from nnas.commands.runs import begin_run, described_data, file_digest, open_run
from nnas.commands.settings import built, built_data, latency_estimator
from nnas.commands.shipping import check_exports, requested_exports, train_and_ship, training_loop
from nnas.errors import NnasError
from nnas.genotype import read_architecture
from nnas.space import Architecture


def train(config, session):
    """Train, export and measure the architecture of a file, or of a genotype as text."""
    data = built_data(config, session)
    estimator = built(config, "estimator")
    exports = requested_exports(config)
    source = str(config.architecture)
    architecture = read_architecture(source, session.space)
    if architecture.space != session.space.name:
        raise NnasError(
            f"{source}: it is an architecture of {architecture.space}, not of {session.space.name}; add "
            f"space={shlex.quote(architecture.space)}"
        )
    architecture = replace(architecture, choices=session.space.check(architecture.choices))
    weights = None if config.weights is None else read_weights(str(config.weights), "a weights file")
    run = open_run(config, session)
    if (
        session.communicator.once(run.architecture.exists)
        and Architecture.load(run.architecture).choices != architecture.choices
    ):
        raise NnasError(f"{source}: it has changed since the run in {run.path} began; choose another run_dir")
    training = training_loop(config, session, data, architecture.choices, weights)
    check_exports(session, exports, architecture.choices)
    begin_run(config, session, run, {"data": described_data(data), "weights": file_digest(config.weights)})
    session.communicator.once(lambda: architecture.save(run.architecture))
    train_and_ship(config, session, data, run, architecture, latency_estimator(session, [estimator]), exports, training)
