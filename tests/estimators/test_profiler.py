"""Measuring, against a clock of our own."""

import gc
import math
import time

import pytest

from estimators.profiler import profile


class Machine:
    """A clock that stands still but for the modules that run; `order` is how they ran."""

    def __init__(self):
        self.now = 0.0
        self.order = []
        self.pending = 0.0

    def module(self, name, seconds, before=lambda: None):
        def run():
            before()
            self.order.append(name)
            self.pending += seconds

        return run

    def synchronize(self):
        self.now += self.pending
        self.pending = 0.0

    def measure(self, modules, rounds=3, **options):
        """Measure every module in so many rounds, or in as many as its key says."""
        wanted = dict(rounds) if isinstance(rounds, dict) else dict.fromkeys(modules, rounds)
        for result in profile(modules, self.synchronize, wanted.get, clock=lambda: self.now, **options):
            yield result
            for key in result.milliseconds:
                wanted[key] -= 1


def test_figures_are_milliseconds_of_one_run():
    machine = Machine()
    modules = {name: machine.module(name, seconds) for name, seconds in (("fast", 5e-5), ("slow", 0.25))}
    for result in machine.measure(modules):
        assert result.milliseconds == pytest.approx({"fast": 0.05, "slow": 250.0})
        assert result.runs["slow"] == 1 and result.runs["fast"] * 5e-5 == pytest.approx(0.003, rel=0.4)
        assert not result.failures


def test_time_is_taken_after_synchronizing():
    """The clock of this machine moves in synchronize() only, as a GPU's work is seen only there."""
    machine = Machine()
    (result,) = machine.measure({"a": machine.module("a", 0.01)}, rounds=1)
    assert result.milliseconds["a"] == pytest.approx(10.0)


def test_rounds_are_interleaved_in_changing_orders_that_repeat():
    def orders():
        machine = Machine()
        modules = {name: machine.module(name, 0.1) for name in "abcdef"}
        seen = []
        for _ in machine.measure(modules, rounds=4):
            seen.append("".join(dict.fromkeys(machine.order)))
            machine.order.clear()
        return seen

    first = orders()
    assert all(sorted(order) == list("abcdef") for order in first)
    assert len(set(first)) > 1
    assert first == orders()


def test_every_module_takes_part_in_as_many_rounds_as_it_lacks():
    machine = Machine()
    modules = {name: machine.module(name, 0.1) for name in "abc"}
    results = list(machine.measure(modules, rounds={"a": 3, "b": 1, "c": 0}))
    assert [sorted(result.milliseconds) for result in results] == [["a", "b"], ["a"], ["a"]]


def test_a_module_that_fails_is_reported_without_a_figure_and_not_run_again():
    machine = Machine()
    calls = []

    def fail():
        calls.append(1)
        if len(calls) > 5:
            raise RuntimeError("out of memory")

    modules = {"good": machine.module("good", 0.1), "bad": machine.module("bad", 0.1, fail)}
    results = list(machine.measure(modules, rounds=6))
    failed = [number for number, result in enumerate(results) if result.failures]
    assert len(failed) == 1
    assert str(results[failed[0]].failures["bad"]) == "out of memory"
    assert all("bad" not in result.milliseconds for result in results[failed[0] :])
    assert all("good" in result.milliseconds for result in results)
    assert len(calls) == 6


def test_an_interruption_passes_and_what_was_complete_was_given():
    machine = Machine()
    given = []

    def interrupt():
        if len(given) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for result in machine.measure({"a": machine.module("a", 0.1, interrupt)}, rounds=5):
            given.append(result)
    assert len(given) == 2
    assert gc.isenabled()


def test_no_garbage_is_collected_while_the_clock_runs():
    machine = Machine()
    states = []
    for _ in machine.measure({"a": machine.module("a", 0.1, lambda: states.append(gc.isenabled()))}):
        assert gc.isenabled()
    assert states and not any(states)


def test_a_disturbed_batch_does_not_move_the_figure():
    machine = Machine()
    runs = [0]

    def disturb():
        runs[0] += 1
        machine.pending += 5.0 if runs[0] == 5 else 0.0

    (result,) = machine.measure({"a": machine.module("a", 0.001, disturb)}, rounds=1)
    assert runs[0] >= 5
    assert result.milliseconds["a"] == pytest.approx(1.0)


def test_progress_counts_to_the_end_even_where_something_fails():
    machine = Machine()
    steps = []

    def fail():
        raise RuntimeError

    modules = {"a": machine.module("a", 0.1), "b": machine.module("b", 0.1, fail)}
    list(machine.measure(modules, rounds=3, progress=lambda *step: steps.append(step)))
    done = [step[0] for step in steps]
    assert done == sorted(done) and done[-1] == 6 and {step[1] for step in steps} == {6}
    assert not math.isnan(sum(done))


def test_a_module_is_run_until_it_is_warm():
    """Eight runs that get quicker and quicker do not count, nor set how many runs make a batch."""
    machine, seconds = Machine(), iter(0.5**n for n in range(8))

    def module():
        machine.pending += next(seconds, 0.001)

    (result,) = machine.measure({"a": module}, rounds=1)
    assert result.milliseconds["a"] == pytest.approx(1.0) and result.runs["a"] == 3
    assert next(seconds, None) is None


def test_a_module_that_never_gets_warm_is_measured_all_the_same():
    machine, runs = Machine(), []

    def module():
        runs.append(0.9 ** len(runs))
        machine.pending += runs[-1]

    (result,) = machine.measure({"a": module}, rounds=1)
    assert result.runs["a"] == 1 and len(runs) == 21


def test_the_load_is_what_passes_beside_the_time_of_the_clock():
    """This clock sees a quarter of the time, as that of a thread does whose core is taken for the rest."""
    left = iter([1, 0])
    (result,) = profile(
        {"a": lambda: time.sleep(0.002)}, lambda: None, lambda _: next(left), clock=lambda: time.perf_counter() / 4
    )
    assert result.loads["a"] == pytest.approx(4.0, rel=0.05)
    assert result.milliseconds["a"] == pytest.approx(0.5, rel=0.4)


def test_a_slower_machine_gives_the_figures_of_the_undisturbed_one():
    """The machine falls to a half and a third of its speed in turns; the yardstick beside the module sees it."""
    machine, speeds = Machine(), iter(range(10**6))
    slowdown = {"now": 1.0}

    def read():
        slowdown["now"] = (1.0, 2.0, 3.0)[next(speeds) // 7 % 3]
        return slowdown["now"]

    def module():
        machine.pending += 0.01 * slowdown["now"]

    rounds = list(machine.measure({"a": module}, rounds=30, slowdown=read))
    assert sorted(result.milliseconds["a"] for result in rounds)[15] == pytest.approx(10.0)
    assert {1.0, 2.0, 3.0} <= {result.slowdowns["a"] for result in rounds}
