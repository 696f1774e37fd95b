"""The report of a run: figures from its files, pages that hold what these say and nothing else."""

import json
import re
import time
from types import SimpleNamespace

import altair
import pytest
import yaml
from browser import chromium

from nnas.app import run_command
from nnas.commands import shipping
from nnas.costs import Costs, Term
from nnas.errors import NnasError
from nnas.reports import charts
from nnas.reports.records import blocks, front, judged, load_run
from nnas.reports.report import write_report
from nnas.space import Architecture

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
CHOICES = {"first": "deep", "inner": "k5", "last": "skip"}
SUMMARY = {
    "space": "plain",
    "validation_accuracy": 0.625,
    "test_accuracy": 0.8125,
    "seconds": {"search": 61.5, "train": 20.25},
    "samples": {"validation": 100, "test": 200},
    "costs": {"latency": {"predicted": 2.75, "predicted_error": 0.02, "unit": "ms", "bound": 3.0}},
    "counted": {"macs": 123456, "parameters": 789},
    "measured_latency": {
        "median": 2.875,
        "unit": "ms",
        "spread": 0.05,
        "slowdown": 1.0,
        "device": "a phone",
        "batch": 1,
    },
    "seed": 3,
    "versions": {"nnas": "0"},
    "next": ["nnas train"],
}


def terms(name):
    when = {"deep": (("first", "deep"),)}
    return (
        Term((), 0.5, f"{name}: before first"),
        Term((("first", "plain"),), 1.0, f"{name}: first = plain"),
        Term(when["deep"], 0.25, f"{name}: before inner"),
        Term((*when["deep"], ("inner", "k3")), 1.5, f"{name}: inner = k3"),
        Term((*when["deep"], ("inner", "k5")), 2.0, f"{name}: inner = k5"),
        Term((("last", "k3"),), 4.0, f"{name}: last = k3"),
    )


def write_run(path, name="plain", summary=None, seed=3, **changes):
    """A run folder of a small nested space; its network costs 2 x (0.5 + 0.25 + 2) ms."""
    path.mkdir(parents=True)
    costs = Costs("ms", terms(name), 1.0, 0.02, {"device": {"processor": "a phone", "backend": "cpu"}})
    summary = {**SUMMARY, "space": name, "seed": seed, "run_dir": str(path), **(summary or {})}
    options = {"first": ["plain", "deep"], "inner": ["k3", "k5"], "last": ["k3", "skip"]}
    decisions = [{"name": one, "options": those, "sites": []} for one, those in options.items()]
    records = [
        {
            "phase": "search",
            "epoch": epoch,
            "seconds": 1.0,
            "loss": 1.0,
            "error": 0.5,
            "reward": 0.5,
            "baseline": 0.5,
            "validation_error": 0.5,
            "expected_cost": {"latency": 3.0},
            "best_cost": {"latency": 2.75, name: 2.0},
            "probabilities": {one: [1 - epoch / 4, epoch / 4] for one in options},
        }
        for epoch in (1, 2, 3)
    ]
    records += [{"phase": "train", "epoch": 1, "seconds": 1.0, "loss": 1.0, "error": 0.3}]
    other = {} if name == "plain" else {name: [1.0]}
    samples = [
        {
            "epoch": 1,
            "accuracy": [0.5, 0.25],
            "cost": {"latency": [2.75, 5.5], **{key: 2 * value for key, value in other.items()}},
            "choices": [[1, 1, 1], [0, None, 0]],
        },
        {"epoch": 2, "accuracy": [0.75], "cost": {"latency": [2.75], **other}, "choices": [[1, 1, 1]]},
    ]
    config = {"command": "search", "seed": seed, "space": {"name": name}, "searcher": {"_target_": "some.Searcher"}}
    files = {
        "config.yaml": yaml.safe_dump({**config, **changes}),
        "space.json": json.dumps({"name": name, "decisions": decisions}),
        "costs.json": json.dumps({"latency": costs.to_json(), **({name: costs.to_json()} if name != "plain" else {})}),
        "metrics.jsonl": "".join(json.dumps(one) + "\n" for one in records),
        "samples.jsonl": "".join(json.dumps(one) + "\n" for one in samples),
        "summary.json": json.dumps(summary),
        "inputs.json": json.dumps({"data": {"kind": "digits", "path": name, "digest": "1", "split_seed": 0}}),
    }
    for file, text in files.items():
        (path / file).write_text(text)
    Architecture(name, CHOICES, {"latency": {"value": 2.75, "unit": "ms", "error": 0.02}}).save(
        path / "architecture.json"
    )
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = write_run(tmp_path_factory.mktemp("runs") / "run")
    write_report(path)
    return path


def test_the_blocks_add_up_to_what_was_predicted(run):
    found = blocks(load_run(run), "latency")
    assert sum(row["cost"] for row in found) == 2.75
    assert [(row["block"], row["option"], row["cost"]) for row in found] == [
        ("before first", "", 0.5),
        ("first", "deep", 0.0),
        ("before inner", "", 0.25),
        ("inner", "k5", 2.0),
        ("last", "skip", 0.0),
    ]
    assert found[3]["others"] == {"k3": 1.5} and found[4]["others"] == {"k3": 4.0}


def test_an_option_in_several_pieces_is_no_option_that_costs_nothing():
    when = (("first", "deep"),)
    pieces = [
        Term((("first", "plain"),), 1.0, "s: first = plain"),
        *terms("s")[2:5],
        Term(when, 3.0, "s: first = deep"),
    ]
    run = SimpleNamespace(costs={"latency": Costs("ms", tuple(pieces))}, architecture=Architecture("s", CHOICES, {}))
    found = [(row["block"], row["option"], row["cost"]) for row in blocks(run, "latency")]
    assert found == [("before inner", "", 0.25), ("inner", "k5", 2.0), ("first", "deep", 3.0)]


def test_what_was_judged_twice_counts_as_its_mean(run):
    assert judged(load_run(run)) == [
        {"choices": CHOICES, "costs": {"latency": 2.75}, "accuracy": 0.625, "times": 2},
        {"choices": {"first": "plain", "last": "k3"}, "costs": {"latency": 5.5}, "accuracy": 0.25, "times": 1},
    ]


def test_nothing_beats_what_is_on_the_front_and_all_else_is_beaten(random):
    points = [tuple(point) for point in random.integers(0, 12, size=(60, 2)).tolist()]
    best = front(points)
    for cost, accuracy in points:
        better = [one for one in points if one[0] <= cost and one[1] >= accuracy and one != (cost, accuracy)]
        assert ((cost, accuracy) in best) == (not better)


def test_all_charts_are_of_the_schema(run):
    read = load_run(run)
    specs = [charts.architecture(read, "latency"), charts.predicted_and_measured(read)]
    specs += [charts.seen(read, judged(read), "latency"), *charts.over_time(read).values()]
    specs += charts.probabilities(read)[0].values()
    assert len(specs) == 10
    for spec in specs:
        altair.Chart.from_dict({**spec, "$schema": altair.SCHEMA_URL})


def test_pictures_and_text_are_there(run):
    text = (run / "report.md").read_text()
    linked = re.findall(r"\((report/\w+\.png)\)", text)
    assert len(linked) == 8 and "81.25% test accuracy, 2.875 ms measured" in text
    assert all((run / name).read_bytes().startswith(b"\x89PNG") for name in linked)


# Texts that reach beyond their picture.
CUT = """return [...document.querySelectorAll('[data-chart] svg')].flatMap(svg => {
  const all = svg.getBoundingClientRect()
  const leaves = one => one.right > all.right + 1 || one.top < all.top - 1
  return [...svg.querySelectorAll('text')].filter(one => leaves(one.getBoundingClientRect()))
}).map(one => one.textContent)"""


def test_the_page_in_a_browser(run, tmp_path):
    hostile = write_run(tmp_path / "hostile", HOSTILE)
    write_report(hostile)
    assert "<script" not in (hostile / "report.md").read_text()
    assert not [path for path in tmp_path.rglob("*.png") if path.parent != hostile / "report"]
    drawn = "document.querySelectorAll('[data-chart] svg').length"
    with chromium(tmp_path / "profile") as browser:
        for path, width, scheme in ((run, 390, "light"), (run, 1280, "light"), (hostile, 390, "dark")):
            browser.open(path / "report.html", width, 900, scheme)
            browser.wait(f"{drawn} == document.querySelectorAll('[data-chart]').length")
            assert browser.run(f"return {drawn}") == (10 if path == run else 13)
            assert browser.errors() == []
            assert browser.run("return document.documentElement.scrollWidth") <= width
            assert path == hostile or browser.run(CUT) == []
            assert not browser.run("return window.hacked || 0")
            shown = {
                float(one) for one in browser.run("return [...document.querySelectorAll('data')].map(d => d.value)")
            }
            assert shown == {0.8125, 2.875, 2.75, 789, 123456, 0.625}
            colour = browser.run("return getComputedStyle(document.querySelector('[data-chart] text')).fill")
            assert colour == {"light": "rgb(107, 116, 134)", "dark": "rgb(151, 161, 179)"}[scheme]
        assert HOSTILE in browser.run("return document.querySelector('h1').textContent")


def test_a_run_that_is_not_finished_has_a_report(tmp_path):
    path = write_run(tmp_path / "run")
    for name in ("summary.json", "architecture.json", "samples.jsonl"):
        (path / name).unlink()
    assert run_command(["report", f"run_dir={path}"]) == 0
    assert "not finished: it stands after epoch 1 of train" in (path / "report.html").read_text()


def test_a_folder_of_no_run_and_odd_files_are_refused(tmp_path, capsys):
    assert run_command(["report", f"run_dir={tmp_path}"]) == 1
    assert "it is no run folder" in capsys.readouterr().err
    path = write_run(tmp_path / "run", summary={"costs": 5})
    assert run_command(["report", f"run_dir={path}"]) == 1
    assert "do not hold what a report needs" in capsys.readouterr().err


@pytest.mark.parametrize("error", [NnasError, OSError, UnboundLocalError])
def test_a_report_that_fails_does_not_end_a_run(monkeypatch, error):
    said = []

    def fail(path):
        raise error("no charts here")

    monkeypatch.setattr(shipping, "write_report", fail)
    shipping._report(SimpleNamespace(terminal=SimpleNamespace(warn=said.append)), SimpleNamespace(path="run"))
    assert said == ["no report was written: no charts here; nnas report run_dir=run makes it again"]


def test_it_takes_seconds(run):
    start = time.process_time()
    write_report(run)
    assert time.process_time() - start < 6  # of CPU; 2.5 where other work slows the machine down
