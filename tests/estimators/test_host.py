"""One measurement at a time, and the state of the machine."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from estimators import host


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder():
    """Another process that measures until it is told to end or killed."""
    code = f"""
import sys, tempfile
tempfile.tempdir = {tempfile.gettempdir()!r}
from estimators import host
with host.alone():
    print("measuring", flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "measuring\n"
    return process


@pytest.mark.parametrize("killed", [False, True])
def test_another_process_is_waited_for(killed):
    other = holder()
    told = []

    def waiting(text):
        told.append(text)
        other.kill() if killed else other.stdin.close()

    with host.alone(waiting):
        assert told == [f"waiting: process {other.pid} measures on this machine"]
    other.wait(10)
    with host.alone(told.append):
        assert len(told) == 1


def test_an_error_ends_the_lock():
    with pytest.raises(KeyboardInterrupt), host.alone():
        raise KeyboardInterrupt
    with host.alone(pytest.fail):
        pass


def test_where_nothing_can_be_locked_measuring_goes_on(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "absent"))
    with host.alone(pytest.fail):
        pass


def test_a_link_in_the_folder_of_all_is_not_followed(folder):
    target = folder / "precious"
    target.write_text("here")
    os.symlink(target, folder / host.LOCK)
    with host.alone():
        assert target.read_text() == "here"


def test_conditions_are_plain_values():
    found = host.conditions("cpu")
    assert json.loads(json.dumps(found)) == found and found["load"] >= 0
    assert host.conditions("cudnn").keys() <= {"load", *host.GPU_FIELDS}
