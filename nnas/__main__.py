"""`nnas COMMAND key=value ...`, or `python -m nnas COMMAND key=value ...`."""

import logging
import sys


def command_line():
    # nnabla greets on standard error as soon as it is imported; warnings of it come through.
    logging.disable(logging.INFO)
    from nnas.app import run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(command_line())
