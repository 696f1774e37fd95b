"""The error of nnas."""

import re
from difflib import get_close_matches
from math import isfinite

LARGEST_INTEGER = 2**31 - 1  # of what counts something
LONGEST_LINE = 4000  # characters of an error
# What a terminal obeys instead of showing it, or cannot write: control characters, changes of direction, surrogates.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class NnasError(Exception):
    """What the user can mend. Its text is one line: what was given, what was possible, what to do next."""


def one_line(error):
    """The text of an error on one line; what a terminal would obey stands there escaped."""
    text = " ".join(str(error).split())
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def nearest(given, possible):
    """A hint ', did you mean X?' for a misspelt name, or an empty string."""
    matches = get_close_matches(str(given), [str(name) for name in possible], n=1, cutoff=0.5)
    return f", did you mean {matches[0]!r}?" if matches else ""


def check_positive_integer(name, value, least=1, most=LARGEST_INTEGER):
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        most_text = f" and at most {most}" if isinstance(value, int) and value > most else ""
        raise NnasError(f"{name}={value!r}: it must be an integer of at least {least}{most_text}")
    return value


def check_boolean(name, value):
    if not isinstance(value, bool):
        raise NnasError(f"{name}={value!r}: it must be true or false")
    return value


def check_number(name, value, least, most=float("inf"), *, open_below=False):
    """Return value as a float in [least, most], or in (least, most] with open_below."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (
        not is_number
        or not isfinite(value)
        or not (least < value if open_below else least <= value)
        or not value <= most
    ):
        least_text = f"{'above' if open_below else 'of at least'} {least:g}"
        most_text = f" and at most {most:g}" if isfinite(most) else ""
        raise NnasError(f"{name}={value!r}: it must be a number {least_text}{most_text}")
    return float(value)
