"""`nnas COMMAND key=value ...`, or `python -m nnas COMMAND key=value ...`.

Tab completion in bash: complete -o nospace -C 'nnas --complete' nnas
"""

import logging
import os
import sys


def command_line():
    # nnabla greets on standard error as soon as it is imported; warnings of it come through.
    logging.disable(logging.INFO)
    # A terminal of few characters shows the others escaped; a run does not end by them.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    # The shell waits for it: nothing of nnabla is loaded.
    if "COMP_LINE" in os.environ and sys.argv[1:2] == ["--complete"]:
        from nnas.config import completions

        print("\n".join(completions(os.environ["COMP_LINE"])))
        return 0
    from nnas.app import run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(command_line())
