"""Figures in words."""

import re
from html import escape

SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def large(value, unit):
    """A figure with its unit; counts of a thousand or more with a prefix."""
    if unit in ("ms", "us", "s"):
        return f"{value:.4g} {unit}"
    for scale, prefix in SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}".strip()
    return f"{value:.4g} {unit}".strip()


def duration(seconds):
    """'52 s', '3 min 20 s', '2 h 5 min'."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def result(run):
    """The result of a run in one line."""
    summary = run.summary
    if not summary:
        epochs = [record for record in run.records if "epoch" in record]
        where = (
            f"it stands after epoch {epochs[-1]['epoch']} of {epochs[-1]['phase']}" if epochs else "it has just begun"
        )
        return f"The run is not finished: {where}."
    words = [f"{summary['test_accuracy']:.2%} test accuracy"]
    latency, measured = run.predictions.get("latency"), run.measured
    if measured:
        words.append(f"{measured['median']:.4g} {measured['unit']} measured")
    if latency:
        bound = "" if latency["bound"] is None else f" under a bound of {latency['bound']:.4g} {latency['unit']}"
        words.append(f"{latency['predicted']:.4g} {latency['unit']} predicted{bound}")
    counted = summary.get("counted") or {}
    if counted.get("parameters") is not None:
        words.append(f"{large(counted['parameters'], '')} parameters")
    if counted.get("macs") is not None:
        words.append(f"{large(counted['macs'], 'MACs')}")
    words.append(f"{duration(sum(summary['seconds'].values()))} in all")
    return ", ".join(words) + "."


def plain(text):
    """A name for a file, of letters and digits alone whatever the text holds."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def line(text):
    """Text as Markdown shows it, on one line: no markup of its own."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escape(" ".join(str(text).split()), quote=False))


def markdown_table(header, rows):
    rows = [header, ["---"] * len(header), *([line(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)
