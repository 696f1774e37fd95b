"""Checkpoints: a nested state of dictionaries, numbers, words and arrays in one HDF5 file, whole or not at all.

The HDF5 library hangs or ends the process on files that are damaged: one byte is enough. So it only writes here. Behind
what it wrote stand a line of JSON, which says of each array its type, its shape and where its bytes are, and a digest
of everything before; to read a file takes no more. Other programs see an HDF5 file.
"""

import hashlib
import json
from math import prod
from pathlib import Path

import h5py
import numpy as np

from nnas.errors import NnasError
from nnas.files import parse_json, read_bytes, remove_leftovers, write_bytes

KEPT = 2
FORMAT = 2
DIGEST_LENGTH = 64
DTYPES = {np.dtype(code).str: np.dtype(code) for code in "?bhilBHILefd"}


def save(folder, state):
    """Write a checkpoint under the next number and remove all but the newest two."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    number = max((int(path.stem) for path in _checkpoints(folder)), default=0) + 1
    write_arrays(folder / f"{number:08d}.h5", *_separate(state))
    for old in _checkpoints(folder)[:-KEPT]:
        old.unlink()


def load(folder):
    """Return (state, notes): the newest readable checkpoint or None, and a line on each one that is damaged.

    When there are checkpoints and none is readable, NnasError."""
    notes = []
    for path in reversed(_checkpoints(folder)):
        try:
            return _join(*read_arrays(path, "a checkpoint"), path), notes
        except NnasError as error:
            notes.append(f"{error}; the checkpoint before it is taken")
    if notes:
        raise NnasError(f"no checkpoint in {folder} is readable; remove that folder to start the phase anew")
    return None, notes


def _checkpoints(folder):
    return sorted(Path(folder).glob("[0-9]" * 8 + ".h5"))


def write_arrays(path, arrays, rest=None):
    """Write {name: array} of numbers and a value that JSON can hold."""
    # In memory, since HDF5 fails in many ways when a disk is full, at times as it closes the file.
    with h5py.File("arrays", "w", driver="core", backing_store=False) as file:
        places = {}
        for name, array in arrays.items():
            dataset = file.create_dataset(name, data=array)
            places[name] = [dataset.dtype.str, list(dataset.shape), dataset.id.get_offset() or 0]
        file.flush()
        image = file.id.get_file_image()
    end = f"\n{json.dumps({'format': FORMAT, 'arrays': places, 'rest': rest})}\n".encode()
    digest = hashlib.sha256(image)
    digest.update(end)
    write_bytes(path, image, end, digest.hexdigest().encode())


def read_arrays(path, what):
    """Return (arrays, rest) as written by write_arrays, or raise NnasError when anything is missing or damaged."""
    content = read_bytes(path, what)
    end = max(len(content) - DIGEST_LENGTH, 0)
    body = memoryview(content)[:end]
    if hashlib.sha256(body).hexdigest().encode() != content[end:]:
        raise NnasError(f"{path}: it cannot be read as {what}: it is damaged, or nothing that nnas wrote")
    line = content[content.rfind(b"\n", 0, end - 1) + 1 : end]
    index = parse_json(line, path, what, finite=False)
    try:
        if index["format"] != FORMAT:
            raise NnasError(f"{path}: it is of format {index['format']!r}, and this version reads format {FORMAT}")
        return _arrays(body, index["arrays"]), index["rest"]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise NnasError(f"{path}: it cannot be read as {what} ({error!r})") from None


def read_weights(path, what):
    """{name: array}, as read_arrays, all of them finite and float32."""
    arrays, _ = read_arrays(path, what)
    wrong = [name for name, array in arrays.items() if array.dtype != np.float32 or not np.isfinite(array).all()]
    if wrong:
        raise NnasError(f"{path}: it cannot be read as {what}: {wrong[0]!r} is not of finite float32 numbers")
    return arrays


def _arrays(body, places):
    arrays, left = {}, len(body)
    for name, (dtype, shape, offset) in places.items():
        dtype, count = DTYPES[dtype], prod(shape)
        # Together no more than the file: many arrays may not lie in one place.
        left -= count * dtype.itemsize
        if left < 0 or offset < 0 or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"{name} has the shape {shape}")
        # An array without elements has no place.
        flat = np.frombuffer(body, dtype, count, offset) if count else np.zeros(0, dtype)
        arrays[name] = flat.reshape(shape).copy()
    return arrays


def _separate(state):
    """Split a state into {number: array} and the same state with the arrays replaced by their numbers."""
    arrays = {}

    def strip(value):
        if isinstance(value, np.ndarray):
            arrays[f"arrays/{len(arrays)}"] = value
            return {"array": len(arrays) - 1}
        if isinstance(value, dict):
            return {"items": [[key, strip(item)] for key, item in value.items()]}
        return value

    return arrays, strip(state)


def _join(arrays, rest, path):
    def fill(value):
        if isinstance(value, dict):
            return (
                arrays[f"arrays/{value['array']}"]
                if "array" in value
                else {key: fill(item) for key, item in value["items"]}
            )
        return value

    try:
        return fill(rest)
    except (KeyError, TypeError, ValueError) as error:
        raise NnasError(f"{path}: it cannot be read as a checkpoint ({error!r})") from None
