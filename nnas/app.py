"""The way in: a command line to a command, and its errors to one line."""

import os
import signal
import sys
from functools import partial

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from estimators.base import EstimatorError
from nnas import communicator as communicators
from nnas import config as configuration
from nnas.commands.adapt import adapt
from nnas.commands.calibrate import calibrate, validate
from nnas.commands.doctor import doctor
from nnas.commands.genotypes import export_genotype, import_genotype
from nnas.commands.listing import listing
from nnas.commands.multirun import multirun
from nnas.commands.reports import compare_runs, report, status
from nnas.commands.search import search
from nnas.commands.session import Invocation, Session
from nnas.commands.tables import coverage, export_table, import_table, profile
from nnas.commands.train import train
from nnas.communicator import Alone
from nnas.errors import NnasError, nearest, one_line
from nnas.files import read_json
from nnas.interruption import interruptible
from nnas.rundir import RunFolder
from nnas.terminal import Terminal


def run_command(arguments):
    """Run one command; returns the exit status. Errors that the user can mend are one line on standard error.

    Of several processes one that fails ends all."""
    sys.path.insert(0, os.getcwd())
    try:
        communicator = communicators.find()
    except NnasError as error:
        return _failed(Alone(), one_line(error))
    failed = partial(_failed, communicator)
    try:
        name, config_dir, action, overrides = configuration.parse(arguments)
        if action == "sweep":
            with interruptible():
                return multirun(name, config_dir, overrides)
        if name == "resume":
            name, config_dir, overrides = _resumed(overrides)
        config = configuration.load(name, config_dir, overrides, complete=action == "run")
        if action == "show":
            print(OmegaConf.to_yaml(config), end="")
            return 0
        command = config.get("command")
        possible = COMMANDS | FILE_COMMANDS
        if command not in possible:
            raise NnasError(f"command={command}: there are {', '.join(possible)}{nearest(command, possible)}")
        if command in FILE_COMMANDS:
            with interruptible():
                more = [config_dir] if command == "list" else []
                communicator.once(lambda: FILE_COMMANDS[command](config, Terminal(), *more))
            return 0
        with interruptible(), Session(config, Invocation(name, config_dir, overrides), communicator) as session:
            if command in TOGETHER:
                COMMANDS[command](config, session)
            else:
                communicator.once(lambda: COMMANDS[command](config, session))
        return 0
    except (NnasError, EstimatorError) as error:
        return failed(one_line(error))
    except OmegaConfBaseException as error:
        return failed(f"{one_line(error)}; --cfg job shows what the configuration has")
    except OSError as error:
        return failed(
            f"{one_line(error.filename or 'file')}: {error.strerror or one_line(error)}; what was finished is kept: "
            "when that is mended, the same command, with the same run_dir, goes on"
        )
    except (MemoryError, RecursionError) as error:
        reason = "memory" if isinstance(error, MemoryError) else "room on the stack: something is nested too deep"
        return failed(f"there is not enough {reason} ({one_line(error)}); make the sizes in the command smaller")
    except KeyboardInterrupt as error:
        return failed(
            "interrupted; what was finished is kept: the same command, with the same run_dir, goes on",
            status=128 + getattr(error, "number", signal.SIGINT),
        )


def _resumed(overrides):
    """(name, config_dir, overrides) of the command that began a run, with changes."""
    given = dict(override.partition("=")[::2] for override in overrides)
    if "run_dir" not in given:
        raise NnasError("run_dir is not given; say resume run_dir=FOLDER, the folder of the run to go on with")
    path = RunFolder(given["run_dir"]).command
    command = read_json(path, "the command that began a run")
    try:
        before = [override for override in command["overrides"] if override.partition("=")[0] not in given]
        return command["name"], command["config_dir"], [*before, *overrides]
    except (KeyError, TypeError, AttributeError):
        raise NnasError(f"{path}: it is not the command of a run; start the same command again instead") from None


def _failed(communicator, text, status=1):
    communicator.before_speaking()
    print(f"error: {communicator.named(text)}", file=sys.stderr, flush=True)
    communicator.abort(status)
    return status


COMMANDS = {
    "search": search,
    "train": train,
    "profile": profile,
    "calibrate": calibrate,
    "validate": validate,
    "coverage": coverage,
    "adapt": adapt,
    "import_genotype": import_genotype,
    "export_genotype": export_genotype,
}
# What several processes do together; all else the first one does alone.
TOGETHER = {"search", "train"}
# These need neither a device nor a space, and get a terminal instead of a session.
FILE_COMMANDS = {
    "import_table": import_table,
    "export_table": export_table,
    "report": report,
    "compare": compare_runs,
    "status": status,
    "list": listing,
    "doctor": doctor,
}
