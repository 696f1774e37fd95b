"""What a person reads."""

from conftest import Nested, small_mobilenet

from nnas.deciders import listed
from nnas.terminal import summary_text

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


def test_each_decision_is_shown_with_its_own_option(random):
    """Stages of unequal lengths, and decisions that are not reached: places in a list would tell other operators."""
    stages = [{"channels": 6, "blocks": blocks, "stride": 1} for blocks in (1, 3, 2)]
    for network in (small_mobilenet(stages=stages), Nested()):
        space = listed(network)
        for _ in range(20):
            choices = space.sample(random)
            assert shown(choices) == choices
            assert list(shown(choices)) == [d.name for d in space.decisions if d.name in choices]
