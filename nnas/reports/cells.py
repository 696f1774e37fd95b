"""The graphs of a found network's cells, as the papers draw them."""

from nnas.genotype import CELLS, INPUTS, kept_edges
from nnas.reports.charts import ACCENT, INK, MUTED, chart, field, tooltip
from nnas.reports.records import cost_of

LANE = 26  # pixels from an edge's end to the next one at its node; there is a label below each
BETWEEN = 8  # more of them between two nodes
FIRST, LAST = 2.0, 0.8  # columns from the inputs to the first node, and from the last node to the output
LEVEL = (0.5, 0.7)  # columns that an edge from each input goes straight: past the other input, and apart from its edges
BEND = 0.45  # columns in which an edge reaches the height of its end
STEPS = 12  # straight pieces of a bend
MARGIN = 4  # pixels around the boxes
HALF = 11  # pixels of a box above and below the edges at it


def layout(edges):
    """Where the parts of a cell stand: (boxes, lines).

    edges: (node, source) in the notation of a genotype, nodes from 1 on. boxes: {number as a source: (x, top, bottom)},
    the output after the last node. lines: {edge: [(x, y), ...]}, those to the output too. x is in columns from the
    inputs, y in pixels from the first edge. Nodes go down as stairs, and each edge ends at a height of its own: its
    label has a row where no box is to the left, but for those of the inputs."""
    last = max(node for node, _ in edges)
    boxes = {source: (0, source * LANE, source * LANE) for source in range(INPUTS)}
    ends, y = {}, 0
    for node in range(1, last + 1):
        # All edges come from above; the nearest source's first, so that it crosses none of the others.
        sources = sorted((s for n, s in edges if n == node), key=lambda s: (s < INPUTS, s if s < INPUTS else -s))
        ends |= {(node, source): y + place * LANE for place, source in enumerate(sources)}
        boxes[_number(node)] = (FIRST + node - 1, y, y + (len(sources) - 1) * LANE)
        y += len(sources) * LANE + BETWEEN
    boxes[_number(last + 1)] = (FIRST + last - 1 + LAST, 0, boxes[_number(last)][2])
    ends |= {(last + 1, _number(node)): _middle(boxes[_number(node)]) for node in range(1, last + 1)}
    bends = {source: LEVEL[source] if source < INPUTS else box[0] for source, box in boxes.items()}
    return boxes, {(node, s): _line(boxes[s], bends[s], boxes[_number(node)][0], y) for (node, s), y in ends.items()}


def _number(node):
    """Of a node as a source."""
    return node + INPUTS - 1


def _middle(box):
    return (box[1] + box[2]) / 2


def _line(box, bend, end, y):
    """Level out of a box, from x = bend on down in an S, and level to its end."""
    first = _middle(box)
    shares = [step / STEPS for step in range(STEPS + 1)]
    down = [(bend + share * BEND, first + (y - first) * share**2 * (3 - 2 * share)) for share in shares]
    return [(box[0], first), *down[box[0] == bend :], (end, y)]


def cells(run):
    """{kind of cell: specification of its graph}; nothing where the found network has no cells."""
    choices = run.architecture.choices
    return {cell: _drawn(run, edges) for cell in CELLS if (edges := kept_edges(choices, cell))}


def _drawn(run, edges):
    boxes, lines = layout([(node, source) for node, source, _ in edges])
    summed = {name: costs.unit for name, costs in run.costs.items() if costs.unit != "bytes"}
    about = {
        (node, source): {
            "decision": decision,
            "operator": run.architecture.choices[decision],
            **{f"cost{place}": cost_of(run, name, decision) for place, name in enumerate(summed)},
        }
        for node, source, decision in edges
    }
    points = [
        {"edge": f"{edge}", "x": x, "y": y, "kind": "chosen" if edge in about else "output", **about.get(edge, {})}
        for edge, line in lines.items()
        for x, y in line
    ]
    ends = [
        {"x": line[-1][0], "y": line[-1][1], "label": short(about[edge]["operator"]), **about[edge]}
        for edge, line in lines.items()
        if edge in about
    ]
    names = ["c_{k-2}", "c_{k-1}", *(str(number) for number in range(1, len(boxes) - INPUTS)), "c_{k}"]
    squares = [
        {"name": name, "x": box[0], "y": _middle(box), "top": box[1] - HALF, "bottom": box[2] + HALF}
        | {"width": 24 if name.isdigit() else 6.5 * len(name), "kind": "node" if name.isdigit() else "end"}
        for name, (_, box) in zip(names, sorted(boxes.items()), strict=True)
    ]
    top, bottom = -HALF - MARGIN, boxes[max(boxes)][2] + HALF + MARGIN
    flat = {"axis": None, "title": None}
    x = field("x", scale={"domain": [0, boxes[max(boxes)][0]], "padding": 24, "nice": False}, **flat)
    y = field("y", scale={"domain": [bottom, top], "nice": False, "zero": False}, **flat)
    place = {"x": x, "y": y}
    shown = tooltip(
        ("decision", "nominal", "decision", None),
        ("operator", "nominal", "operator", None),
        *(
            (f"cost{place}", "quantitative", f"{name} in all such cells, {unit}", ".4~g")
            for place, (name, unit) in enumerate(summed.items())
        ),
    )
    colour = field("kind", "nominal", scale={"domain": ["chosen", "output"], "range": [ACCENT, MUTED]}, legend=None)
    text = {"type": "text", "align": "right", "dx": -18, "dy": 9, "fontSize": 11, "limit": 100}
    words = {**place, "text": {"field": "label", "type": "nominal"}}
    line = {**place, "detail": {"field": "edge"}}
    layers = [
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {**line, "color": colour}},
        # Wider than what is seen, to be pointed at.
        {
            "transform": [{"filter": "datum.kind == 'chosen'"}],
            "mark": {"type": "line", "strokeWidth": 14, "opacity": 0},
            "encoding": {**line, "tooltip": shown},
        },
        # A margin around letters, where lines pass behind them.
        {
            "data": {"values": ends},
            "mark": {**text, "stroke": "var(--surface)", "strokeWidth": 4, "strokeJoin": "round"},
            "encoding": words,
        },
        {"data": {"values": ends}, "mark": {**text, "color": INK}, "encoding": {**words, "tooltip": shown}},
        {
            "data": {"values": ends},
            "mark": {"type": "point", "shape": "triangle-right", "filled": True, "size": 60, "xOffset": -16}
            | {"color": ACCENT, "opacity": 1},
            "encoding": {**place, "tooltip": shown},
        },
        {
            "data": {"values": squares},
            "mark": {"type": "bar", "orient": "vertical", "cornerRadius": 6, "stroke": MUTED, "fill": "var(--line)"},
            "encoding": {
                "x": x,
                "y": {**y, "field": "top"},
                "y2": {"field": "bottom"},
                "size": {"field": "width", "type": "quantitative", "scale": None},
            },
        },
        {
            "data": {"values": squares},
            "mark": {"type": "text", "color": INK, "fontSize": 10},
            "encoding": {**place, "text": {"field": "name", "type": "nominal"}},
        },
    ]
    return chart(points, height=bottom - top, layer=layers)


def short(operator):
    """An operator as there is room for: 'sep 3x3' of sep_conv_3x3."""
    words = operator.split("_")
    return " ".join(words[:1] + [word for word in words[1:] if word not in ("conv", "pool", "connect")])
