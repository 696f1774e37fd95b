"""Reading and writing of files: written whole or not at all, and read as if a stranger had made them."""

import json
import os
import stat
import tempfile
from collections import Counter
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

import yaml

from nnas.errors import UNPRINTABLE, NnasError, one_line

PARTIAL = ".partial"
LARGEST_TEXT = 64 * 2**20  # bytes of a JSON file
LARGEST_YAML = 256 * 2**10  # bytes; PyYAML takes seconds for these
DEEPEST = 100  # lists and dictionaries in one another
LONGEST_INTEGER = 300  # digits; a longer one is no float
MOST_NODES = 100_000  # of a YAML file, each alias counted as what it stands for


@contextmanager
def replacing(path):
    """A temporary path beside `path`, which takes its place by one rename when the block ends without an error.

    An OSError names `path`."""
    path = Path(path)
    with _naming(path):
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


@contextmanager
def _naming(path):
    """What the system calls a full disk by says neither which file nor, of a temporary one, a name that tells."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def leftovers(folder):
    """The paths of what a process that was killed while it wrote left in a folder."""
    return list(Path(folder).glob(f".*{PARTIAL}"))


def remove_leftovers(folder):
    for path in leftovers(folder):
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


def write_bytes(path, *pieces):
    with replacing(path) as temporary, open(temporary, "wb") as file:
        for piece in pieces:
            file.write(piece)


def write_text(path, text):
    write_bytes(path, text.encode())


def append_text(path, text):
    """Add to the end of a file; when that fails, a part of the text may be there."""
    with _naming(path), open(path, "a", encoding="utf-8") as file:
        file.write(text)


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_bytes(path, what, largest=None):
    """The content of a regular file. `what` names it for people, as in 'an architecture file'."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise NnasError(f"{path}: it cannot be read as {what}: it is no regular file")
        if largest is not None and status.st_size > largest:
            raise NnasError(f"{path}: {what} has at most {largest} bytes, and this file has {status.st_size}")
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NnasError(f"{path}: there is no such file; {what} was expected there") from None
    except (OSError, ValueError) as error:
        raise NnasError(f"{path}: it cannot be read as {what} ({getattr(error, 'strerror', None) or error})") from None


def hashed(path, digest):
    """The digest, an object of hashlib, with the content of a file added to it."""
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest


def read_json(path, what):
    """The value in a JSON file: finite numbers, words without control characters, no key twice."""
    value = parse_json(read_bytes(path, what, LARGEST_TEXT), path, what)
    if any(isinstance(one, str) and UNPRINTABLE.search(one) for one in _within(value)):
        raise NnasError(f"{path}: it cannot be read as {what}: a word in it holds control characters")
    return value


def parse_json(text, source, what, finite=True):
    """The value of a JSON text; finite: whether NaN and Infinity are refused. source: the file, for errors."""
    hooks = {"object_pairs_hook": _without_duplicates, "parse_int": _integer}
    if finite:
        hooks |= {"parse_constant": _finite, "parse_float": _finite}
    try:
        value = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, **hooks)
        for _ in _within(value):
            pass
        return value
    except (ValueError, RecursionError) as error:
        raise NnasError(f"{source}: it cannot be read as {what} ({error}); restore it or write it anew") from None


def read_yaml(path, what):
    """The value in a YAML file of plain values."""
    text = read_bytes(path, what, LARGEST_YAML)
    try:
        loader, node = _composed(text)
        return loader.construct_document(node) if node else None
    # PyYAML's constructors fail in each of these ways on words under a tag that is not theirs.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise NnasError(f"{path}: it cannot be read as {what} ({one_line(error)})") from None


def check_yaml(path):
    """Raise NnasError for a YAML file that is larger, with each alias counted as what it stands for, or deeper than any
    of ours; what else is wrong with it is left to others."""
    try:
        _composed(read_bytes(path, "a configuration", LARGEST_YAML))
    except yaml.YAMLError:
        pass
    except ValueError as error:
        raise NnasError(f"{path}: it cannot be read as a configuration ({error})") from None


class _Loader(yaml.SafeLoader):
    """Ends where the text becomes too deep: PyYAML takes minutes for what is thousands deep."""

    depth = 0

    def compose_node(self, parent, index):
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _composed(text):
    """(loader, the node of a YAML text), of which each alias stands for little."""
    loader = _Loader(text)
    node = loader.get_single_node()
    known = {}

    def measure(node):
        """(values, height) of a node, each alias counted as what it stands for."""
        if id(node) not in known:
            # An alias to a list around itself comes back here.
            known[id(node)] = MOST_NODES, 0
            children = node.value if isinstance(node, yaml.CollectionNode) else ()
            if isinstance(node, yaml.MappingNode):
                children = [one for pair in children for one in pair]
            measured = [measure(child) for child in children]
            values, height = 1 + sum(size for size, _ in measured), max((1 + depth for _, depth in measured), default=0)
            if values > MOST_NODES or height > DEEPEST:
                raise ValueError(f"it has more than {MOST_NODES} values, or more than {DEEPEST} in one another")
            known[id(node)] = values, height
        return known[id(node)]

    if node:
        measure(node)
    return loader, node


def _without_duplicates(pairs):
    value = dict(pairs)
    if len(value) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!r} is there twice")
    return value


def _integer(text):
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer has more than {LONGEST_INTEGER} digits")
    return int(text)


def _finite(text):
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _within(value, depth=0):
    """All values in a JSON value, keys included; ValueError where they are too deep."""
    if depth > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} deep")
    yield value
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(item, depth + 1)


def leaves(value, key=""):
    """(key, value) of what nested dictionaries hold; before a key stand those of dictionaries around it, with dots."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
