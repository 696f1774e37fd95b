"""Several runs side by side: means over seeds, fronts, hypervolumes, the best under each bound."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import mean, stdev

from nnas.errors import NnasError, check_number
from nnas.files import leaves, write_bytes, write_text
from nnas.reports import charts
from nnas.reports.drawing import picture
from nnas.reports.page import Page, table
from nnas.reports.records import front, load_run
from nnas.reports.words import duration, line, markdown_table

# Keys that differ between runs that are repetitions of one another.
REPEATED = {"seed", "data.split_seed", "table"}
COLUMNS = ("runs of", "number", "test accuracy", "latency", "within the bound", "hypervolume", "time")


@dataclass(frozen=True)
class Point:
    """One finished run. settings: its configuration, flat. latency: measured, or predicted where `measured` is False.
    ground: (what of the data, unit, device): what must be equal for figures to be comparable."""

    path: Path
    settings: dict
    accuracy: float
    latency: float
    measured: bool
    bound: float
    seconds: float
    ground: tuple


def find_runs(places):
    """(run folders below these places, those of them that are not finished)."""
    found = {}
    for place in places:
        root = Path(place)
        if not root.is_dir():
            raise NnasError(f"runs={place}: there is no such folder; give run folders, or a folder that holds them")
        inside = sorted(one.parent for one in root.rglob("config.yaml") if (one.parent / "inputs.json").exists())
        if not inside:
            raise NnasError(f"runs={place}: no run lies in it; give run folders, or a folder that holds them")
        found |= dict.fromkeys(inside)
    finished = [path for path in found if (path / "summary.json").exists()]
    return finished, [path for path in found if path not in finished]


def read_point(path):
    """The Point of a run folder, or a text on why there is none."""
    try:
        run = load_run(path)
        predicted, measured = run.predictions.get("latency"), run.measured
        if not (measured or predicted):
            return f"{path}: it has no latency"
        data = run.inputs.get("data") or {}
        split = {key: data.get(key) for key in ("kind", "digest", "split_seed", "samples")}
        return Point(
            path=Path(path),
            settings={key: str(value) for key, value in leaves(run.config)},
            accuracy=float(run.summary["test_accuracy"]),
            latency=float(measured["median"] if measured else predicted["predicted"]),
            measured=bool(measured),
            bound=predicted and predicted["bound"],
            seconds=sum(run.summary["seconds"].values()),
            ground=(str(split), (measured or predicted)["unit"], run.device),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NnasError(f"{path}: its files do not hold what a comparison needs ({error!r})") from error


def hypervolume(points, reference):
    """The area that (cost, accuracy) points dominate up to a reference point (the largest cost, the least accuracy)."""
    cost_limit, least = reference
    area, height = 0.0, least
    for cost, accuracy in front(points):
        if cost < cost_limit and accuracy > height:
            area += (cost_limit - cost) * (accuracy - height)
            height = accuracy
    return area


def grouped(points):
    """{name: points of equal settings but for the seed}; a name is what differs from other groups."""
    varied = {
        key
        for key in {key for point in points for key in point.settings} - REPEATED
        if len({point.settings.get(key) for point in points}) > 1
    }
    # What follows from another choice, as the settings of a searcher from its class, would only lengthen the name.
    varied = [key for key in sorted(varied) if not _follows(key, varied, points)]
    groups = {}
    for point in points:
        settings = tuple(point.settings.get(key, "-") for key in varied)
        groups.setdefault(settings, []).append(point)
    return {
        ", ".join(f"{_short(key)}={value}" for key, value in zip(varied, settings, strict=True)) or "all": members
        for settings, members in groups.items()
    }


def _follows(key, varied, points):
    """Whether a key is settled by one that comes before it in the alphabet, or by a _target_ of its section."""
    section = key.rpartition(".")[0]
    for other in varied:
        decides = other < key and not key.endswith("_target_") or (section and other == f"{section}._target_")
        if other != key and decides:
            pairs = {(point.settings.get(other), point.settings.get(key)) for point in points}
            if len({first for first, _ in pairs}) == len(pairs):
                return True
    return False


def _short(key):
    return key.removesuffix("._target_")


def compare(places, folder, reference=None):
    """Compare runs and write comparison.html, .md and pictures to a folder; returns (text for a terminal, the page).

    reference: (latency, accuracy) of hypervolumes; None: the largest latency or bound, and 0."""
    finished, unfinished = find_runs(places)
    notes = [f"{path} is not finished and left out" for path in unfinished]
    points = []
    for path in finished:
        point = read_point(path)
        if isinstance(point, str):
            notes.append(f"{point} and is left out")
        else:
            points.append(point)
    if not points:
        raise NnasError(
            f"runs={', '.join(map(str, places))}: none of them is finished; go on with one by resume run_dir="
        )
    grounds = {}
    for point in points:
        grounds.setdefault(point.ground, []).append(point)
    notes += _differences(grounds)
    sections = [_section(members, reference) for members in grounds.values()]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page = Page("Comparison of runs - nnas")
    words = f"{len(points)} runs" + (f", in {len(grounds)} parts that cannot be compared" if len(grounds) > 1 else "")
    page.add(f"<header><h1>Comparison of runs</h1><p>{escape(words)}</p></header>")
    text, markdown = [words], ["# Comparison of runs", "", words, ""]
    if notes:
        page.section("To be noted", "", table((), [(note,) for note in notes]))
        text += [f"note: {note}" for note in notes]
        markdown += [*(f"- {line(note)}" for note in notes), ""]
    for number, (heading, note, rows, best, spec) in enumerate(sections, start=1):
        header = ("bound", "test accuracy", "latency", "run")
        html = table(COLUMNS, rows) + page.chart(spec, heading)
        html += "<h2>The best under each bound</h2>" + table(header, best)
        page.section(heading, note, html)
        text += ["", heading, note, *_aligned([COLUMNS, *rows]), "", *_aligned([header, *best])]
        name = f"comparison_{number}.png"
        write_bytes(folder / name, picture(spec))
        markdown += [
            f"## {line(heading)}",
            "",
            line(note),
            "",
            markdown_table(COLUMNS, rows),
            "",
            f"![{line(heading)}]({name})",
        ]
        markdown += ["", markdown_table(header, best), ""]
    write_text(folder / "comparison.md", "\n".join(markdown))
    write_text(folder / "comparison.html", page.html())
    return "\n".join(text), folder / "comparison.html"


def _differences(grounds):
    """What keeps runs from being compared, in words."""
    names = ("data or their split", "unit of latency", "device")
    first, *others = grounds
    return [
        f"{grounds[ground][0].path} cannot be compared with {grounds[first][0].path}: another "
        + " and another ".join(
            name if name.startswith("data") else f"{name} ({there} there, {here} here)"
            for name, there, here in zip(names, first, ground, strict=True)
            if here != there
        )
        for ground in others
    ]


def _section(points, reference):
    """(heading, note, rows, best rows, chart) of runs that can be compared."""
    _, unit, device = points[0].ground
    if reference is None:
        reference = (max([point.latency for point in points] + [one.bound for one in points if one.bound]), 0.0)
    groups = grouped(points)
    whole = hypervolume([(point.latency, point.accuracy) for point in points], reference)
    note = (
        f"Mean ± deviation over seeds. Hypervolume in {unit} x accuracy, up to the reference point {reference[0]:.4g} "
        f"{unit} and accuracy {reference[1]:g}; of all runs together {whole:.4g}."
    )
    if not all(point.measured for point in points):
        note += " Where a network could not be measured here its latency is the predicted one."
    rows = []
    for name, members in groups.items():
        volume = hypervolume([(one.latency, one.accuracy) for one in members], reference)
        bounded = [one for one in members if one.bound is not None]
        within = sum(one.latency <= one.bound for one in bounded)
        rows.append(
            (
                name,
                str(len(members)),
                _spread([one.accuracy for one in members], "{:.2%}"),
                _spread([one.latency for one in members], f"{{:.4g}} {unit}"),
                f"{within} of {len(bounded)}" if bounded else "no bound",
                f"{volume:.4g}",
                duration(mean(one.seconds for one in members)),
            )
        )
    return f"On {device or 'an unknown device'}", note, rows, _best(points, unit), _chart(groups, unit)


def _spread(values, form):
    shown = form.format(mean(values))
    return f"{shown} ± {form.format(stdev(values))}" if len(values) > 1 else shown


def _best(points, unit):
    """Rows of the most accurate run whose latency keeps each of the bounds."""
    rows = []
    for bound in sorted({point.bound for point in points if point.bound is not None}):
        within = [point for point in points if point.latency <= bound]
        if within:
            best = max(within, key=lambda point: point.accuracy)
            rows.append((f"{bound:.4g} {unit}", f"{best.accuracy:.2%}", f"{best.latency:.4g} {unit}", str(best.path)))
        else:
            rows.append((f"{bound:.4g} {unit}", "no run is within it", "", ""))
    return rows


def _chart(groups, unit):
    values = [
        {
            "latency": one.latency,
            "accuracy": one.accuracy,
            "group": name,
            "run": str(one.path),
            "what": "measured" if one.measured else "predicted",
        }
        for name, members in groups.items()
        for one in members
    ]
    steps = [{"latency": c, "accuracy": a} for c, a in front([(one["latency"], one["accuracy"]) for one in values])]
    x = charts.field("latency", title=f"latency, {unit}", scale={"zero": False}, axis={"tickCount": 6})
    y = charts.field("accuracy", title="test accuracy", scale={"zero": False}, axis={"format": ".1%"})
    colours = [charts.COLOURS[number % len(charts.COLOURS)] for number in range(len(groups))]
    colour = charts.field("group", "nominal", scale={"domain": list(groups), "range": colours})
    colour["title"] = None
    shown = charts.tooltip(
        ("run", "nominal", "run", None),
        ("group", "nominal", "of", None),
        ("accuracy", "quantitative", "test accuracy", ".2%"),
        ("latency", "quantitative", unit, ".4~g"),
        ("what", "nominal", "latency", None),
    )
    line_mark = {"type": "line", "interpolate": "step-after", "color": charts.MUTED, "strokeWidth": 1.5}
    encoding = {"x": x, "y": y, "color": colour, "tooltip": shown}
    layers = [
        {"data": {"values": steps}, "mark": line_mark, "encoding": {"x": x, "y": y}},
        {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 0.85}, "encoding": encoding},
    ]
    return charts.chart(values, height=300, layer=layers)


def _aligned(rows):
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def checked_reference(value):
    """(latency, accuracy) as a user gives it, or None."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise NnasError(f"reference={value}: it must be [latency, accuracy], the worst of both that counts")
    return check_number("reference", value[0], 0, open_below=True), check_number("reference", value[1], 0, 1)
