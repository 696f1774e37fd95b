"""The report of one run: report.html, report.md and pictures in report/."""

from html import escape

import yaml

from nnas.errors import NnasError
from nnas.files import write_bytes, write_text
from nnas.reports import charts
from nnas.reports.cells import cells
from nnas.reports.drawing import grid, picture
from nnas.reports.page import Page, key, number, table, tiles
from nnas.reports.records import judged, load_run, title
from nnas.reports.words import duration, large, line, markdown_table, plain, result

PICTURED_DECISIONS = 24  # of which a picture has room


def write_report(path):
    """Write the report of a run folder; returns the path of its page.

    NnasError where the folder is of no run, or its files do not hold what they should."""
    try:
        run = load_run(path)
        pictures = _pictures(run)
        html, text = _page(run, pictures), _markdown(run, pictures)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, OverflowError) as error:
        raise NnasError(f"{path}: its files do not hold what a report needs ({error!r})") from error
    folder = run.path / "report"
    folder.mkdir(exist_ok=True)
    for name, (_, _, spec, _) in pictures.items():
        drawn = grid(dict(list(spec.items())[:PICTURED_DECISIONS])) if name == "decisions" else spec
        write_bytes(folder / f"{name}.png", picture(drawn))
    write_text(run.path / "report.md", text)
    write_text(run.path / "report.html", html)
    return run.path / "report.html"


def _pictures(run):
    """{name of a file: (heading, the question it answers, specification, whether half a page is enough)}; of the
    decisions {decision: specification}, and the colours of the options in place of the last."""
    found = {}
    if run.architecture:
        for cell, spec in cells(run).items():
            note = (
                "c_{k-2}, c_{k-1}: what the two cells before give. c_{k}: the nodes, concatenated. "
                "sep, dil: separable, dilated convolution; max, avg: pooling."
            )
            found[f"cell_{cell}"] = (f"The {cell} cell", note, spec, True)
        for name, costs in run.costs.items():
            note = (
                f"What each block takes of the {name}, and what its other options would take (ticks). "
                "Grey: what every architecture has."
            )
            if costs.unit != "bytes":  # a peak of memory is no sum of blocks
                found[f"architecture_{plain(name)}"] = (
                    f"The architecture by {name}",
                    note,
                    charts.architecture(run, name),
                    False,
                )
    comparison = charts.predicted_and_measured(run)
    if comparison:
        note = "The network as exported, measured on this device. Lines: the error of the prediction, the spread."
        found["predicted"] = ("Predicted and measured latency", note, comparison, False)
    decisions, colours = charts.probabilities(run)
    if decisions:
        note = "Probabilities of the options over the epochs, one chart for each decision."
        found["decisions"] = ("How the decisions became certain", note, decisions, colours)
    for heading, spec in charts.over_time(run).items():
        found[plain(heading)] = (heading, "", spec, True)
    architectures = judged(run)
    if architectures:
        for name in run.costs:
            note = (
                f"{len(architectures):,} architectures were judged, each on one minibatch at a time with the weights "
                "shared by all; what was judged often is the mean. Line: the Pareto front."
            )
            if len(architectures) > charts.MOST_POINTS:
                note += f" Shown are the {charts.MOST_POINTS} that were judged most often."
            found[f"seen_{plain(name)}"] = (
                f"All architectures seen, by {name}",
                note,
                charts.seen(run, architectures, name),
                False,
            )
    return found


def _page(run, pictures):
    page = Page(f"{title(run)} - nnas")
    page.add(f"<header><h1>{escape(title(run))}</h1><p>{escape(result(run))}</p>{tiles(_tiles(run))}</header>")
    for name, (heading, note, spec, half) in pictures.items():
        if name == "decisions":
            small = "".join(
                f'<figure><figcaption title="{escape(decision)}">{escape(decision)}</figcaption>'
                f"{page.chart(one, f'probabilities of {decision}')}</figure>"
                for decision, one in spec.items()
            )
            page.section(heading, note, f'{key(half)}<div class="small">{small}</div>')
        else:
            page.section(heading, note, page.chart(spec, heading), half)
    if run.architecture:
        rows = list(run.architecture.choices.items())
        page.section("The choices", "As in architecture.json.", table(("decision", "option"), rows))
    page.section("The run", "What it took and where it lies.", table((), _facts(run)))
    configuration = yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True)
    page.add(
        f"<section><details><summary>The configuration</summary><pre>{escape(configuration)}</pre></details></section>"
    )
    return page.html()


def _tiles(run):
    summary = run.summary
    if not summary:
        return [("state", escape("not finished"), f"{len(run.records)} records", "")]
    entries = [
        (
            "test accuracy",
            number(summary["test_accuracy"], f"{summary['test_accuracy']:.2%}"),
            f"{summary['samples']['test']:,} images, after training",
            "",
        )
    ]
    measured = run.measured
    latency = run.predictions.get("latency") or {}
    if measured:
        note, kind = f"± {measured['spread'] / measured['median']:.1%}", ""
        if latency.get("bound") is not None:
            over = measured["median"] / latency["bound"] - 1
            note = f"{abs(over):.1%} {'over' if over > 0 else 'below'} the bound"
            kind = "bad" if over > 0 else "good"
        if latency:
            off = measured["median"] / latency["predicted"] - 1
            note += f", {abs(off):.1%} {'above' if off > 0 else 'below'} the prediction"
        shown = f"{measured['median']:.4g} {measured['unit']}"
        entries.append(("latency, measured", number(measured["median"], shown), note, kind))
    for name, one in run.predictions.items():
        error = one["predicted_error"]
        bound = f"bound {large(one['bound'], one['unit'])}" if one["bound"] is not None else ""
        note = ", ".join(filter(None, [f"± {error:.1%}" if error else "± unknown" if error is None else "", bound]))
        shown = large(one["predicted"], one["unit"])
        entries.append((f"{name}, predicted", number(one["predicted"], shown), note, ""))
    counted = summary.get("counted") or {}
    for name, unit in (("parameters", ""), ("macs", "MACs")):
        if counted.get(name) is not None and name not in run.predictions:
            entries.append((unit or name, number(counted[name], large(counted[name], "")), f"{counted[name]:,}", ""))
    if summary["validation_accuracy"] is not None:
        value = summary["validation_accuracy"]
        entries.append(("validation accuracy", number(value, f"{value:.2%}"), "with the weights of the search", ""))
    seconds = sum(summary["seconds"].values())
    entries.append(("time", escape(duration(seconds)), ", ".join(_phases(summary)), ""))
    return entries


def _phases(summary):
    longest = sorted(summary["seconds"].items(), key=lambda one: -one[1])[:2]
    return [f"{phase} {duration(seconds)}" for phase, seconds in longest]


def _facts(run):
    """(name, text) of what else is known."""
    summary = run.summary or {}
    facts = [("folder", run.path), ("seed", summary.get("seed", run.config.get("seed")))]
    facts += [(f"seconds of {phase}", f"{seconds:g}") for phase, seconds in (summary.get("seconds") or {}).items()]
    for name, costs in run.costs.items():
        description = costs.description or {}
        if description.get("table"):
            facts.append((f"table of {name}", description["table"]))
    data = run.inputs.get("data") or {}
    if data:
        samples = ", ".join(f"{count:,} {split}" for split, count in (data.get("samples") or {}).items())
        named = " ".join(str(data[key]) for key in ("kind", "path") if data.get(key))
        facts.append(("data", f"{named}: {samples}"))
    if run.measured and run.measured.get("slowdown"):
        facts.append(("slowdown while measured", f"{run.measured['slowdown']:.2f}, taken out"))
    facts += [("versions", ", ".join(f"{name} {one}" for name, one in (summary.get("versions") or {}).items()))]
    facts += [("next", command) for command in summary.get("next") or ()]
    return [(name, value) for name, value in facts if value not in (None, "")]


def _markdown(run, pictures):
    lines = [f"# {line(title(run))}", "", line(result(run)), ""]
    for name, (heading, note, _, _) in pictures.items():
        lines += [
            f"## {line(heading)}",
            "",
            *([line(note), ""] if note else []),
            f"![{line(heading)}](report/{name}.png)",
            "",
        ]
    if run.architecture:
        lines += ["## The choices", "", markdown_table(("decision", "option"), run.architecture.choices.items()), ""]
    lines += ["## The run", "", markdown_table(("", ""), _facts(run)), ""]
    return "\n".join(lines)
