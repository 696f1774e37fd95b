"""Pages: one HTML file each that needs no network. All text from files is escaped here."""

import json
from html import escape

from nnas.reports.drawing import CONFIG, DARK, LIGHT, library

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
STYLE = """
:root { color-scheme: light dark; --page: #f5f6f9; LIGHT }
@media (prefers-color-scheme: dark) { :root { --page: #0e1218; DARK } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 FONT }
main { max-width: 1120px; margin: 0 auto; padding: 24px 16px 64px; display: grid; gap: 16px;
  grid-template-columns: repeat(2, minmax(0, 1fr)) }
header, section { grid-column: 1 / -1; min-width: 0 }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px }
section.half { grid-column: auto }
h1 { font-size: 1.45rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere }
h2 { font-size: 1.02rem; margin: 0 0 2px }
p { margin: 0; overflow-wrap: anywhere }
.note { color: var(--muted); font-size: .86rem; margin-bottom: 10px }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 16px 0 0 }
.tile { background: var(--surface); border: 1px solid var(--line); border-radius: 12px; padding: 10px 14px; margin: 0 }
.tile dt { color: var(--muted); font-size: .8rem }
.tile dd { margin: 0; font-size: 1.28rem; font-weight: 600; font-variant-numeric: tabular-nums }
.tile dd + dd { font-size: .8rem; font-weight: 400; color: var(--muted) }
.good { color: var(--good) } .bad { color: var(--bad) }
.chart { width: 100%; min-width: 0; margin: 0 }
.chart.vega-embed { display: block; padding: 0 }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(148px, 1fr)); gap: 10px 14px }
.small figure { margin: 0; min-width: 0 }
.small figcaption { font-size: .78rem; color: var(--muted); overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap }
.key { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: .82rem; margin: 0 0 12px; padding: 0;
  list-style: none }
.key i { display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: 5px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums }
td { overflow-wrap: anywhere }
td:first-child:not(:only-child) { overflow-wrap: normal }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--muted); font-weight: 500; white-space: nowrap }
td.number, th.number { text-align: right }
pre { overflow-x: auto; font-size: .8rem; line-height: 1.45; margin: 8px 0 0 }
summary { cursor: pointer; font-weight: 600; font-size: .95rem }
code { font-size: .86em; overflow-wrap: anywhere }
#vg-tooltip-element { background: var(--surface); color: var(--ink); border: 1px solid var(--line);
  border-radius: 8px; font: 13px/1.4 FONT; padding: 6px 10px; box-shadow: 0 4px 16px #0003; max-width: 90vw }
#vg-tooltip-element table { width: auto; font-size: inherit }
#vg-tooltip-element td { border: 0; padding: 1px 4px; overflow-wrap: anywhere }
#vg-tooltip-element td.key { display: table-cell; color: var(--muted); max-width: 160px }
@media (max-width: 760px) {
  main { grid-template-columns: minmax(0, 1fr); padding: 16px 10px 40px; gap: 12px }
  section { padding: 14px 12px }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)) }
}
@media print { body { background: none } section { break-inside: avoid } }
"""
SCRIPT = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const config = JSON.parse(document.getElementById("config").textContent);
for (const place of document.querySelectorAll("[data-chart]")) {
  vegaEmbed(place, charts[place.dataset.chart], {config, actions: false, renderer: "svg"}).catch(error => {
    place.textContent = "This chart could not be drawn: " + error;
    place.dataset.failed = "";
    console.error(error);
  });
}
"""


class Page:
    """A page that is made piece by piece. Arguments named `html` are markup; all others are text."""

    def __init__(self, title):
        self._title = title
        self._pieces, self._charts = [], {}

    def add(self, html):
        self._pieces.append(html)

    def section(self, heading, note, html, half=False):
        self.add(
            f'<section{" class=half" if half else ""}><h2>{escape(heading)}</h2><p class="note">{escape(note)}</p>'
            f"{html}</section>"
        )

    def chart(self, spec, label):
        """The place of a chart, as markup."""
        name = f"chart{len(self._charts)}"
        self._charts[name] = spec
        return f'<div class="chart" data-chart="{name}" role="figure" aria-label="{escape(label)}"></div>'

    def html(self):
        script = library() if self._charts else ""
        style = STYLE.replace("FONT", FONT).replace("LIGHT", _variables(LIGHT)).replace("DARK", _variables(DARK))
        parts = [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(self._title)}</title><style>{style}</style></head><body><main>",
            *self._pieces,
            "<noscript><section>The charts need JavaScript, which lies in this file.</section></noscript></main>",
        ]
        if self._charts:
            config = {**CONFIG, "font": FONT}
            parts += [_data("charts", self._charts), _data("config", config)]
            parts += [f"<script>{script}</script><script>{SCRIPT}</script>"]
        return "\n".join([*parts, "</body></html>"])


def _variables(colours):
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def _data(name, value):
    # In a script element nothing is escaped, and only a tag's beginning could end it.
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def number(value, text):
    """Markup of a number that keeps its exact value for machines."""
    return f'<data value="{escape(json.dumps(value))}">{escape(text)}</data>'


def tiles(entries):
    """Markup of (name, html of the figure, note, class or '')."""
    return (
        '<dl class="tiles">'
        + "".join(
            f'<div class="tile"><dt>{escape(name)}</dt><dd>{html}</dd>'
            + (f'<dd class="{kind}">{escape(note)}</dd>' if note else "")
            + "</div>"
            for name, html, note, kind in entries
        )
        + "</dl>"
    )


def table(header, rows, numbers=()):
    """Markup of a table of texts; numbers: the columns to be set flush right."""

    def cells(tag, row):
        return "".join(
            f"<{tag}{' class=number' if place in numbers else ''}>{escape(str(cell))}</{tag}>"
            for place, cell in enumerate(row)
        )

    head = f"<thead><tr>{cells('th', header)}</tr></thead>" if header else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def key(colours):
    """Markup of a legend; colours: {name: CSS colour}."""
    entries = "".join(f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for name, colour in colours.items())
    return f'<ul class="key">{entries}</ul>'
