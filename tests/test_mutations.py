"""Whatever is read may be damaged, or be from a stranger: a value of the promised kind comes out, or one line that
names the file; never another error, a hang, a number that nobody wrote, or a change of the file.
"""

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from math import isfinite

import h5py
import nnabla as nn
import nnabla.parametric_functions as PF
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from estimators import EstimatorError
from estimators import table as tables
from nnas import app, checkpoint
from nnas import config as configuration
from nnas.commands import search
from nnas.costs import Costs, Term, load_costs
from nnas.errors import UNPRINTABLE, NnasError, one_line
from nnas.export import export_nnp
from nnas.files import read_yaml, write_json
from nnas.rundir import RunFolder, find_run, start_run
from nnas.space import Architecture

SECONDS = 60  # a reader that takes longer hangs; the machine may be busy
few = settings(
    max_examples=250,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

CONFIG = {"command": "search", "seed": 0, "bound": None, "space": {"_target_": "x.Y", "stages": [{"channels": 4}]}}
STATE = {
    "epoch": 3,
    "weights": {"stem/W": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float32)},
    "generator": np.random.default_rng(0).bit_generator.state,
    "baseline": 0.25,
}
WEIGHTS = {"stem/W": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float32)}
TERMS = (Term((), 1.0, "stem"), Term((("a", "k3"),), 0.5, "a = k3"), Term((("a", "k5"), ("b", "k3")), 0.25, "b"))


# What is read: {name: (write a valid file in a folder and return its path, read it, check what came out)}


def write_architecture(folder):
    predicted = {"latency": {"value": 1.5, "unit": "ms", "error": 0.01, "device": {"processor": "x", "threads": 1}}}
    Architecture("tiny", {"block1": "e3_k3", "block2": "skip"}, predicted).save(folder / "a.json")
    return folder / "a.json"


def check_architecture(architecture):
    assert isinstance(architecture.space, str) and isinstance(architecture.choices, dict)
    for cost in architecture.predicted.values():
        assert all(isfinite(cost.get(key, 0)) and cost.get(key, 0) >= 0 for key in ("value", "error"))
        assert "value" in cost and isinstance(cost["unit"], str)
    assert all_printable([architecture.space, architecture.choices, architecture.predicted])


def write_table(folder):
    table = tables.Table({"processor": "AMD", "backend": "cpu", "nnabla": "1.39.0", "threads": 1}, yardstick=1e-4)
    for figure in (1.0, 3.0, 2.0):
        table.add_round("float32: a", "block a", figure, 10)
    table.add_round("float32: b", "block b", 0.5, 20)
    table.calibration["tiny"] = tables.Calibration(1.17, 0.01, 5, "abc")
    table.write(folder / "t.json")
    return folder / "t.json"


def check_table(table):
    for entry in table.entries.values():
        assert entry.rounds and all(isfinite(figure) and figure > 0 for figure in entry.rounds) and entry.runs > 0
        assert isfinite(entry.measurement().median) and entry.label.isprintable()
    for one in table.calibration.values():
        assert isfinite(one.factor) and one.factor > 0 and isfinite(one.error) and one.error >= 0
    assert table.yardstick is None or isfinite(table.yardstick) and table.yardstick > 0
    assert os.sep not in tables.file_name(table.fingerprint, table.dtype, table.batch)
    # It is one that can be written again.
    json.dumps(table._as_json(), allow_nan=False)


def write_costs(folder):
    description = {"estimator": "latency", "device": {"processor": "x"}, "table": "t.json"}
    write_json(folder / "costs.json", {"latency": Costs("ms", TERMS, 1.1, 0.02, description).to_json()})
    return folder / "costs.json"


def check_costs(loaded):
    # Other names of constraints are found where they are compared with the configuration.
    for costs in loaded.values():
        assert (costs.terms, costs.factor, costs.error, costs.unit) == (TERMS, 1.1, 0.02, "ms")


def write_config(folder):
    start_run(RunFolder(folder), CONFIG, {})
    return folder / "config.yaml"


def read_config(path):
    find_run(path.parent, "search", CONFIG)
    return yaml.safe_load(path.read_text())


def check_config(content):
    assert json.dumps(content, sort_keys=True) == json.dumps(CONFIG, sort_keys=True)


def write_records(folder):
    run = RunFolder(folder)
    for epoch in range(3):
        run.append({"phase": "warmup", "epoch": epoch, "seconds": 0.5, "loss": 1.5, "best_cost": {"latency": 2.0}})
    run.append({"phase": "derived", "validation_accuracy": 0.5})
    return run.metrics


def check_records(records):
    for record in records:
        assert isinstance(record["phase"], str)
        assert all(isfinite(record.get(key, 0)) for key in ("seconds", "validation_accuracy"))


def write_checkpoint(folder):
    checkpoint.save(folder, STATE)
    return next(folder.iterdir())


def check_checkpoint(loaded):
    state, notes = loaded
    assert notes == [] and state["generator"] == STATE["generator"] and state["baseline"] == STATE["baseline"]
    check_weights(state["weights"])


def write_weights(folder):
    checkpoint.write_arrays(folder / "weights.h5", WEIGHTS)
    return folder / "weights.h5"


def check_weights(weights):
    assert weights.keys() == WEIGHTS.keys()
    assert all(array.tobytes() == WEIGHTS[name].tobytes() for name, array in weights.items())


READERS = {
    "architecture": (write_architecture, Architecture.load, check_architecture),
    "table": (write_table, tables.read, check_table),
    "costs": (write_costs, load_costs, check_costs),
    "config": (write_config, read_config, check_config),
    "records": (write_records, lambda path: RunFolder(path.parent).records(), check_records),
    "checkpoint": (write_checkpoint, lambda path: checkpoint.load(path.parent), check_checkpoint),
    "weights": (write_weights, lambda path: checkpoint.read_weights(path, "a weights file"), check_weights),
}
TEXTS = ["architecture", "table", "costs", "config", "records"]


def all_printable(value):
    return not UNPRINTABLE.search(json.dumps(value, ensure_ascii=False))


@contextlib.contextmanager
def no_hang():
    def end(*_):
        raise AssertionError(f"it hangs: more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read_damaged(path, content, read, check):
    """Write the content, read it, and check what comes out; returns 'read' or 'refused'."""
    path.write_bytes(content)
    try:
        with no_hang():
            value = read(path)
    except (NnasError, EstimatorError) as error:
        line = one_line(error)
        # Checkpoints name their folder, when none is left.
        assert str(path) in line or str(path.parent) in line, line
        assert not UNPRINTABLE.search(line) and len(line) < 5000
        outcome = "refused"
    else:
        check(value)
        outcome = "read"
    assert path.read_bytes() == content
    return outcome


@pytest.fixture(params=READERS)
def reader(request, tmp_path):
    write, read, check = READERS[request.param]
    path = write(tmp_path)
    return path, path.read_bytes(), read, check


# Bytes


DATA = [b"\xff\xfe", b"\xef\xbb\xbf", b"\0" * 8, b"\x1b[2J"]
CHANGES = st.tuples(
    st.sampled_from(["flip", "overwrite", "remove", "insert", "copy", "truncate"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.one_of(st.binary(min_size=1, max_size=9), st.sampled_from(DATA)),
)


def changed_bytes(content, changes):
    changed = bytearray(content)
    for kind, place, other, data in changes:
        place, other = place % (len(changed) + 1), other % (len(changed) + 1)
        if kind == "flip" and changed:
            changed[place % len(changed)] ^= 1 << other % 8
        elif kind == "overwrite":
            changed[place : place + len(data)] = data
        elif kind == "remove":
            del changed[place : place + 1 + other % 40]
        elif kind == "insert":
            changed[place:place] = data
        elif kind == "copy":
            changed[place:place] = changed[other : other + 40]
        elif kind == "truncate":
            del changed[place:]
    return bytes(changed)


def test_changed_bytes(reader):
    path, valid, read, check = reader
    outcomes = Counter()

    @few
    @given(st.lists(CHANGES, min_size=1, max_size=4))
    def change(changes):
        outcomes[read_damaged(path, changed_bytes(valid, changes), read, check)] += 1

    change()
    assert read_damaged(path, valid, read, check) == "read" and outcomes["refused"] > 50


# Trees

RAW = [
    *["NaN", "-Infinity", "1e400", "-1e400", "1e-400", "-0", "9" * 5000, "1" + "0" * 250, "[" * 5000 + "]" * 5000],
    *['"\\ud800"', '"\\u001b[31m"', '"\\u202e"', '"\\u0000"', '{"a": 1, "a": 2}', '"' + "x" * 100_000 + '"', '"1"'],
    *['"../../../etc/passwd"', "null", "true", "-1", "0", "0.5", "[]", "{}", '""', "[[[]]]"],
    "[" * 60 + "1" + "]" * 60,
]
EDITS = st.tuples(
    st.sampled_from(["replace", "delete", "double", "rename", "swap"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(RAW),
)


def places(value):
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def edited(value, edits):
    """The text of a JSON value after edits of its tree."""
    value, raw = {"value": json.loads(json.dumps(value))}, {}
    for number, (kind, place, other, text) in enumerate(edits):
        found = list(places(value))
        if len(found) < 2:
            break
        holder, key = found[1 + place % (len(found) - 1)]
        if kind == "delete":
            del holder[key]
        elif kind == "double" and isinstance(holder, list):
            holder.append(holder[key])
        elif kind == "rename" and isinstance(holder, dict):
            holder[f"{key}{text[:10]}"] = holder.pop(key)
        elif kind == "swap":
            other_holder, other_key = found[1 + other % (len(found) - 1)]
            # Not a part with what it is in: that would make a tree without an end.
            if not any(one is holder for one, _ in places({"": other_holder[other_key]})) and not any(
                one is other_holder for one, _ in places({"": holder[key]})
            ):
                holder[key], other_holder[other_key] = other_holder[other_key], holder[key]
        else:
            raw[f'"@{number}"'] = text
            holder[key] = f"@{number}"
    text = json.dumps(value.get("value"), ensure_ascii=False)
    for mark, token in raw.items():
        text = text.replace(mark, token)
    return text.encode("utf-8", "surrogatepass")


def edited_file(name, valid, edits):
    if name == "records":
        lines = edited([json.loads(line) for line in valid.splitlines()], edits)
        # Each record on a line of its own again; where that is no longer a list of them, as it is.
        try:
            return b"".join(json.dumps(one).encode() + b"\n" for one in json.loads(lines))
        except (ValueError, TypeError, RecursionError):
            return lines + b"\n"
    if name == "config":
        # JSON is YAML; what is thousands deep takes PyYAML a second, and has a test of its own.
        return edited(yaml.safe_load(valid), edits).replace(b"[" * 5000, b"[" * 300)
    return edited(json.loads(valid), edits)


@pytest.mark.parametrize("name", TEXTS)
def test_changed_trees(name, tmp_path):
    write, read, check = READERS[name]
    path, outcomes = write(tmp_path), Counter()
    valid = path.read_bytes()

    @few
    @given(st.lists(EDITS, min_size=1, max_size=3))
    def change(edits):
        outcomes[read_damaged(path, edited_file(name, valid, edits), read, check)] += 1

    change()
    assert outcomes["refused"] > 50


def parts(content):
    """(HDF5, index) of a file of arrays."""
    body = content[: -checkpoint.DIGEST_LENGTH]
    place = body.rindex(b"\n", 0, -1)
    return body[:place], json.loads(body[place:])


def sealed(image, line):
    """A file of arrays with a digest that holds, as whoever means harm makes it."""
    body = image + b"\n" + line + b"\n"
    return body + hashlib.sha256(body).hexdigest().encode()


@pytest.mark.parametrize("name", ["checkpoint", "weights"])
def test_changed_indices_under_a_digest_that_holds(name, tmp_path):
    write, read, _ = READERS[name]
    path, outcomes = write(tmp_path), Counter()
    image, index = parts(path.read_bytes())

    def check(value):
        arrays = value if name == "weights" else {}
        assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in arrays.values())

    @few
    @given(st.lists(EDITS, min_size=1, max_size=3))
    def change(edits):
        line = edited(index, edits).replace(b"\n", b" ")
        outcomes[read_damaged(path, sealed(image, line), read, check)] += 1

    change()
    assert outcomes["refused"] > 50


# By hand: what no chance finds


@pytest.mark.parametrize(
    "place",
    [
        ["<f4", [2**40], 0],
        ["<f4", [2**62, 2], 0],
        ["<f4", [-1], 0],
        ["<f4", [-2, -3], 0],
        ["<f4", [0, 10**30], 0],
        ["<f4", [1.5], 0],
        ["<f4", "ab", 0],
        ["<f4", [6], -8],
        ["<f4", [6], 10**30],
        ["<f4", [6], None],
        ["|O", [1], 0],
        ["O", [1], 0],
        [["<f4"], [1], 0],
        ["<f4,<f4", [1], 0],
        ["<U4", [1], 0],
        ["<f4", [1] * 64, 0],
        [],
        None,
    ],
)
def test_arrays_that_are_not_there(tmp_path, place):
    path = write_weights(tmp_path)
    image, index = parts(path.read_bytes())
    index["arrays"]["b"] = place
    line = json.dumps(index).encode()
    assert read_damaged(path, sealed(image, line), READERS["weights"][1], check_weights) == "refused"


def test_many_arrays_in_one_place(tmp_path):
    """Each is no larger than the file, all together would not fit into memory."""
    image, index = parts(write_weights(tmp_path).read_bytes())
    index["arrays"] = {str(number): ["<f4", [2**17], len(image)] for number in range(100)}
    content = sealed(image + b"\0" * 2**20, json.dumps(index).encode())
    assert read_damaged(tmp_path / "weights.h5", content, READERS["weights"][1], check_weights) == "refused"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "1" + "0" * 400])
@pytest.mark.parametrize(
    "name, place", [("architecture", ": 1.5"), ("table", ": 1.17"), ("costs", ": 1.1"), ("records", ": 0.5")]
)
def test_numbers_are_finite(name, place, number, tmp_path):
    write, read, check = READERS[name]
    path = write(tmp_path)
    content = path.read_text().replace(place, f": {number}", 1)
    if name == "costs":
        costs = json.loads(content)["latency"]
        del costs["digest"]
        digest = hashlib.sha256(json.dumps(costs, sort_keys=True).encode()).hexdigest()
        content = json.dumps({"latency": {**costs, "digest": digest}})
    assert number in content or name == "costs"
    assert read_damaged(path, content.encode(), read, check) == "refused"


@pytest.mark.parametrize("number", [np.nan, np.inf, 1.0])
def test_weights_are_finite_and_of_single_precision(tmp_path, number):
    kind = np.float64 if number == 1.0 else np.float32
    checkpoint.write_arrays(tmp_path / "weights.h5", {**WEIGHTS, "b": np.array([number, 1], kind)})
    with pytest.raises(NnasError, match="weights.h5.*'b' is not of finite float32"):
        checkpoint.read_weights(tmp_path / "weights.h5", "a weights file")


def external_link(file):
    file["b"] = h5py.ExternalLink("secret.h5", "/secret")


def external_data(file):
    file.create_dataset("b", (4,), np.float32, external=[("secret.bin", 0, 16)])


def virtual_data(file):
    layout = h5py.VirtualLayout((4,), np.float32)
    layout[:] = h5py.VirtualSource("secret.h5", "secret", (4,))
    file.create_virtual_dataset("b", layout)


def object_reference(file):
    file.create_dataset("b", data=file.ref, dtype=h5py.ref_dtype)


def huge_and_empty(file):
    file.create_dataset("b", (2**40,), np.float32, chunks=(2**20,))


def compressed(file):
    file.create_dataset("b", data=np.zeros(2**20, np.float32), compression="gzip")


@pytest.mark.parametrize(
    "make", [external_link, external_data, virtual_data, object_reference, huge_and_empty, compressed]
)
def test_hdf5_files_of_others_are_not_followed(tmp_path, make, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("secret.h5", "w") as file:
        file["secret"] = np.ones(4, np.float32)
    (tmp_path / "secret.bin").write_bytes(b"\1" * 16)
    with h5py.File("weights.h5", "w") as file:
        make(file)
    image = (tmp_path / "weights.h5").read_bytes()
    for content in (image, sealed(image, b'{"format": 2, "arrays": {"b": ["<f4", [2000000], null]}, "rest": null}')):
        path = tmp_path / "weights.h5"
        assert read_damaged(path, content, READERS["weights"][1], check_weights) == "refused"


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(9 * [f'*{old}'])}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "a0: &a0 {x: 1}\n" + "".join(f"a{n + 1}: &a{n + 1} {{x: *a{n}}}\n" for n in range(2000))


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        CHAIN,
        "&a [*a]",
        "? &a {x: *a}\n: 1",
        "[" * 5000,
        "x: " + "{a: " * 300 + "1" + "}" * 300,
        "x: !!python/object/apply:os.system [id]",
        "x: !!timestamp y",
        "x: !!int y",
        "x: !!float ''",
        "x: 2001-99-99",
        "? [a]\n: 1",
        "x: 1" + "0" * 10_000,
        "x: " + "1:" * 10_000 + "1",
        "x: 'a" + "y" * 300_000,
        "\x00",
        "a: *b",
        "--- 1\n--- 2",
        "%YAML 9.9\n--- 1",
    ],
    ids=range(19),
)
def test_yaml_bombs(tmp_path, text):
    path = write_config(tmp_path)
    assert read_damaged(path, text.encode(), *READERS["config"][1:]) == "refused"


def test_aliases_that_stand_for_little_are_read(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a {b: 1}\nc: [*a, *a]\n")
    assert read_yaml(tmp_path / "a.yaml", "a file") == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}]}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "beyond a file"])
def test_what_is_no_file(name, kind, tmp_path):
    """Nobody waits for a pipe that nobody writes to, or reads /dev/zero to its end."""
    write, read, _ = READERS[name]
    path = write(tmp_path)
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif name in ("config", "records", "checkpoint"):
        return
    else:
        path.write_text("x")
        path = path / "below"
    with no_hang(), pytest.raises((NnasError, EstimatorError)) as caught:
        read(path)
    assert str(path) in str(caught.value) or str(path.parent) in str(caught.value)


@pytest.mark.parametrize("name", ["architecture", "table", "costs", "config"])
def test_a_file_that_is_too_large(name, tmp_path):
    write, read, _ = READERS[name]
    path = write(tmp_path)
    os.truncate(path, 2**40)
    with no_hang(), pytest.raises((NnasError, EstimatorError), match="bytes"):
        read(path)


def test_what_a_terminal_would_obey_is_escaped():
    assert one_line(ValueError("a\x1b[2J\r\n b\x00\u202e\ud800ü☃")) == "a\\x1b[2J b\\x00\\u202e\\ud800ü☃"


# Values of the configuration

VALUES = ["null", "-1", "0", "nan", "inf", "1e400", "1e-400", "[]", "{}", "x", "''", "true", str(10**30), "[[[1]]]"]
VALUES += ["{a: 1}", "'\\x1b[2J'", "../../x"]
SEARCH = ["device=cpu", "device.kernels=native", "estimator@constraints.latency.estimator=macs", "run_dir=run"]
SEARCH += ["data.copies=1", "bound_fraction=0.8", "space.stages=[{channels: 4, blocks: 1, stride: 2}]"]
SEARCH += ["space.expansions=[2]"]


def leaves(node, prefix=""):
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")


class Accepted(Exception):
    """Everything was checked, and the run folder would be made now."""


def outcome_of(arguments):
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_hang():
            status = app.run_command(arguments)
    except Accepted:
        return "accepted"
    line = err.getvalue()
    assert status == 1 and line.startswith("error: ") and line.endswith("\n") and line.count("\n") == 1, line
    assert not UNPRINTABLE.search(line[:-1]), line
    assert os.listdir(".") == []
    return "refused"


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def accept(*_, **__):
        raise Accepted

    monkeypatch.setattr(search, "begin_run", accept)
    assert outcome_of(["proxyless", *SEARCH]) == "accepted"


def test_values_of_another_kind(command):
    keys = list(leaves(OmegaConf.to_container(configuration.load("proxyless", None, SEARCH))))
    keys.remove("run_dir")
    assert len(keys) > 80
    outcomes = Counter()

    @settings(few, max_examples=40)
    @given(st.sampled_from(keys), st.sampled_from(VALUES))
    def give(key, value):
        outcomes[outcome_of(["proxyless", *SEARCH, f"{key}={value}"])] += 1

    give()
    assert outcomes["refused"] > 20 and outcomes["accepted"] > 0


@pytest.mark.parametrize(
    "override",
    [
        "device=[[[1]]]",
        "constraints=1",
        "constraints.latency=x",
        "search=null",
        "search.solver=1",
        "search.task=x",
        "search.task._target_=null",
        "train.solver=null",
        "objective._target_=null",
        "space._target_=null",
        "searcher._partial_=1",
        "~search.epochs",
        "+search.nothing=1",
        "+search.solver.nothing=1",
        "+searcher.nothing=1",
        "+train.nothing=1",
        "space.classes=1" + 30 * "0",
        "space.stages=" + "[" * 1500 + "]" * 1500,
        "seed=1" + 5000 * "0",
        "+a=" + "{b: " * 200 + "1" + "}" * 200,
        "x" * 100_000,
        "\udcff=1",
    ],
    ids=range(22),
)
def test_odd_overrides(command, override):
    assert outcome_of(["proxyless", *SEARCH, override]) == "refused"


def test_a_terminal_of_few_characters(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "nnas", "proxyless", "--cfg=job", "+note='±ü'"]
    done = subprocess.run(command, env=environment, capture_output=True)
    assert done.returncode == 0 and b"note: \\xb1\\xfc" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "ü\n"])
def test_the_name_of_a_space_is_no_path_in_the_exported_file(tmp_path, name):
    x = nn.Variable((1, 2))
    with nn.parameter_scope("", {}):
        logits, parameters = PF.affine(x, 3), nn.get_parameters()
    (tmp_path / "inner").mkdir()
    export_nnp(tmp_path / "inner" / "n.nnp", name, {"x": x}, {"logits": logits}, parameters)
    with zipfile.ZipFile(tmp_path / "inner" / "n.nnp") as file:
        assert all("/" not in member and not member.startswith(".") for member in file.namelist())
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "n.nnp"]


def test_a_bomb_in_a_folder_of_configurations(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("conf")
    (folder / "laughs.yaml").write_text(LAUGHS)
    (folder / "space").mkdir()
    (folder / "space" / "bomb.yaml").write_text("_target_: x.Y\n" + LAUGHS)
    assert outcome_of(["laughs", f"--config-dir={folder}"]) == "refused"
    assert outcome_of(["proxyless", f"--config-dir={folder}", *SEARCH, "space=bomb"]) == "refused"
