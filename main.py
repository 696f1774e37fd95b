"""Entry of nnas: `python main.py --config-name=COMMAND key=value ...`, the same as `nnas COMMAND key=value ...`."""

import sys

if sys.version_info[:2] != (3, 10):
    sys.exit(
        "error: nnas needs Python 3.10 (nnabla has no wheels for newer ones), and this is %d.%d. Run `make search` once, "
        "then start it as .venv/bin/python main.py ..." % sys.version_info[:2]
    )

from nnas.__main__ import command_line

if __name__ == "__main__":
    try:
        sys.exit(command_line())
    except ModuleNotFoundError as error:
        sys.exit(
            "error: the package %s is missing in %s. Run `make search` once, then start it as .venv/bin/python main.py ..."
            % (error.name, sys.executable)
        )
