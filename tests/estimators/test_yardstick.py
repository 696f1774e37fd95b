"""The yardstick: its reading relative to its reference, and how latencies follow it."""

import nnabla as nn
import nnabla.functions as F
import numpy as np
import pytest

from estimators import latency as latencies
from estimators import yardstick as yardsticks
from estimators.device import find
from estimators.latency import Latency
from estimators.table import read
from estimators.yardstick import Yardstick, yardstick


def test_a_reading_is_relative_to_the_reference():
    now = [0.0]

    def run():
        now[0] += 0.003

    assert Yardstick(run, 0.001, lambda: now[0]).slowdown() == pytest.approx(3.0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(yardsticks, "REFERENCE_SECONDS", 0.05)
    monkeypatch.setattr(yardsticks, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_the_reference_is_measured_or_given(cache):
    measured = yardstick(find("cpu")).reference
    assert 1e-6 < measured < 0.1
    assert yardstick(find("cpu"), 0.5).reference == 0.5


def test_a_machine_that_is_slow_today_is_known_from_earlier_days(cache):
    measured = yardstick(find("cpu")).reference
    (path,) = cache.iterdir()
    path.write_text(repr(measured / 2))
    assert yardstick(find("cpu")).reference == measured / 2


@pytest.mark.parametrize("known", ["1.0", "1e-9", "fast", ""])
def test_what_is_slower_or_cannot_be_is_not_believed(cache, known):
    cache.mkdir()
    first = yardstick(find("cpu")).reference
    (path,) = cache.iterdir()
    path.write_text(known)
    again = yardstick(find("cpu")).reference
    assert first / 3 < again < 3 * first and float(path.read_text()) == again


def test_without_a_cache_folder_the_measured_one_is_taken(cache):
    cache.write_text("a file")
    assert 1e-6 < yardstick(find("cpu")).reference < 0.1


def test_latencies_scale_with_the_reference_of_their_table(tmp_path, monkeypatch):
    """A table whose yardstick took twice as long is of a machine that is slower by a half, whatever it is today."""
    x = nn.Variable((1, 8, 16, 16))
    y = x
    for _ in range(5):
        y = F.relu(F.convolution(y, nn.Variable.from_numpy_array(np.full((8, 8, 3, 3), 0.1, np.float32)), pad=(1, 1)))
    figures = {}
    for reference in (1e-4, 2e-4):
        monkeypatch.setattr(
            latencies, "yardstick", lambda device, *_, reference=reference: yardstick(device, reference)
        )
        estimator = Latency("cpu", folder=tmp_path / str(reference), rounds=9)
        (figures[reference],) = estimator.costs([latencies.Part((y,), (x,), "stack")])
        assert read(estimator.path).yardstick == reference
    assert figures[2e-4] / figures[1e-4] == pytest.approx(2.0, rel=0.3)
