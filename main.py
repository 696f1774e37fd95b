"""Entry of nnas: `python main.py --config-name=COMMAND key=value ...`, the same as `nnas COMMAND key=value ...`."""

import sys

# In words that every Python parses, and before any import that another one could fail at.
# ruff: noqa: E402, UP032
SET_UP = "Run `make search` once, then start it as .venv/bin/python main.py ..."
if sys.version_info[:2] != (3, 10):
    text = "error: nnas needs Python 3.10 (nnabla has no wheels for newer ones), and this is {}.{}. {}"
    sys.exit(text.format(sys.version_info[0], sys.version_info[1], SET_UP))

from nnas.__main__ import command_line

if __name__ == "__main__":
    try:
        sys.exit(command_line())
    except ModuleNotFoundError as error:
        sys.exit("error: the package {} is missing in {}. {}".format(error.name, sys.executable, SET_UP))
