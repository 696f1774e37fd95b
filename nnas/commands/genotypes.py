"""The commands on cells in the notation of the papers: `import_genotype`, `export_genotype`."""

from pathlib import Path

from nnas.commands.shipping import counted_text
from nnas.errors import NnasError
from nnas.files import write_text
from nnas.genotype import read_architecture, written


def import_genotype(config, session):
    """Make an architecture file from a genotype."""
    architecture = read_architecture(str(config.source), session.space)
    target = _new(str(config.target))
    architecture.save(target)
    session.terminal.say(f"{target}: {counted_text(session, architecture.choices)}")
    # The default space of `train` has no cells.
    space = (
        [] if any(one.startswith("space=") for one in session.invocation.overrides) else [f"space={config.space.name}"]
    )
    following = session.invocation.variant("train", *space, f"architecture={target}", keep=("space",))
    session.terminal.say(f"next: {following}")


def export_genotype(config, session):
    """Write an architecture as a genotype, or show it where no file is named."""
    architecture = read_architecture(str(config.architecture), session.space)
    text = written(session.space.check(architecture.choices), session.space)
    if config.target is None:
        session.terminal.say(text)
    else:
        write_text(_new(str(config.target)), f"{text}\n")
        session.terminal.say(f"{config.target}: {text}")


def _new(path):
    """A path of a file that is to be made."""
    path = Path(path)
    if path.exists():
        raise NnasError(f"target={path}: it is there already; choose another one, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
