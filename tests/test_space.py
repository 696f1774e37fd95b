"""Spaces and architectures as values."""

import json

import numpy as np
import pytest
from conftest import Nested, small_mobilenet

from nnas.deciders import listed
from nnas.errors import NnasError
from nnas.space import Architecture, Decision, Site, Space


def test_listing_finds_decisions_sites_and_options():
    space = listed(Nested())
    assert [decision.name for decision in space.decisions] == ["operator", "inner", "last"]
    operator, inner, _ = space.decisions
    assert operator.options == ("plain", "deep", "skip")
    assert len(operator.sites) == len(inner.sites) == 2
    assert inner.sites[0] == Site((4, 6, 6), (("operator", "deep"),))


def test_skip_is_offered_only_where_shapes_allow():
    options = {decision.name: decision.options for decision in listed(small_mobilenet()).decisions}
    assert "skip" not in options["stage1_block1"] and "skip" not in options["stage2_block1"]
    assert "skip" in options["stage1_block2"] and "skip" in options["stage2_block2"]
    assert [len(options[name]) for name in options] == [6, 7, 6, 7]


def test_decisions_that_are_not_reached_have_no_choice(random):
    space = listed(Nested())
    for _ in range(50):
        choices = space.sample(random)
        assert ("inner" in choices) == (choices["operator"] == "deep")
        assert space.check(choices) == choices
    assert space.check({"operator": "skip", "inner": "k3", "last": "k1"}) == {"operator": "skip", "last": "k1"}


def test_decisions_draw_independently(random):
    space = Space("pairs", tuple(Decision(name, ("a", "b", "c"), (Site((1,)),)) for name in "xy"))
    drawn = [tuple(space.sample(random).values()) for _ in range(900)]
    counts = np.array([drawn.count((a, b)) for a in "abc" for b in "abc"])
    # 100 of each pair are expected; with lockstep three pairs would have 300 and six none.
    assert counts.min() > 60 and counts.max() < 140


@pytest.mark.parametrize(
    "choices, message",
    [
        ({"operator": "plian", "last": "k1"}, "did you mean 'plain'"),
        ({"operator": "plain", "lost": "k1"}, "has no decision 'lost', did you mean 'last'"),
        ({"operator": "plain"}, "no choice for last"),
        ({"operator": "deep", "last": "k1"}, "no choice for inner"),
    ],
)
def test_wrong_choices_are_named(choices, message):
    with pytest.raises(NnasError, match=message):
        listed(Nested()).check(choices)


def test_architecture_file_round_trip(tmp_path):
    architecture = Architecture("nested", {"operator": "skip", "last": "k1"}, {"latency": {"value": 1.5, "unit": "ms"}})
    architecture.save(tmp_path / "a.json")
    assert Architecture.load(tmp_path / "a.json") == architecture
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"space": "s"}', '{"space": 3, "choices": {}}', '{"choices": {}}', "[" * 100000]
)
def test_files_that_are_no_architecture_are_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(NnasError, match="a.json"):
        Architecture.load(tmp_path / "a.json")
    with pytest.raises(NnasError, match="no such file"):
        Architecture.load(tmp_path / "b.json")


def test_space_file_tells_decisions_options_and_sites(tmp_path):
    listed(Nested()).save(tmp_path / "space.json")
    content = json.loads((tmp_path / "space.json").read_text())
    assert content["decisions"][1] == {
        "name": "inner",
        "options": ["k3", "k5"],
        "sites": [{"input_shape": [4, 6, 6], "when": {"operator": "deep"}}] * 2,
    }
