"""Predicted against measured figures, as a picture."""

from nnas.reports import charts
from nnas.reports.drawing import picture


def scatter_png(points, unit, title):
    """The bytes of a PNG file. points: [{"measured", "predicted", ...}], in `unit`."""
    low, high = (pick(point[key] for point in points for key in ("measured", "predicted")) for pick in (min, max))
    margin = 0.05 * (high - low) or 0.05 * high
    ends = [{"measured": low - margin}, {"measured": high + margin}]

    scale = {"domain": [end["measured"] for end in ends], "nice": False}
    x, y = (charts.field(key, title=f"{key}, {unit}", scale=scale) for key in ("measured", "predicted"))
    lines = [
        {
            "data": {"values": [{**end, "predicted": share * end["measured"]} for end in ends]},
            "mark": {"type": "line", "color": charts.MUTED, "strokeDash": dash, "strokeWidth": 1, "clip": True},
            "encoding": {"x": x, "y": y},
        }
        for share, dash in ((1.0, [1, 0]), (0.9, [4, 4]), (1.1, [4, 4]))
    ]
    dots = {
        "data": {"values": points},
        "mark": {"type": "circle", "size": 60, "opacity": 0.8, "color": charts.ACCENT},
        "encoding": {"x": x, "y": y},
    }
    specification = {
        "title": {"text": title, "subtitle": "dashed: 10 % above and below", "anchor": "start"},
        "width": 420,
        "height": 420,
        "layer": [*lines, dots],
    }
    return picture(specification)
