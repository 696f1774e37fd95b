"""Checkpoints: a nested state of dictionaries, numbers, words and arrays in one HDF5 file, whole or not at all."""

import hashlib
import json
import os
from pathlib import Path

import h5py
import numpy as np

from nnas.errors import NnasError, one_line
from nnas.files import remove_leftovers, replacing

KEPT = 2
FORMAT = 1


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
            return _join(*read_arrays(path, "a checkpoint")), notes
        except NnasError as error:
            notes.append(f"{error}; the checkpoint before it is taken")
    if notes:
        raise NnasError(f"no checkpoint in {folder} is readable; remove that folder to start the phase anew")
    return None, notes


def _checkpoints(folder):
    return sorted(Path(folder).glob("[0-9]" * 8 + ".h5"))


def write_arrays(path, arrays, rest=None):
    """Write {name: array} and a value that JSON can hold, with a digest of both."""
    rest = json.dumps(rest)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
        file.attrs["format"] = FORMAT
        file.create_dataset("rest", data=np.frombuffer(rest.encode(), np.uint8))
        file.attrs["digest"] = _digest(arrays, rest)


def read_arrays(path, what):
    """Return (arrays, rest) as written by write_arrays, or raise NnasError when anything is missing or damaged."""
    if not os.path.exists(path):
        raise NnasError(f"{path}: there is no such file; {what} was expected there")
    try:
        with h5py.File(path, "r") as file:
            arrays = {}
            file.visititems(
                lambda name, item: arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
            rest = arrays.pop("rest").tobytes().decode()
            if file.attrs["format"] != FORMAT or file.attrs["digest"] != _digest(arrays, rest):
                raise NnasError(f"{path}: it is damaged or of another version")
            return arrays, json.loads(rest)
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError) as error:
        raise NnasError(f"{path}: it cannot be read as {what} ({one_line(error)})") from None


def _digest(arrays, rest):
    digest = hashlib.sha256(rest.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


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


def _join(arrays, rest):
    def fill(value):
        if isinstance(value, dict):
            return (
                arrays[f"arrays/{value['array']}"]
                if "array" in value
                else {key: fill(item) for key, item in value["items"]}
            )
        return value

    return fill(rest)
