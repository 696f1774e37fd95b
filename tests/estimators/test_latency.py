"""Latencies: measured once, kept, never invented."""

import json

import nnabla as nn
import numpy as np
import pytest
from small_parts import convolution, factor, foreign, identity, inverted_residual

from estimators import EstimatorError, Latency, MissingCost, Part
from estimators import device as devices
from estimators import latency as latency_module
from estimators import table as tables
from estimators.base import Network
from estimators.calibration import fit_factor
from estimators.graph import GraphCopy
from estimators.profiler import Round
from estimators.signature import signature


@pytest.fixture
def passes(monkeypatch):
    """The forward passes of all copies, as a list that grows."""
    made = []
    real = GraphCopy.forward
    monkeypatch.setattr(GraphCopy, "forward", lambda copy: (made.append(copy), real(copy)))
    return made


@pytest.fixture
def here(tmp_path):
    def make(**options):
        return Latency(**{"device": "cpu", "folder": tmp_path / "tables", "rounds": 2} | options)

    return make


@pytest.fixture
def elsewhere(here, tmp_path):
    """A table of another device with one convolution in it, and its path."""
    latency = here()
    latency.costs([convolution()])
    content = json.loads(latency.path.read_text())
    content["device"] |= {"processor": "NVIDIA H200", "backend": "cudnn"}
    path = tmp_path / "h200.json"
    path.write_text(json.dumps(content))
    return path


def fake_profile(milliseconds, load=1.0, slowdown=1.0):
    """A profiler that gives figures by call: {key: ms} in every round."""

    def profile(modules, synchronize, left, round_seconds, **_):
        while any(left(key) for key in modules):
            figures = {key: milliseconds[key] for key in modules}
            ones, slowdowns, loads = (dict.fromkeys(modules, value) for value in (1, slowdown, load))
            yield Round(figures, ones, {}, slowdowns, loads)

    return profile


def test_a_larger_module_is_slower(here):
    small, large = here().costs([convolution(4, size=6), convolution(32, size=24)])
    assert 0 < small < large / 3


def test_an_identity_costs_exactly_nothing_and_is_not_measured(here, passes):
    latency = here()
    assert latency.costs([identity()]) == [0.0]
    assert not passes and not latency.path.exists()


def test_nothing_is_measured_twice(here, passes):
    first = here().costs([convolution(label="a"), inverted_residual(), convolution(label="b")])
    assert first[0] == first[2]
    assert len(set(passes)) == 2
    passes.clear()
    assert here().costs([convolution(label="c"), inverted_residual()]) == first[:2]
    assert not passes


def test_only_what_lacks_is_measured(here, passes):
    here().costs([convolution()])
    passes.clear()
    here().costs([convolution(), inverted_residual()])
    assert len(set(passes)) == 1


def test_an_interruption_keeps_rounds_and_a_rerun_continues(here, monkeypatch):
    latency = here(rounds=5)
    real_write = tables.Table.write

    def write_then_interrupt(table, path):
        real_write(table, path)
        entry = table.entries.get(signature(convolution()))
        if entry and len(entry.rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(tables.Table, "write", write_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        latency.costs([convolution(), inverted_residual()])
    monkeypatch.undo()
    kept = tables.read(latency.path).entries
    assert [len(entry.rounds) for entry in kept.values()] == [2, 2]
    again = here(rounds=5)
    again.costs([convolution(), inverted_residual()])
    for text, entry in again.table.entries.items():
        assert len(entry.rounds) == 5 and entry.rounds[:2] == kept[text].rounds


def test_an_interruption_within_a_round_keeps_the_rounds_before(here, monkeypatch):
    latency = here(rounds=5)
    real = GraphCopy.forward

    def forward(copy):
        if latency.table.entries and len(latency.table.entries[signature(convolution())].rounds) == 3:
            raise KeyboardInterrupt
        real(copy)

    monkeypatch.setattr(GraphCopy, "forward", forward)
    with pytest.raises(KeyboardInterrupt):
        latency.costs([convolution()])
    assert len(tables.read(latency.path).entries[signature(convolution())].rounds) == 3


def test_more_rounds_continue_a_table(here):
    few = here(rounds=2)
    few.costs([convolution()])
    many = here(rounds=4)
    many.costs([convolution()])
    (entry,) = many.table.entries.values()
    assert len(entry.rounds) == 4


def test_what_cannot_be_measured_is_reported_and_gets_no_number(here):
    latency = here()
    with pytest.raises(MissingCost, match="mystery.*Mystery") as caught:
        latency.costs([convolution(), foreign()])
    assert [lack.label for lack in caught.value.lacks] == ["mystery"]
    assert list(tables.read(latency.path).entries) == [signature(convolution())]


def test_a_module_that_fails_midway_loses_its_rounds(here, monkeypatch):
    latency = here(rounds=4)
    real = GraphCopy.forward

    def forward(copy):
        if len(latency.table.entries) == 2 and copy.outputs[0].parent.info.type_name == "Add2":
            raise RuntimeError("the device is gone")
        real(copy)

    monkeypatch.setattr(GraphCopy, "forward", forward)
    with pytest.raises(MissingCost, match="inverted_residual.*the device is gone"):
        latency.costs([convolution(), inverted_residual()])
    (entry,) = tables.read(latency.path).entries.values()
    assert entry.label == "convolution" and len(entry.rounds) == 4


def test_measuring_leaves_live_weights_alone(here):
    part = convolution()
    weights = part.outputs[0].parent.inputs[0].parent.inputs[1]
    before = weights.d.copy()
    weights.grad.zero()
    here().costs([part])
    assert (weights.d == before).all() and weights.grad.zeroing


def test_a_foreign_table_is_used_as_it_is(here, elsewhere, passes):
    before = elsewhere.read_text()
    latency = here(table=elsewhere, rounds=8)
    passes.clear()
    assert not latency.measures_here
    assert latency.costs([convolution(), identity()])[0] > 0
    assert latency.description()["device"]["processor"] == "NVIDIA H200"
    assert not passes and elsewhere.read_text() == before


def test_a_foreign_table_lists_what_it_lacks_and_measures_nothing(here, elsewhere, passes):
    latency = here(table=elsewhere)
    passes.clear()
    lacking = [convolution(kernel=kernel, size=12, label=f"block {kernel}") for kernel in range(1, 27, 2)]
    with pytest.raises(MissingCost) as caught:
        latency.costs([convolution(), *lacking])
    message = str(caught.value)
    assert "13 missing" in message and "block 1; block 3;" in message and "and 3 more" in message
    assert [lack.signature for lack in caught.value.lacks] == [signature(part) for part in lacking]
    assert "On NVIDIA H200, run: python main.py --config-name=profile space=SPACE device=cudnn" in message
    assert "\n" not in message and not passes
    with pytest.raises(MissingCost, match="another device"):
        latency.measure(convolution().outputs, "network")
    with pytest.raises(MissingCost, match="no factor.*space=space device=cudnn"):
        factor(latency, [convolution()], [1.0])


def test_a_table_of_this_device_given_by_its_path_is_used_as_it_is(here, tmp_path):
    latency = here()
    latency.costs([convolution()])
    path = latency.path.rename(tmp_path / "mine.json")
    before = path.read_text()
    named = here(table=path, rounds=100)
    assert named.measures_here and named.costs([convolution()]) == latency.costs([convolution()])
    with pytest.raises(MissingCost, match="used as it is"):
        named.costs([inverted_residual()])
    assert named.measure(convolution().outputs, "network").median > 0
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 0}, "batch"),
        ({"rounds": "many"}, "rounds"),
        ({"precision": 0}, "precision"),
        ({"device": "gpu"}, "unknown device"),
        ({"table": "absent.json"}, "no latency table"),
    ],
)
def test_wrong_values_are_refused_at_once(here, options, says):
    with pytest.raises(EstimatorError, match=says):
        here(**options)


def test_a_table_of_another_batch_size_is_refused(here, elsewhere):
    with pytest.raises(EstimatorError, match="batch size 1.*set batch=1"):
        here(table=elsewhere, batch=4)


def test_a_damaged_table_is_not_overwritten(here):
    latency = here()
    latency.costs([convolution()])
    latency.path.write_text('{"format": 1, "un')
    with pytest.raises(EstimatorError, match="not whole JSON"):
        here()
    assert latency.path.read_text() == '{"format": 1, "un'


def test_another_device_under_this_ones_file_name_is_refused(here, elsewhere):
    here().path.write_text(elsewhere.read_text())
    with pytest.raises(EstimatorError, match="H200.*table="):
        here()


def test_calibration_recovers_a_known_factor(here, monkeypatch):
    sums = [1.0, 2.0, 3.5]
    monkeypatch.setattr(latency_module, "profile", fake_profile({i: 1.17 * s for i, s in enumerate(sums)}))
    latency = here()
    networks = [convolution(), inverted_residual(), convolution(kernel=5)]
    assert factor(latency, networks, sums) == (pytest.approx(1.17), pytest.approx(0.0, abs=1e-9))

    monkeypatch.setattr(latency_module, "profile", fake_profile({i: 1.3 * s for i, s in enumerate(sums)}))
    # What is known is not measured again, after a restart neither; other sums or other networks are.
    assert factor(latency, networks, sums) == factor(here(), networks, sums)
    assert factor(here(), networks, sums)[0] == pytest.approx(1.17)
    assert factor(here(), networks, [2 * one for one in sums])[0] == pytest.approx(0.65)
    assert factor(here(), networks[::-1], sums)[0] == pytest.approx(1.3)


def test_measuring_ends_when_the_median_is_known_well_or_the_budget_is_spent(here, monkeypatch):
    random = np.random.default_rng(0)
    parts = [convolution(), inverted_residual(), convolution(kernel=5)]
    sure, unsure, hopeless = map(signature, parts)
    figures = {sure: 1.0, unsure: lambda: random.normal(1.0, 0.05), hopeless: lambda: random.normal(1.0, 0.3)}
    latency = here(rounds=50)
    monkeypatch.setattr(latency, "_profile", lambda parts, left, progress: rounds_of(figures, left))
    latency.costs(parts)
    entries = {text: latency.table.entries[text].measurement() for text in (sure, unsure, hopeless)}
    assert entries[sure].rounds == latency_module.LEAST_ROUNDS < entries[unsure].rounds < 50 == entries[hopeless].rounds
    assert entries[unsure].error <= 0.02 < entries[hopeless].error
    (notice,) = latency.notices
    assert (
        notice.startswith("3 modules measured, 2 of them to ± 2.0%, the others to ± ")
        and "after 50 rounds at most" in notice
    )
    # A table is complete by the precision that is asked for.
    assert here(rounds=50)._complete(hopeless) and not here(rounds=60)._complete(hopeless)
    assert not here(rounds=60, precision=0.001)._complete(unsure)


def rounds_of(figures, left):
    while wanted := [key for key in figures if left(key)]:
        ones = dict.fromkeys(wanted, 1)
        drawn = {key: figures[key]() if callable(figures[key]) else figures[key] for key in wanted}
        yield Round(drawn, ones, {}, ones, ones)


@pytest.mark.parametrize(
    "load, slowdown, says",
    [(1.0, 1.0, None), (2.0, 1.0, "had the core for 50% of the time"), (1.0, 1.7, "took 1.70 x as long")],
)
def test_a_busy_machine_is_told_of(here, monkeypatch, load, slowdown, says):
    monkeypatch.setattr(latency_module, "profile", fake_profile({0: 1.0}, load, slowdown))
    latency = here()
    latency.measure_all([convolution()])
    busy = [notice for notice in latency.notices if "busy" in notice]
    assert len(busy) == (says is not None) and all(says in notice for notice in busy)


def test_calibration_finds_what_parts_cost_within_networks(here, monkeypatch):
    """Each part takes more or less within a network than by itself; sums of eight parts tell by how much."""
    random = np.random.default_rng(1)
    parts = [convolution(channels, size=size) for channels in (4, 6) for size in (4, 6, 8, 10)]
    alone = random.uniform(0.5, 2.0, len(parts)).tolist()
    within = np.array(alone) * random.uniform(1.0, 1.4, len(parts))
    places = [tuple(np.flatnonzero(random.random(len(parts)) < 0.6)) for _ in range(20)]
    networks = [Network(convolution(), chosen) for chosen in places]
    latency = here()
    for part, cost in zip(parts, alone, strict=True):
        for _ in range(2):
            latency.table.add_round(signature(part), part.label, cost, 1)
    measured = {number: float(within[list(chosen)].sum()) for number, chosen in enumerate(places)}
    monkeypatch.setattr(latency_module, "profile", fake_profile(measured))
    assert latency.costs(parts) == alone
    calibration = latency.calibrate("space", parts, alone, networks)
    assert calibration.networks == 20 and calibration.error < 0.02
    # It is kept, and used for the same parts at the same costs alone.
    costs, factor, error = here().calibrated("space", parts, alone, networks)
    assert (factor, error) == (1.0, calibration.error) and np.allclose(costs, within, rtol=0.05)
    assert not np.allclose(alone, within, rtol=0.2)
    doubled = [2 * cost for cost in alone]
    assert here().calibrated("space", parts, doubled, networks)[0] == doubled


def test_a_factor_weighs_relative_errors_alike():
    fitted, error = fit_factor([1.0, 100.0], [1.1, 90.0])
    ratios = (1 / 1.1, 100 / 90)
    assert fitted == pytest.approx(sum(ratios) / sum(ratio**2 for ratio in ratios))
    around = [sum((f * ratio - 1) ** 2 for ratio in ratios) for f in (fitted * 0.999, fitted, fitted * 1.001)]
    assert around[1] == min(around)
    assert error == pytest.approx((around[1] / 2) ** 0.5)


@pytest.mark.parametrize(("sums", "measured"), [([], []), ([1.0], []), ([0.0], [1.0]), ([1.0], [float("nan")])])
def test_a_factor_of_nonsense_is_refused(sums, measured):
    with pytest.raises(EstimatorError, match="calibration needs"):
        fit_factor(sums, measured)


def test_a_whole_network_is_measured_anew_and_not_kept(here, passes):
    latency = here(rounds=3)
    part = inverted_residual()
    measurement = latency.measure(part.outputs, "network")
    assert measurement.median > 0 and measurement.spread >= 0
    assert measurement.rounds == 3 and measurement.runs >= 3 and measurement.unit == "ms"
    assert passes and not latency.table.entries
    assert latency.measure(part.outputs[0], "network").median > 0


def test_a_network_that_fails_is_an_error(here):
    with pytest.raises(MissingCost, match="network.*Mystery"):
        here().measure(foreign().outputs, "network")


def test_progress_names_what_is_measured(here):
    steps = []
    here().costs([convolution(), inverted_residual()], progress=lambda *step: steps.append(step))
    assert [step[0] for step in steps] == [1, 2, 3, 4] and {step[1] for step in steps} == {4}
    assert {step[2] for step in steps} == {"measuring convolution", "measuring inverted_residual"}


def test_the_device_may_be_given_itself(here):
    device = devices.find("cpu")
    assert here(device=device).device is device


def test_description_is_json(here):
    description = here(batch=4).description()
    assert json.loads(json.dumps(description)) == description
    assert description["unit"] == "ms" and description["batch"] == 4
    assert description["device"]["backend"] == "cpu"


def test_live_inputs_without_data_are_no_obstacle(here):
    x = nn.Variable((1, 4))
    part = Part((nn.functions.relu(x),), (x,), "relu")
    assert here().costs([part])[0] > 0
