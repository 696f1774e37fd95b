"""A command at work in a run folder: its start, and its loops from checkpoint to checkpoint."""

import hashlib

from omegaconf import OmegaConf

from nnas.errors import NnasError, one_line
from nnas.files import hashed, write_json
from nnas.hooks import call, observed
from nnas.interruption import Interrupted, postponed
from nnas.rundir import RunFolder, find_run, start_run
from nnas.terminal import collapse_text, epoch_line

# What a run folder may be resumed with more of: {key: the phase that then goes on}.
GROWING = {"search.epochs": "search", "train.epochs": "train"}


def open_run(config, session):
    """The RunFolder of a command, which the first process chooses; writes nothing."""

    def found():
        return str(find_run(config.run_dir, config.command, _kept(config), GROWING).path)

    run = RunFolder(session.communicator.once(found), writes=session.communicator.leads)
    if session.communicator.once(run.config.exists):
        session.hold(run)
    return run


def begin_run(config, session, run, inputs):
    """inputs: {name: what identifies the content of something that is read}."""
    session.communicator.check_alike("what the run reads", lambda: inputs)
    session.hold(run)

    def started():
        resumed = run.config.exists()
        grown = start_run(run, _kept(config), inputs, GROWING)
        if not run.command.exists():
            write_json(run.command, session.invocation.to_json())
        return resumed, grown

    resumed, grown = session.communicator.once(started)
    session.terminal.say(f"run folder: {run.path}{' (resumed)' if resumed else ''}")
    for phase in grown:
        session.terminal.say(f"{phase}: goes on to {config[phase].epochs} epochs")
    call(session.hooks, "start_run", run)


def described_data(data):
    """What identifies the content of the data, as far as they say it."""
    return data.description() if hasattr(data, "description") else None


def file_digest(path):
    """The SHA-256 of a file, or None where no path is given."""
    return None if path is None else hashed(str(path), hashlib.sha256()).hexdigest()


def _kept(config):
    """The configuration as a run folder keeps it."""
    settings = OmegaConf.to_container(config)
    del settings["run_dir"]
    return settings


def follow(session, run, phase, names, loop, constraints=()):
    """Run a loop to its end from its newest checkpoint, with a line, a record and a checkpoint an epoch."""
    communicator = session.communicator
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
        before, now = state.get("processes", 1), communicator.size
        change = "" if before == now else f", with {now} processes instead of {before}: the numbers are the same"
        session.terminal.say(f"{phase}: goes on from the checkpoint after epoch {state['epoch']}{part}{change}")
    epoch, collapse = loop.upcoming.epoch - 1 if loop.upcoming else None, None

    def save(record=None):
        state = loop.state() | {"processes": communicator.size}
        if record:
            run.append(record, loop.samples)
        run.save_checkpoint(phase, state)

    try:
        with postponed(session.terminal.say) as request:
            for progress in session.terminal.follow(observed(loop, session.hooks)):
                if progress.record:
                    session.terminal.brief(epoch_line(progress, constraints))
                    before, collapse = collapse, collapse_text(progress.record)
                    if collapse and (before is None or loop.upcoming is None):
                        session.terminal.warn(collapse)
                    # The others wait: a process that went on could by its end take this one along.
                    communicator.once(lambda progress=progress: save(progress.record))
                    epoch = progress.epoch
                # A signal may reach one process alone, or at another step: they end after the same one.
                ending = communicator.largest(request.number or 0)
                if ending and not progress.record:
                    communicator.once(save)
                if ending:
                    raise Interrupted(ending)
    except NnasError as error:
        kept = f"the checkpoint after epoch {epoch} is kept in {run.checkpoint(phase)}" if epoch else "nothing is lost"
        raise NnasError(f"{one_line(error)}; {kept}") from error
