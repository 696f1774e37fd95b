"""What a person reads."""

import pytest
from conftest import Cells, Nested, small_mobilenet

from nnas.deciders import listed
from nnas.terminal import collapse_text, summary_text

SUMMARY = {
    "space": "small",
    "samples": {"validation": 100, "test": 200},
    "validation_accuracy": None,
    "test_accuracy": 0.5,
    "costs": {},
    "measured_latency": None,
    "run_dir": "run",
    "next": [],
}


def shown(choices):
    """The choices as the end of a run shows them."""
    lines = summary_text(SUMMARY, choices).split("\n")
    start = lines.index("architecture of small:") + 1
    return dict(line.split() for line in lines[start : lines.index("", start)])


def test_a_node_is_shown_in_one_line(random):
    space = listed(Cells())
    for _ in range(20):
        choices = space.sample(random)
        lines = summary_text(SUMMARY, choices, space.nodes).split("\n")
        start = lines.index("architecture of small:") + 1
        shown = lines[start : lines.index("", start)]
        assert [line.split()[0] for line in shown] == ["node1", "node2"]
        for node, line in zip(space.nodes, shown, strict=True):
            edges = [edge for edge in node.edges if edge in choices]
            expected = ", ".join(f"{edge.removeprefix(node.name)[1:]} {choices[edge]}" for edge in edges)
            assert line.split(maxsplit=1)[1] == expected


def test_each_decision_is_shown_with_its_own_option(random):
    """Stages of unequal lengths, and decisions that are not reached: places in a list would tell other operators."""
    stages = [{"channels": 6, "blocks": blocks, "stride": 1} for blocks in (1, 3, 2)]
    for network in (small_mobilenet(stages=stages), Nested()):
        space = listed(network)
        for _ in range(20):
            choices = space.sample(random)
            assert shown(choices) == choices
            assert list(shown(choices)) == [d.name for d in space.decisions if d.name in choices]


def test_a_collapse_is_told_once_it_shows():
    assert collapse_text({"loss": 1.0}) is None and collapse_text({"skip_share": 0.4}) is None
    assert "50% of the decisions would skip" in collapse_text({"skip_share": 0.5})
    assert collapse_text({"skip_share": 0.4, "stopped": True}).startswith("the search ends here: 40%")


@pytest.mark.parametrize(
    "bound, words", [(1.1, "5.0% above the prediction, "), (0.84, "25.0% OVER THE BOUND, 5.0% above")]
)
def test_what_is_measured_over_the_bound_is_told(bound, words):
    cost = {"predicted": 1.0, "predicted_error": 0.01, "unit": "ms", "bound": bound}
    measured = {"median": 1.05, "unit": "ms", "spread": 0.01, "interval": [1.04, 1.06], "slowdown": 1.0}
    measured |= {"device": "a device", "batch": 1}
    text = summary_text({**SUMMARY, "costs": {"latency": cost}, "measured_latency": measured}, {"a": "b"})
    assert words in text.replace(";", ",")
    assert ("OVER" in text) == (measured["median"] > bound)
