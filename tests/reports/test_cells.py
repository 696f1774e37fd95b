"""The pictures of a found network's cells: where things stand, what they say, and how a browser shows them."""

from itertools import combinations
from types import SimpleNamespace

import altair
import pytest
from browser import chromium
from test_report import HOSTILE, write_run

from nnas.costs import Costs, Term
from nnas.genotype import INPUTS, edge_name, kept_edges
from nnas.reports.cells import HALF, LANE, cells, layout, short
from nnas.reports.records import load_run
from nnas.reports.report import write_report
from nnas.space import Architecture

OPERATORS = ["max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3"]


def drawn(random, nodes, kept=2):
    """The edges (node, source) of a random cell."""
    sources = {node: random.permutation(INPUTS + node - 1)[:kept].tolist() for node in range(1, nodes + 1)}
    return [(node, source) for node, those in sources.items() for source in sorted(those)]


def choices_of(random, nodes=4):
    return {
        edge_name(cell, node, source): str(random.choice(OPERATORS))
        for cell in ("normal", "reduction")
        for node, source in drawn(random, nodes)
    }


@pytest.fixture(params=[(1, 1), (2, 2), (4, 2), (4, 4), (7, 2)])
def edges(request, random):
    return [drawn(random, *request.param) for _ in range(20)]


def test_boxes_stand_apart_and_inputs_at_the_left_output_at_the_right(edges):
    for cell in edges:
        boxes, _ = layout(cell)
        assert set(boxes) == set(range(INPUTS + max(node for node, _ in cell) + 1))
        for (_, one), (_, other) in combinations(boxes.items(), 2):
            apart = max(one[1], other[1]) - min(one[2], other[2])
            assert one[0] != other[0] or apart > 2 * HALF
        columns = [boxes[number][0] for number in sorted(boxes)]
        assert columns[0] == columns[1] and columns[1:] == sorted(set(columns))


def test_lines_go_rightwards_from_box_to_box(edges):
    for cell in edges:
        boxes, lines = layout(cell)
        last = max(node for node, _ in cell)
        assert set(lines) == {*cell, *((last + 1, number) for number in range(INPUTS, INPUTS + last))}
        for (node, source), line in lines.items():
            start, end = boxes[source], boxes[node + INPUTS - 1]
            assert line[0] == (start[0], (start[1] + start[2]) / 2)
            assert line[-1][0] == end[0] and end[1] <= line[-1][1] <= end[2]
            assert all(before[0] < after[0] for before, after in zip(line, line[1:], strict=False))
            assert line[-2][1] == line[-1][1]  # level, as the arrow's head is
        # The lines of the two inputs do not go down together.
        bends = [{line[1][0] for (_, source), line in lines.items() if source == one} for one in range(INPUTS)]
        assert not bends[0] & bends[1]


def test_each_label_has_a_row_of_its_own_without_a_node(edges):
    for cell in edges:
        boxes, lines = layout(cell)
        ends = {edge: lines[edge][-1] for edge in cell}
        heights = sorted(y for _, y in ends.values())
        assert all(after - before >= LANE for before, after in zip(heights, heights[1:], strict=False))
        for (node, _), (_, y) in ends.items():
            for before in range(1, node):
                assert y - boxes[before + INPUTS - 1][2] > HALF  # below the nodes that are on the left


def test_an_edge_takes_what_all_its_cells_take_together():
    choices = {edge_name("normal", 1, 0): "sep_conv_3x3", edge_name("normal", 1, 1): "skip_connect"}
    first, second = choices
    terms = [
        Term((), 8.0, "s: before"),
        Term(((first, "sep_conv_3x3"),), 1.0, "s: a"),
        Term(((first, "sep_conv_5x5"),), 16.0, "s: b"),
        Term(((first, "sep_conv_3x3"),), 2.0, "s: c"),
        Term(((first, "sep_conv_3x3"), (second, "skip_connect")), 0.5, "s: d"),
    ]
    costs = {"memory": Costs("bytes", tuple(terms)), "latency": Costs("ms", tuple(terms), 2.0)}
    run = SimpleNamespace(costs=costs, architecture=Architecture("s", choices, {}))
    specs = cells(run)
    assert list(specs) == ["normal"]
    shown = {
        (one["decision"], one["operator"], one["cost0"])
        for one in specs["normal"]["data"]["values"]
        if one["kind"] == "chosen"
    }
    assert shown == {(first, "sep_conv_3x3", 7.0), (second, "skip_connect", 1.0)}
    assert "cost1" not in str(specs) and "latency in all such cells, ms" in str(specs)


def test_edges_are_found_in_choices_of_any_space(random):
    choices = {"stem": "wide", **choices_of(random)}
    assert len(kept_edges(choices, "normal")) == 8
    assert all(edge_name("normal", node, source) == name for node, source, name in kept_edges(choices, "normal"))
    assert kept_edges({"block1": "k3"}, "normal") == []


def test_operators_are_short():
    assert [short(one) for one in OPERATORS] == ["max 3x3", "avg 3x3", "skip", "sep 3x3", "sep 5x5", "dil 3x3"]
    assert short("conv") == "conv" and short("") == ""


def test_networks_without_cells_have_no_pictures_of_them(tmp_path):
    path = write_run(tmp_path / "run")
    assert cells(load_run(path)) == {}
    write_report(path)
    assert not list((path / "report").glob("cell_*")) and "cell_" not in (path / "report.md").read_text()


BOXES = """
return [...document.querySelectorAll('[data-chart]')].slice(0, 2).map(chart => [...chart.querySelectorAll('text')].map(
  text => { const box = text.getBoundingClientRect();
            return [text.textContent, box.left, box.right, box.top, box.bottom] }))"""
POINT = """
const text = [...document.querySelectorAll('[data-chart] text')].filter(one => one.textContent == 'sep 5x5').pop();
text.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 99, clientY: 99}));
text.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: 99, clientY: 99}));
"""


def test_the_cells_in_a_browser(tmp_path, random):
    path = write_run(tmp_path / "run")
    choices = choices_of(random)
    last = list(choices)[-1]
    Architecture("cells", {**choices, last: "sep_conv_5x5", list(choices)[0]: HOSTILE}, {}).save(
        path / "architecture.json"
    )
    write_report(path)
    for cell in ("normal", "reduction"):
        assert (path / "report" / f"cell_{cell}.png").read_bytes().startswith(b"\x89PNG")
        assert f"(report/cell_{cell}.png)" in (path / "report.md").read_text()
        altair.Chart.from_dict({**cells(load_run(path))[cell], "$schema": altair.SCHEMA_URL})
    charts = "document.querySelectorAll('[data-chart]').length"
    with chromium(tmp_path / "profile") as browser:
        for width in (390, 1200):
            browser.open(path / "report.html", width, 900)
            browser.wait(f"document.querySelectorAll('[data-chart] svg').length == {charts}")
            assert browser.errors() == [] and not browser.run("return window.hacked || 0")
            assert browser.run("return document.documentElement.scrollWidth") <= width
            pictures = browser.run(BOXES)
            for texts in pictures:
                # A label is there twice, with a margin and without.
                texts = {tuple(one[1:]): one[0] for one in texts if HOSTILE[:5] not in one[0]}
                assert {"c_{k-2}", "c_{k-1}", "1", "2", "3", "4", "c_{k}"} < set(texts.values())
                assert 14 <= len(texts) <= 15
                for one, other in combinations(texts, 2):
                    beside = min(one[1], other[1]) <= max(one[0], other[0])
                    assert beside or min(one[3], other[3]) <= max(one[2], other[2]), (texts[one], texts[other])
            browser.run(POINT)
            tip = "document.getElementById('vg-tooltip-element')"
            browser.wait(f"{tip} && {tip}.textContent.includes('sep_conv_5x5')")
            assert last in browser.run(f"return {tip}.textContent")
