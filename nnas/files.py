"""Reading and writing of small files: whole or not at all."""

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

from nnas.errors import NnasError

PARTIAL = ".partial"


@contextmanager
def replacing(path):
    """A temporary path beside `path`, which takes its place by one rename when the block ends without an error."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent)
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        _synchronize(temporary)
        os.replace(temporary, path)
        _synchronize(path.parent)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def remove_leftovers(folder):
    """Remove what a process that was killed while it wrote left in a folder."""
    for path in Path(folder).glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _synchronize(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path, text):
    with replacing(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")


def write_bytes(path, content):
    with replacing(path) as temporary:
        Path(temporary).write_bytes(content)


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path, what):
    """The value in a JSON file. `what` names it for people, as in 'an architecture file'."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NnasError(f"{path}: there is no such file; {what} was expected there") from None
    except (json.JSONDecodeError, UnicodeDecodeError, IsADirectoryError, RecursionError) as error:
        raise NnasError(f"{path}: it cannot be read as {what} ({error}); restore it or write it anew") from None
