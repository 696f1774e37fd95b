"""The command adapt, from two made-up tables and measured networks to a search with the table that it writes."""

import csv
import json
import re
import sys
from pathlib import Path

import nnabla as nn
import numpy as np
import pytest
from test_app import SEARCH, SHORT, SPACE, call, check_error, contents

from estimators import table as tables
from estimators.device import find
from estimators.latency import Latency
from estimators.signature import signature
from estimators.table import Table
from nnas.config import build, load
from nnas.costs import load_costs
from nnas.deciders import Costing, listed
from nnas.layers import SHIPPED
from nnas.measurements import occurrences
from nnas.pricing import price

# The last two blocks are made of the same modules: one signature stands in a network up to twice.
STAGES = "space.stages=[{channels: 4, blocks: 1, stride: 2}, {channels: 6, blocks: 3, stride: 2}]"
ADAPT = ["adapt", *SPACE, STAGES, "sources=[a.json,b.json]", "measurements=phone.csv"]


@pytest.fixture(scope="module")
def tiny():
    """(network, space, parts) of the tiny space."""
    network = build(load("adapt", None, ADAPT[1:]).space)
    with nn.parameter_scope("", {}):
        x = nn.Variable((1, *network.input_shape))
        costing = Costing(network.name, x)
        costing.finish(network(x, costing, SHIPPED).logits)
    return network, listed(network), costing.parts


@pytest.fixture
def truth(tiny, tmp_path, monkeypatch):
    """A folder with sources a.json and b.json and ten networks of a device that takes 3 a + b / 2; its costs of the
    parts, (parts,), ms."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    _, space, parts = tiny
    random = np.random.default_rng(0)
    sources = [made_up(parts, random, name) for name in ("a", "b")]
    costs = [
        sum(
            factor * source.entries[signature(part)].rounds[0] for factor, source in zip((3, 0.5), sources, strict=True)
        )
        for part in parts
    ]
    write("phone.csv", space, [space.sample(random) for _ in range(10)], parts, costs)
    return np.array(costs)


def made_up(parts, random, name):
    table = Table({"processor": name, "backend": "cpu", "nnabla": "1.39.0", "threads": 1})
    for part in parts:
        if signature(part) not in table.entries:
            table.add_round(signature(part), part.label, float(random.uniform(0.1, 1)), 1)
    table.write(f"{name}.json")
    return table


def write(path, space, architectures, parts, costs):
    """A file of measurements, in microseconds."""
    names = [decision.name for decision in space.decisions]
    latencies = np.array(occurrences(parts, architectures)) @ costs
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "latency_us"])
        for choices, latency in zip(architectures, latencies, strict=True):
            writer.writerow([*(choices.get(name, "") for name in names), 1000 * latency])


def the_table():
    (path,) = Path("latency_tables").iterdir()
    return path


def test_a_combination_of_the_sources_is_found_and_the_table_predicts_every_architecture(tiny, truth):
    network, space, parts = tiny
    done = call(ADAPT)
    assert done.status == 0, done.err
    path = the_table()
    costs = price(network, space, Latency(find("cpu"), table=str(path)))
    random = np.random.default_rng(1)
    others = [space.sample(random) for _ in range(100)]
    predicted = [costs.cost(choices) for choices in others]
    np.testing.assert_allclose(predicted, np.array(occurrences(parts, others)) @ truth, rtol=0.01)
    assert costs.factor == 1 and 0 < costs.error < 0.01
    # The terminal says what was found, where it is, and what to do with it.
    assert "phone: all architectures take" in done.out and f"{costs.error:.1%}" in done.out
    assert done.out.rstrip().endswith(f"table={path}")
    assert re.search(r"^next: (\S*/)?nnas proxyless space\.name=tiny", done.out, re.MULTILINE)


def test_the_table_says_where_it_is_from(truth):
    assert call([*ADAPT, "device_name=A phone"]).status == 0
    table = tables.read(the_table())
    assert table.fingerprint == {"processor": "A phone", "backend": "cpu"}
    assert table.origin["file"] == "phone.csv" and table.origin["networks"] == table.calibration["tiny"].networks >= 8
    assert [one["device"]["processor"] for one in table.origin["adapted_from"]] == ["a", "b"]
    assert all(len(entry.rounds) == 1 for entry in table.entries.values())


def test_a_search_takes_the_table(truth):
    assert call(ADAPT).status == 0
    quick = [*SHORT, "search.warmup_epochs=0", "search.epochs=0", "train.epochs=0", "device.kernels=native"]
    done = call([*SEARCH, STAGES, *quick, f"table={the_table()}", "run_dir=run"])
    assert done.status == 0, done.err
    costs = load_costs("run/costs.json")["latency"]
    assert costs.description["device"]["processor"] == "phone" and 0 < costs.error < 0.01
    assert json.loads(Path("run/summary.json").read_text())["measured_latency"] is None


def test_the_error_is_that_of_networks_left_out(tiny, truth):
    """Noise of 20 % on the measurements is what the table says of its predictions."""
    _, space, parts = tiny
    random = np.random.default_rng(2)
    architectures = list({tuple(one.items()): one for one in (space.sample(random) for _ in range(40))}.values())
    rows = np.array(occurrences(parts, architectures)) @ truth * np.exp(random.normal(0, 0.2, len(architectures)))
    names = [decision.name for decision in space.decisions]
    lines = [
        ",".join([*(choices.get(name, "") for name in names), str(latency)])
        for choices, latency in zip(architectures, rows, strict=True)
    ]
    Path("phone.csv").write_text("\n".join([",".join([*names, "latency_ms"]), *lines]))
    assert call(ADAPT).status == 0
    assert 0.12 < tables.read(the_table()).calibration["tiny"].error < 0.35


def test_a_table_that_is_there_is_kept(truth):
    assert call(ADAPT).status == 0
    before = contents(".")
    check_error(call(ADAPT), str(the_table()), "is kept", "device_name")
    assert contents(".") == before


def test_sources_that_differ_are_refused(tiny, truth):
    other = tables.read("b.json")
    other.dtype = "float16"
    other.write("c.json")
    check_error(call([*ADAPT[:-2], "sources=[a.json,c.json]", ADAPT[-1]]), "different dtype", "float16, float32")


def shortened(rows):
    def change():
        lines = Path("phone.csv").read_text().splitlines()
        Path("phone.csv").write_text("\n".join(lines[: rows + 1]))

    return change


def damaged_source():
    content = json.loads(Path("b.json").read_text())
    content["entries"].popitem()
    Path("b.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "spoil", "parts"),
    [
        (["measurements=absent.csv"], None, ["absent.csv", "no such file"]),
        ([], shortened(3), ["phone.csv", "different networks; measure 4 at least"]),
        ([], lambda: replace("phone.csv", "e2_k3", "e2_k9"), ["phone.csv, line", "e2_k9", "the space tiny has"]),
        ([], lambda: replace("phone.csv", "stage1_block1", "stage9"), ["phone.csv, line 2", "no decision 'stage9'"]),
        (["sources=[]"], None, ["one other device at least"]),
        (["sources=a.json"], None, ["sources=a.json", "sources=[a.json]"]),
        (["sources=3"], None, ["sources=3", "list"]),
        (["sources=[absent.json]"], None, ["absent.json", "no latency table"]),
        (["batch=2"], None, ["a.json", "batch size 1"]),
        ([], damaged_source, ["b.json", "lacks parts: 1 missing"]),
        (["device_name=''"], None, ["name ''"]),
        (["space.expansions=[2,4]"], None, ["phone.csv", "e3_k"]),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(truth, changes, spoil, parts):
    if spoil:
        spoil()
    before = contents(".")
    check_error(call([*ADAPT, *changes]), *parts)
    assert contents(".") == before


def replace(path, old, new):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))
