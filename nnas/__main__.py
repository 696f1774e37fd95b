"""`nnas COMMAND key=value ...`, or `python -m nnas COMMAND key=value ...`."""

import logging
import sys


def command_line():
    # nnabla greets on standard error as soon as it is imported; warnings of it come through.
    logging.disable(logging.INFO)
    # A terminal of few characters shows the others escaped; a run does not end by them.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    from nnas.app import run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(command_line())
