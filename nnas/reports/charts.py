"""The pictures of a run as Vega-Lite specifications, plain dictionaries.

Colours are CSS variables, which a page sets for dark and light; drawing.py sets them in what is no page. What comes
from files is data in these specifications, never the name of a field.
"""

from nnas.reports.records import blocks, front
from nnas.reports.words import large

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
COLOURS = [f"var(--c{number})" for number in range(10)]
MOST_POINTS = 1500  # of a scatter plot: a page of more is slow
LETTER = 6.5  # pixels of a letter of 11 pixels' height, on average
INK, MUTED, ACCENT, BAD = "var(--ink)", "var(--muted)", "var(--c0)", "var(--bad)"


def field(name, kind="quantitative", title=None, **more):
    return {"field": name, "type": kind, "title": title or name, **more}


def chart(values, height=220, **spec):
    """A specification as wide as its place."""
    fit = {"type": "fit-x", "contains": "padding"}
    return {
        "$schema": SCHEMA,
        "data": {"values": values},
        "width": "container",
        "height": height,
        "autosize": fit,
        **spec,
    }


def tooltip(*fields):
    return [field(name, kind, title, **({"format": form} if form else {})) for name, kind, title, form in fields]


def series(values, x_title, y_title, y_format=None, bound=None, unit="", zero=False):
    """Lines over epochs; values: {epoch, value, series}. bound: a level that is drawn as a rule."""
    names = list(dict.fromkeys(one["series"] for one in values))
    colour = field("series", "nominal", None, scale={"domain": names, "range": COLOURS[: len(names)]})
    colour["title"] = None
    axis = {"tickCount": 5, **({"format": y_format} if y_format else {})}
    epochs = sorted({one["epoch"] for one in values})
    x = field("epoch", title=x_title, axis=_epoch_axis(epochs), scale={"nice": False})
    y = field("value", title=y_title, axis=axis, scale={"zero": zero})
    shown = tooltip(
        ("series", "nominal", "what", None),
        ("epoch", "quantitative", "epoch", None),
        ("value", "quantitative", y_title, y_format or ".4~g"),
    )
    layers = [
        {"mark": {"type": "line", "strokeWidth": 2, "interpolate": "monotone"}, "encoding": {"color": colour}},
        {
            "mark": {"type": "point", "filled": True, "size": 60},
            "params": [
                {
                    "name": "hover",
                    "select": {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"},
                }
            ],
            "encoding": {
                "color": colour,
                "opacity": {
                    "condition": {"param": "hover", "empty": False, "value": 1},
                    "value": int(len(epochs) == 1),
                },
                "tooltip": shown,
            },
        },
    ]
    for layer in layers:
        layer["encoding"] |= {"x": x, "y": y}
    if bound is not None:
        layers += _rule("y", bound, f"bound {large(bound, unit)}", y_title)
    return chart(values, layer=layers)


def _epoch_axis(epochs):
    """Of whole numbers; where epochs are few Vega would put fractions between them."""
    return {"grid": False, **({"values": epochs} if len(epochs) <= 4 else {})}


def _rule(axis, value, text, title):
    """A dashed line at a value, with its name where there is room; title: of the axis, which layers share."""
    if axis == "y":
        other = {"align": "right", "x": {"expr": "width"}, "dy": -6}
    else:
        behind = "scale('x', datum.at) < width / 2"
        other = {"align": {"expr": f"{behind} ? 'left' : 'right'"}, "y": 8, "dx": {"expr": f"{behind} ? 5 : -5"}}
    data = {"values": [{"at": value, "text": text}]}
    place = {axis: field("at", title=title)}
    return [
        {"data": data, "mark": {"type": "rule", "color": BAD, "strokeDash": [5, 4]}, "encoding": place},
        {
            "data": data,
            "mark": {"type": "text", "color": BAD, "fontSize": 11, **other},
            "encoding": {**place, "text": {"field": "text", "type": "nominal"}},
        },
    ]


def architecture(run, name):
    """Each block of the found network with its part of the cost, and ticks at what its other options cost."""
    rows, unit = blocks(run, name), run.costs[name].unit
    total = sum(row["cost"] for row in rows) or 1.0
    values = [
        {
            "block": row["block"],
            "cost": row["cost"],
            "share": row["cost"] / total,
            "kind": "chosen" if row["option"] else "fixed",
            "option": row["option"],
            "label": "  ".join(filter(None, [row["option"], f"{row['cost'] / total:.1%}"])),
            "end": max([row["cost"], *row["others"].values()]),
        }
        for row in rows
    ]
    others = [
        {"block": row["block"], "option": option, "cost": cost}
        for row in rows
        for option, cost in row["others"].items()
    ]
    widest = max([one["cost"] for one in values + others], default=1.0)
    order = [row["block"] for row in rows]
    y = field("block", "ordinal", None, sort=order, axis={"labelLimit": 150, "ticks": False, "domain": False})
    y["title"] = None
    # Room for the words, which stand behind the dearest option.
    room = LETTER * max((len(one["label"]) for one in values), default=0)
    most = {"expr": f"{widest} * width / max(width - {room}, width / 3)"}
    scale = {"domain": [0, most], "nice": False}
    x = field("cost", title=f"{name}, {unit}", scale=scale, axis={"tickCount": 5})
    words = {"y": y, "x": {**x, "field": "end"}, "text": {"field": "label", "type": "nominal"}}
    shown = tooltip(
        ("block", "nominal", "block", None),
        ("option", "nominal", "option", None),
        ("cost", "quantitative", unit, ".4~g"),
    )
    colour = field("kind", "nominal", scale={"domain": ["chosen", "fixed"], "range": [ACCENT, MUTED]}, legend=None)
    share = tooltip(("share", "quantitative", "share", ".1%"))
    layers = [
        {
            "mark": {"type": "bar", "cornerRadiusEnd": 3, "height": {"band": 0.62}},
            "encoding": {"y": y, "x": x, "color": colour, "tooltip": shown + share},
        },
        {
            "data": {"values": others},
            "mark": {"type": "tick", "color": MUTED, "thickness": 2, "size": 12},
            "encoding": {"y": y, "x": x, "tooltip": shown},
        },
        {"mark": {"type": "text", "align": "left", "dx": 6, "color": INK, "fontSize": 11}, "encoding": words},
    ]
    return chart(values, height=24 * len(rows), layer=layers)


def probabilities(run):
    """{decision: the probabilities of its options over the epochs}, and the options with their colours in order."""
    records = [record for record in run.epochs("warmup", "search") if "probabilities" in record]
    if not records:
        return {}, {}
    options = list(dict.fromkeys(option for decision in run.decisions for option in decision["options"]))
    colours = {option: COLOURS[number % len(COLOURS)] for number, option in enumerate(options)}
    scale = {"domain": options, "range": list(colours.values())}
    shown = tooltip(
        ("option", "nominal", "option", None),
        ("epoch", "quantitative", "epoch", None),
        ("probability", "quantitative", "probability", ".1%"),
    )
    charts = {}
    for decision in run.decisions:
        values = [
            {"epoch": record["epoch"], "option": option, "probability": probability, "order": order}
            for record in records
            for order, (option, probability) in enumerate(
                zip(decision["options"], record["probabilities"][decision["name"]], strict=True)
            )
        ]
        axis = _epoch_axis([record["epoch"] for record in records]) | {"tickCount": 3}
        x = field("epoch", scale={"nice": False}, axis=axis)
        y = field("probability", scale={"domain": [0, 1]}, axis={"tickCount": 2, "format": "%"}, stack="zero")
        x["title"] = y["title"] = None
        encoding = {
            "x": x,
            "y": y,
            "color": field("option", "nominal", scale=scale, legend=None),
            "order": field("order"),
            "tooltip": shown,
        }
        # Bars where lines of one epoch would have no area.
        mark = {"type": "area"} if len(records) > 1 else {"type": "bar"}
        charts[decision["name"]] = chart(values, height=84, mark=mark | {"opacity": 0.9}, encoding=encoding)
    return charts, colours


def _points(records, **named):
    """Values of series; named: {name of a series: a function of a record to a value or None}, with _ for spaces."""
    return [
        {"epoch": record["epoch"], "series": name.replace("_", " "), "value": value}
        for name, of in named.items()
        for record in records
        if (value := of(record)) is not None
    ]


def _rate(key):
    return lambda record: None if record.get(key) is None else 1 - record[key]


def over_time(run):
    """{title: chart} of accuracies, rewards and costs over epochs."""
    search, training = run.epochs("warmup", "search"), run.epochs("train")
    found = {}
    values = _points(
        search,
        weights_in_training=_rate("error"),
        sampled_in_validation=_rate("validation_error"),
        derived_in_validation=_rate("derived_error"),
        best_in_validation=lambda record: record.get("validation_accuracy"),
    )
    if values:
        found["Accuracy in the search"] = series(values, "epoch of the search", "accuracy", ".0%")
    for figure in ("reward", "objective"):
        values = _points(search, **{figure: lambda record, figure=figure: record.get(figure)})
        values += _points(search, baseline=lambda record: record.get("baseline"))
        if any(one["series"] == figure for one in values):
            found[figure.capitalize()] = series(values, "epoch of the search", figure)
    values = _points(search, entropy=lambda record: record.get("entropy"))
    if values and not any("probabilities" in record for record in search):
        found["Entropy of the decisions"] = series(values, "epoch of the search", "entropy", zero=True)
    for name, costs in run.costs.items():
        values = _points(
            search,
            best=lambda record, name=name: (record.get("best_cost") or {}).get(name),
            expected=lambda record, name=name: (record.get("expected_cost") or {}).get(name),
        )
        bound = bound_of(run, name)
        if values:
            found[f"{name.capitalize()} in the search"] = series(
                values, "epoch of the search", f"{name}, {costs.unit}", bound=bound, unit=costs.unit, zero=True
            )
    values = _points(training, training=_rate("error"), validation=_rate("validation_error"))
    if values:
        found["Accuracy in the training"] = series(values, "epoch of the training", "accuracy", ".0%")
    return found


def bound_of(run, name):
    return (run.predictions.get(name) or {}).get("bound")


def seen(run, architectures, name):
    """Accuracy against cost of all architectures that were judged, their Pareto front, and the chosen one."""
    unit, chosen = run.costs[name].unit, run.architecture and run.architecture.choices
    by_times = sorted(architectures, key=lambda one: -one["times"])[:MOST_POINTS]
    values = [
        {
            "cost": one["costs"][name],
            "accuracy": one["accuracy"],
            "times": one["times"],
            "what": "chosen" if one["choices"] == chosen else "judged",
            "architecture": " ".join(one["choices"].values())[:200],
        }
        for one in by_times
    ]
    values.sort(key=lambda one: one["what"] == "chosen")  # on top
    steps = [{"cost": c, "accuracy": a} for c, a in front([(one["cost"], one["accuracy"]) for one in values])]
    x = field("cost", title=f"{name}, {unit}", scale={"zero": False}, axis={"grid": False, "tickCount": 6})
    y = field("accuracy", scale={"zero": False}, axis={"format": ".0%", "tickCount": 5})
    shown = tooltip(
        ("architecture", "nominal", "options", None),
        ("accuracy", "quantitative", "accuracy", ".1%"),
        ("cost", "quantitative", unit, ".4~g"),
        ("times", "quantitative", "times judged", None),
    )
    colour = field("what", "nominal", scale={"domain": ["judged", "chosen"], "range": [ACCENT, "var(--c1)"]})
    colour["title"] = None
    layers = [
        {
            "data": {"values": steps},
            "mark": {"type": "line", "interpolate": "step-after", "color": MUTED, "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "opacity": {"condition": {"test": "datum.what == 'chosen'", "value": 1}, "value": 0.55},
                "shape": {"condition": {"test": "datum.what == 'chosen'", "value": "diamond"}, "value": "circle"},
                "size": {"condition": {"test": "datum.what == 'chosen'", "value": 220}, "value": 45},
                "tooltip": shown,
            },
        },
    ]
    bound = bound_of(run, name)
    if bound is not None:
        layers += _rule("x", bound, f"bound {large(bound, unit)}", x["title"])
    return chart(values, height=300, layer=layers)


def predicted_and_measured(run):
    """The predicted and the measured latency of the found network with their errors, and the bound; or None."""
    predicted, measured = run.predictions.get("latency"), run.measured
    if not (predicted and measured):
        return None
    unit, error = measured["unit"], predicted["predicted_error"]
    values = [
        _interval("predicted", predicted["predicted"], error * predicted["predicted"] if error else 0.0),
        _interval("measured", measured["median"], measured["spread"]),
    ]
    y = field("what", "ordinal", sort=["predicted", "measured"], axis={"ticks": False, "domain": False})
    y["title"] = None
    x = field("value", title=f"latency, {unit}", scale={"zero": False, "padding": 24}, axis={"tickCount": 5})
    colour = {"condition": {"test": "datum.what == 'measured'", "value": "var(--c1)"}, "value": ACCENT}
    shown = tooltip(
        ("what", "nominal", "what", None),
        ("value", "quantitative", unit, ".4~g"),
        ("error", "quantitative", "±", ".2~g"),
    )
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {
                "y": y,
                "x": field("low", title=f"latency, {unit}", scale={"zero": False, "padding": 24}),
                "x2": {"field": "high"},
                "color": colour,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 140, "opacity": 1},
            "encoding": {"y": y, "x": x, "color": colour, "tooltip": shown},
        },
    ]
    if predicted["bound"] is not None:
        layers += _rule("x", predicted["bound"], f"bound {predicted['bound']:.4g}", x["title"])
    return chart(values, height=92, layer=layers)


def _interval(what, value, error):
    return {"what": what, "value": value, "error": error, "low": value - error, "high": value + error}
