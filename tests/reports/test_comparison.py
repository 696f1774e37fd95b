"""Several runs side by side, and the command that makes them."""

import json
import subprocess
from pathlib import Path

import pytest
from browser import chromium
from test_report import write_run

from nnas.app import run_command
from nnas.commands import multirun
from nnas.config import Job, swept
from nnas.errors import NnasError
from nnas.reports.comparison import compare, find_runs, grouped, hypervolume, read_point


def runs_of(folder, device="a phone", digest="1", **accuracies):
    """Finished runs; accuracies: {name: (bound, seed, accuracy, latency)}."""
    for name, (bound, seed, accuracy, latency) in accuracies.items():
        measured = {"median": latency, "unit": "ms", "spread": 0.0, "slowdown": 1.0, "device": device, "batch": 1}
        costs = {"latency": {"predicted": latency, "predicted_error": 0.0, "unit": "ms", "bound": bound}}
        summary = {"test_accuracy": accuracy, "measured_latency": measured, "costs": costs, "seconds": {"search": 60}}
        write_run(folder / name, summary=summary, seed=seed, bound_ms=bound)
        data = {"data": {"kind": "digits", "digest": digest, "split_seed": 0, "samples": {}}}
        (folder / name / "inputs.json").write_text(json.dumps(data))
    return folder


@pytest.fixture
def sweep(tmp_path):
    return runs_of(
        tmp_path / "sweep", a=(1.0, 0, 0.5, 0.9), b=(1.0, 1, 0.7, 1.1), c=(2.0, 0, 0.8, 1.5), d=(2.0, 1, 0.6, 1.9)
    )


def test_hypervolume_is_the_area_below_the_front(random):
    assert hypervolume([(1.0, 0.5), (2.0, 0.75), (1.5, 0.25)], (4.0, 0.0)) == 3 * 0.5 + 2 * 0.25
    assert hypervolume([(1.0, 0.5)], (1.0, 0.0)) == hypervolume([(0.5, 0.1)], (1.0, 0.2)) == 0
    points = random.random((8, 2))
    drawn = random.random((40_000, 2))
    share = ((points[:, 0] <= drawn[:, :1]) & (points[:, 1] >= drawn[:, 1:])).any(axis=1).mean()
    assert hypervolume(points.tolist(), (1.0, 0.0)) == pytest.approx(share, abs=0.01)


def test_runs_that_differ_in_their_seed_alone_are_one_row(sweep):
    points = [read_point(path) for path in find_runs([sweep])[0]]
    assert {name: len(members) for name, members in grouped(points).items()} == {"bound_ms=1.0": 2, "bound_ms=2.0": 2}


def test_the_table_the_front_and_the_best_under_each_bound(sweep, tmp_path):
    text, page = compare([sweep], tmp_path / "out")
    rows = {row.split()[0]: row for row in text.split("\n") if row}
    assert "60.00% ± 14.14%" in rows["bound_ms=1.0"] and "1 ms ± 0.1414 ms" in rows["bound_ms=1.0"]
    assert "1 of 2" in rows["bound_ms=1.0"] and "2 of 2" in rows["bound_ms=2.0"]
    # Up to 2 ms: 0.5 from 0.9 on, 0.2 more from 1.1, 0.1 more from 1.5.
    assert f"all runs together {1.1 * 0.5 + 0.9 * 0.2 + 0.5 * 0.1:.4g}" in text
    assert rows["1"].endswith(f"{sweep}/a") and rows["2"].endswith(f"{sweep}/c")
    assert (tmp_path / "out" / "comparison_1.png").exists() and "60.00% ± 14.14%" in page.read_text()
    with chromium(tmp_path / "profile") as browser:
        browser.open(page, 390)
        browser.wait("document.querySelector('[data-chart] svg')")
        assert browser.errors() == [] and browser.run("return document.documentElement.scrollWidth") <= 390


def test_what_cannot_be_compared_is_said_and_kept_apart(sweep, tmp_path):
    runs_of(sweep, device="another phone", e=(1.0, 0, 0.9, 0.5))
    runs_of(sweep, digest="2", f=(1.0, 0, 0.9, 0.5))
    (write_run(sweep / "g") / "summary.json").unlink()
    text, _ = compare([sweep], tmp_path / "out")
    assert (
        f"note: {sweep}/e cannot be compared with {sweep}/a: another device (a phone there, another phone here)" in text
    )
    assert f"note: {sweep}/f cannot be compared with {sweep}/a: another data or their split" in text
    assert f"note: {sweep}/g is not finished" in text and "in 3 parts" in text
    assert f"all runs together {0.5 * 0.9:.4g}" in text  # of f alone, up to its bound


def test_what_is_given_wrongly_is_one_line(tmp_path, capsys):
    for settings, message in (
        (["runs=nowhere"], "there is no such folder"),
        ([f"runs={tmp_path}"], "no run lies in it"),
        ([f"runs={tmp_path}", "reference=3"], "it must be [latency, accuracy]"),
    ):
        assert run_command(["compare", *settings]) == 1
        assert message in capsys.readouterr().err


def test_a_sweep_is_every_combination():
    jobs = swept(["space=x", "bound_ms=0.5,1", "seed=range(2)", "constraints=[latency,macs]"])
    assert [job.swept for job in jobs] == [
        [f"bound_ms={bound}", f"seed={seed}"] for bound in ("0.5", "1") for seed in (0, 1)
    ]
    assert jobs[0].fixed == ["space=x", "constraints=[latency,macs]"] and swept(["a=1"]) == [Job(["a=1"], [])]
    with pytest.raises(NnasError, match="key=value"):
        swept(["seed"])


class Jobs:
    """In place of processes: what is asked for, and a summary where it is to end well."""

    def __init__(self, monkeypatch, statuses):
        self.asked, self._statuses = [], list(statuses)
        monkeypatch.setattr(subprocess, "Popen", self)

    def __call__(self, command, env):
        self.asked.append(command[3:])
        self._folder = Path(command[-1].partition("=")[2])
        return self

    def wait(self):
        status = self._statuses.pop(0)
        if not status:
            self._folder.mkdir(parents=True)
            (self._folder / "summary.json").write_text("{}")
        return status


def test_a_multirun_goes_on_with_what_is_not_finished(tmp_path, monkeypatch, capsys):
    command = ["proxyless", "--multirun", "seed=0,1,2", "bound_ms=1", f"run_dir={tmp_path}"]
    jobs = Jobs(monkeypatch, [0, 130])
    assert run_command(command) == 130 and len(jobs.asked) == 2
    assert jobs.asked[1] == ["proxyless", "bound_ms=1", "seed=1", f"run_dir={tmp_path}/1_seed-1"]
    jobs = Jobs(monkeypatch, [1, 0])
    assert run_command(command) == 1 and len(jobs.asked) == 2
    assert "1 of 3 jobs failed, the first job 2 of 3: seed=1" in capsys.readouterr().err
    jobs = Jobs(monkeypatch, [0])
    assert run_command(command) == 0 and len(jobs.asked) == 1
    assert f"compare runs={tmp_path}" in capsys.readouterr().out


def test_a_job_that_cannot_be_composed_stops_all(tmp_path, monkeypatch, capsys):
    jobs = Jobs(monkeypatch, [])
    assert run_command(["proxyless", "-m", "space=mobilenet_small,nothing", f"run_dir={tmp_path}"]) == 1
    assert "space=nothing: there is no such option" in capsys.readouterr().err and jobs.asked == []


def test_ctrl_c_waits_for_the_job(monkeypatch):
    class Process:
        waits, terminated = 0, False

        def wait(self):
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return 130

        def terminate(self):
            self.terminated = True

    process = Process()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    with pytest.raises(KeyboardInterrupt):
        multirun._run([])
    assert process.waits == 2 and not process.terminated
