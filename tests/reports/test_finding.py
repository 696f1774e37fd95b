"""What tells a person what there is: help, lists, completion."""

import os
import subprocess
import sys

import pytest

from nnas import config
from nnas.app import run_command
from nnas.config import completions


def test_help_has_a_line_on_every_command_and_group(capsys):
    with pytest.raises(SystemExit) as ended:
        run_command(["--help"])
    lines = {
        line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")
    }
    assert ended.value.code == 0
    assert all(len(lines[name]) > 2 for name in config.commands())
    assert {
        group for group in config.groups() if [one.rstrip(",") for one in lines[group]] == config.groups()[group]
    } == set(config.groups())


def test_every_option_says_what_it_is():
    silent = [
        f"{group}/{one}" for group, those in config.groups().items() for one in those if not config.about(group, one)
    ]
    assert silent == []


def said(capsys, *arguments):
    status = run_command(["list", *arguments])
    written = capsys.readouterr()
    return status, written.out + written.err


def test_spaces_with_their_sizes_and_costs(tmp_path, monkeypatch, capsys):
    (tmp_path / "space").mkdir()
    text = "# Mine. And more.\ndefaults: [mobilenet_small]\nname: own\nexpansions: [2]\nkernels: [3]\n"
    (tmp_path / "space" / "own.yaml").write_text(text)
    monkeypatch.setattr(
        config, "groups", lambda config_dir: {"space": ["mobilenet_small", "own"]}
    )  # others take seconds
    status, out = said(capsys, f"--config-dir={tmp_path}", "what=spaces")
    assert status == 0 and "* mobilenet_small" in out and "Mine\n" in out
    assert "3 decisions, 343 architectures; 1x12x12 in 10 classes" in out and "32.18 k to 599.8 k MACs" in out
    assert "3 decisions, 8 architectures" in out  # of each block one kernel, or none


@pytest.mark.parametrize(
    "what, default, other", [("searchers", "reinforce", "random"), ("data", "cluttered_digits", "csv")]
)
def test_options_with_the_default(what, default, other, capsys):
    status, out = said(capsys, f"what={what}")
    assert status == 0 and f"* {default}" in out and f"  {other}" in out


def test_what_there_is_no_list_of(capsys):
    status, out = said(capsys, "what=seachers")
    assert status == 1 and "did you mean 'searchers'" in out


@pytest.mark.parametrize(
    "line, found",
    [
        ("nnas proxyless_c", ["proxyless_cifar10 "]),
        ("nnas proxyless space=mobilenet_s", ["mobilenet_small "]),
        ("nnas proxyless search.ep", ["search.epochs="]),
        ("nnas proxyless searc", ["search.", "searcher.", "searcher="]),
        ("nnas proxyless seed=1 search.solver.make_solver.mo", ["search.solver.make_solver.momentum="]),
        ("nnas nothing a", []),
    ],
)
def test_completion(line, found):
    assert sorted(completions(line)) == sorted(found)


def test_the_shell_gets_completions():
    command = [sys.executable, "-m", "nnas", "--complete", "nnas", "trai", "nnas"]
    done = subprocess.run(command, env={**os.environ, "COMP_LINE": "nnas trai"}, capture_output=True, text=True)
    assert done.stdout == "train \n" and done.stderr == ""
