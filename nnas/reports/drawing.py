"""From Vega-Lite specifications to pictures, and the library that a page draws them with; no network is needed."""

import json
import re
from importlib import import_module

from nnas.data.download import cache_folder
from nnas.errors import NnasError, one_line
from nnas.files import read_bytes, write_text

WIDTH = 560  # pixels of a picture; twice as many dots
LIGHT_SERIES = ["#2f6fde", "#e07b2e", "#23967f", "#b8478a", "#7a5bd0"]
LIGHT_SERIES += ["#a98f13", "#5b7c99", "#cf4d57", "#629c3c", "#96644a"]
DARK_SERIES = ["#6c9cf5", "#f0a15e", "#4fc3a8", "#e07fb6", "#a68df0"]
DARK_SERIES += ["#d6bd4a", "#8fb0cc", "#f0848c", "#93cb6c", "#c79b80"]
# The values of the colours that specifications name, on light and on dark pages.
LIGHT = {"ink": "#1b2130", "muted": "#6b7486", "line": "#e3e7ee", "surface": "#ffffff", "bad": "#c4320a"}
LIGHT |= {"good": "#1a7f4b", **{f"c{number}": colour for number, colour in enumerate(LIGHT_SERIES)}}
DARK = {"ink": "#e7eaf0", "muted": "#97a1b3", "line": "#2a3140", "surface": "#171c25", "bad": "#ff8a65"}
DARK |= {"good": "#5fd39a", **{f"c{number}": colour for number, colour in enumerate(DARK_SERIES)}}
CONFIG = {
    "background": "transparent",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 11,
        "titleFontSize": 11,
    },
    "legend": {"orient": "top", "labelColor": "var(--ink)", "symbolType": "circle", "labelFontSize": 12}
    | {"labelLimit": 220, "columns": 2},
    "title": {"color": "var(--ink)", "fontSize": 12, "fontWeight": "normal", "anchor": "start"},
}


def picture(spec, width=WIDTH):
    """The bytes of a PNG of a specification, light and on white."""
    spec = {**spec, "config": {**CONFIG, "background": LIGHT["surface"]}, "padding": 12}
    if spec.get("width") == "container":
        spec["width"] = width
    spec.pop("autosize", None)
    text = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], json.dumps(spec))
    try:
        return _converter().vegalite_to_png(text, scale=2)
    except (ValueError, RuntimeError) as error:
        raise NnasError(f"a chart could not be drawn: {one_line(error)}") from error


def grid(charts, columns=4, width=150):
    """One specification of {title: chart}, in rows."""
    if not charts:
        return None
    parts = [{**spec, "width": width, "title": title[:24]} for title, spec in charts.items()]
    colour = parts[0]["encoding"]["color"]
    parts[0]["encoding"] = {**parts[0]["encoding"], "color": {**colour, "title": None, "legend": {"columns": 8}}}
    for part in parts:
        del part["$schema"], part["autosize"]
    return {"$schema": next(iter(charts.values()))["$schema"], "concat": parts, "columns": columns}


def library():
    """The JavaScript of Vega, Vega-Lite and Vega-Embed, as one text; it defines window.vegaEmbed.

    Joining its parts takes seconds, so it is kept in the user's cache folder."""
    converter = _converter()
    path = cache_folder() / f"vega-embed-{converter.__version__}.js"
    if not path.exists():
        # A word that ends a script would end it on a page.
        text = converter.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return read_bytes(path, "the library of charts").decode("utf-8")


def _converter():
    # Only here, where something is drawn: it is large, and a machine where it does not load still searches.
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise NnasError(f"charts need the package vl-convert-python: {one_line(error)}") from error
