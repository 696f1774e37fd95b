"""Checkpoints: exact, and never half of one."""

import json
import os
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from nnas import checkpoint, files
from nnas.errors import NnasError


def state_of(number, random=None):
    random = random or np.random.default_rng(number)
    return {
        "epoch": number,
        "weights": {
            "stem/conv/W": random.normal(size=(3, 2, 3, 3)).astype(np.float32),
            "mean": np.zeros((1, 3, 1, 1), np.float32),
            "empty": np.zeros((0, 2), np.float32),
            "half": random.normal(size=4).astype(np.float16),
            "integers": random.integers(-(2**62), 2**62, 5),
            "special": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
        },
        "generator": random.bit_generator.state,
        "baseline": 0.1 + 0.2,
        "none": None,
        "true": True,
        "list": [1, [2.5, "x"], None],
        "solver": {"a": {"t": 3, "arrays": {"m": random.normal(size=2)}}, "b": {"t": 0, "arrays": {}}},
        "array": {"array": 1, "items": "words of the format"},
        "": "an empty name",
        "ä/☃": "other letters",
        7: "a number as a key",
    }


def assert_same(one, other):
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert type(one) is type(other) and one == other


def numbers(folder):
    return [path.name for path in sorted(folder.iterdir())]


@pytest.fixture
def two(tmp_path):
    """A folder with checkpoints 1 and 2."""
    for number in (1, 2):
        checkpoint.save(tmp_path / "c", state_of(number))
    return tmp_path / "c"


def test_round_trip_is_exact(tmp_path):
    checkpoint.save(tmp_path / "c", state_of(1))
    loaded, notes = checkpoint.load(tmp_path / "c")
    assert_same(state_of(1), loaded)
    assert notes == []


def test_a_restored_generator_goes_on(tmp_path):
    random = np.random.default_rng(5)
    random.normal(size=3)
    random.integers(10, dtype=np.int32)
    checkpoint.save(tmp_path / "c", {"generator": random.bit_generator.state})
    other = np.random.default_rng(0)
    other.bit_generator.state = checkpoint.load(tmp_path / "c")[0]["generator"]
    np.testing.assert_array_equal(random.integers(2**40, size=5), other.integers(2**40, size=5))
    np.testing.assert_array_equal(random.normal(size=5), other.normal(size=5))


def test_there_is_none(tmp_path):
    assert checkpoint.load(tmp_path / "c") == (None, [])


def test_the_newest_two_are_kept(tmp_path):
    for number in range(1, 13):
        checkpoint.save(tmp_path / "c", state_of(number))
        assert checkpoint.load(tmp_path / "c")[0]["epoch"] == number
    assert numbers(tmp_path / "c") == ["00000011.h5", "00000012.h5"]


def falls_back_or_is_whole(folder):
    """Whether the newest was taken for damaged; it is never taken with other values than were saved."""
    loaded, notes = checkpoint.load(folder)
    if notes:
        assert_same(state_of(1), loaded)
        assert len(notes) == 1 and "00000002.h5" in notes[0] and "before it is taken" in notes[0]
        assert "\n" not in notes[0]
    else:
        assert_same(state_of(2), loaded)
    return bool(notes)


def test_a_truncated_newest_falls_back(two):
    newest = two / "00000002.h5"
    whole = newest.read_bytes()
    for length in [0, 1, 8, *range(100, len(whole), len(whole) // 40), len(whole) - 1]:
        newest.write_bytes(whole[:length])
        assert falls_back_or_is_whole(two), length


def test_a_flipped_byte_is_found(two):
    newest = two / "00000002.h5"
    whole = newest.read_bytes()
    places = np.random.default_rng(0).choice(len(whole), 150, replace=False)
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        newest.write_bytes(changed)
        assert falls_back_or_is_whole(two), place


def test_a_flipped_byte_of_any_array_is_found(two):
    newest = two / "00000002.h5"
    whole = newest.read_bytes()
    for array in (
        state_of(2)["weights"]["stem/conv/W"],
        state_of(2)["weights"]["integers"],
        state_of(2)["solver"]["a"]["arrays"]["m"],
    ):
        place = whole.index(array.tobytes())
        for offset in (0, array.nbytes // 2, array.nbytes - 1):
            changed = bytearray(whole)
            changed[place + offset] ^= 0x01
            newest.write_bytes(changed)
            assert falls_back_or_is_whole(two)


@pytest.mark.parametrize("name", ["arrays/0", "arrays/3"])
def test_a_removed_or_renamed_part_is_found(two, name):
    with h5py.File(two / "00000002.h5", "r+") as file:
        del file[name]
    assert falls_back_or_is_whole(two)


def test_a_swapped_array_is_found(two):
    """Of the same shape and type, so that only names tell them apart."""
    checkpoint.save(two, {"a": np.ones(2), "b": np.zeros(2)})
    with h5py.File(two / "00000003.h5", "r+") as file:
        file.move("arrays/0", "x")
        file.move("arrays/1", "arrays/0")
        file.move("x", "arrays/1")
    loaded, notes = checkpoint.load(two)
    assert len(notes) == 1
    assert_same(state_of(2), loaded)


def test_another_version_is_found(two, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    checkpoint.save(two, state_of(3))
    monkeypatch.undo()
    loaded, notes = checkpoint.load(two)
    assert_same(state_of(2), loaded)
    assert len(notes) == 1 and f"format {checkpoint.FORMAT + 1}" in notes[0]


def test_another_digest_is_found(two):
    newest = two / "00000002.h5"
    newest.write_bytes(newest.read_bytes()[:-64] + b"0" * 64)
    assert falls_back_or_is_whole(two)


def test_other_programs_see_an_hdf5_file(tmp_path):
    arrays = {"a/W": np.arange(3.0), "ä": np.zeros((0, 2), np.float32), "c": np.ones((2, 1), np.int8)}
    checkpoint.write_arrays(tmp_path / "w.h5", arrays)
    with h5py.File(tmp_path / "w.h5", "r") as file:
        for name, array in arrays.items():
            assert file[name].dtype == array.dtype
            np.testing.assert_array_equal(file[name][()], array)


def test_what_is_no_file_is_found(two):
    (two / "00000002.h5").unlink()
    (two / "00000002.h5").mkdir()
    assert falls_back_or_is_whole(two)


def test_all_damaged_is_an_error(two):
    for path in two.iterdir():
        path.write_bytes(b"")
    with pytest.raises(NnasError, match=f"no checkpoint in {two} is readable"):
        checkpoint.load(two)


def test_a_killed_write_leaves_something_that_is_not_taken(two):
    shutil.copy(two / "00000001.h5", two / ".00000003.h5.k2j4abcd.partial")
    assert checkpoint.load(two)[0]["epoch"] == 2
    checkpoint.save(two, state_of(3))
    assert checkpoint.load(two)[0]["epoch"] == 3


def test_what_a_killed_write_leaves_is_removed_by_the_next(two):
    """A supernet's checkpoint is large, and a run may be killed often."""
    shutil.copy(two / "00000001.h5", two / ".00000003.h5.k2j4abcd.partial")
    checkpoint.save(two, state_of(3))
    assert numbers(two) == ["00000002.h5", "00000003.h5"]


SAVER = """
import sys
import numpy as np
from nnas import checkpoint
for number in range(1, 100_000):
    checkpoint.save(sys.argv[1], {"epoch": number, "array": np.full(2**19, number)})
"""


def test_killed_while_it_saves(tmp_path):
    """The moment is when a half-written file is seen; what was whole before stays, whatever the moment."""
    folder, during = tmp_path / "c", 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", SAVER, folder])
        try:
            deadline = time.monotonic() + 60
            while len(list(folder.glob("*.h5"))) < 2 or not list(folder.glob(f".*{files.PARTIAL}")):
                assert process.poll() is None and time.monotonic() < deadline
        finally:
            process.kill()
            process.wait()
        during += len(list(folder.glob(f".*{files.PARTIAL}")))
        loaded, notes = checkpoint.load(folder)
        assert notes == [] and (loaded["array"] == loaded["epoch"]).all()
        checkpoint.save(folder, loaded)
        assert not list(folder.glob(".*")) and len(list(folder.iterdir())) == checkpoint.KEPT
    assert during > 0


@pytest.mark.parametrize("where", ["create_dataset", "replace", "fsync"])
def test_a_write_that_fails_leaves_all_as_it_was(two, monkeypatch, where):
    before = {path.name: path.read_bytes() for path in two.iterdir()}

    def fail(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    if where == "create_dataset":
        monkeypatch.setattr(h5py.Group, "create_dataset", fail)
    else:
        monkeypatch.setattr(files.os, where, fail)
    for number in (2, 3):
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(two, state_of(number + 10))
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in two.iterdir()} == before
    assert checkpoint.load(two)[0]["epoch"] == 2


def test_it_takes_its_place_by_one_rename_of_a_complete_file(two, monkeypatch):
    seen = []
    replace = os.replace

    def watch(source, target):
        seen.append((checkpoint.read_arrays(source, "a checkpoint"), os.path.dirname(source) == str(two)))
        assert not os.path.exists(target), "until then nothing has its name"
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", watch)
    checkpoint.save(two, state_of(3))
    (((_, rest), beside),) = seen
    assert beside and rest == json.loads(json.dumps(rest))
    assert checkpoint.load(two)[0]["epoch"] == 3


def test_arrays_file_round_trip_and_errors(tmp_path):
    arrays = {"a/W": np.arange(3.0), "a/b": np.zeros(2, np.float32), "c": np.ones((2, 1))}
    checkpoint.write_arrays(tmp_path / "w.h5", arrays)
    loaded, rest = checkpoint.read_arrays(tmp_path / "w.h5", "weights")
    assert rest is None and loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    with pytest.raises(NnasError, match="no such file; weights was expected"):
        checkpoint.read_arrays(tmp_path / "v.h5", "weights")
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["a"] = np.zeros(2)
    for name in ("foreign.h5", "."):
        with pytest.raises(NnasError, match="cannot be read as weights"):
            checkpoint.read_arrays(tmp_path / name, "weights")


def test_files_are_as_readable_as_others(tmp_path):
    """A temporary file is for its owner alone; a run's files follow the umask."""
    before = os.umask(0o022)
    try:
        files.write_json(tmp_path / "a.json", {"a": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


def test_numbers_that_json_does_not_have_are_refused(tmp_path):
    files.write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert files.read_json(tmp_path / "a.json", "a file") == {"a": 1}
    assert numbers(tmp_path) == ["a.json"]
