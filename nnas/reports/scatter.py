"""Predicted against measured figures, as a picture."""

from nnas.reports.drawing import picture


def scatter_png(points, unit, title):
    """The bytes of a PNG file. points: [{"measured", "predicted", ...}], in `unit`."""
    low, high = (pick(point[key] for point in points for key in ("measured", "predicted")) for pick in (min, max))
    margin = 0.05 * (high - low) or 0.05 * high
    ends = [{"measured": low - margin}, {"measured": high + margin}]

    def axis(key, kind):
        return {
            "field": key,
            "type": "quantitative",
            "title": f"{kind}, {unit}",
            "scale": {"domain": [end["measured"] for end in ends], "nice": False},
        }

    x, y = axis("measured", "measured"), axis("predicted", "predicted")
    lines = [
        {
            "data": {"values": [{**end, "predicted": share * end["measured"]} for end in ends]},
            "mark": {"type": "line", "color": "var(--muted)", "strokeDash": dash, "strokeWidth": 1, "clip": True},
            "encoding": {"x": x, "y": y},
        }
        for share, dash in ((1.0, [1, 0]), (0.9, [4, 4]), (1.1, [4, 4]))
    ]
    dots = {
        "data": {"values": points},
        "mark": {"type": "circle", "size": 60, "opacity": 0.8, "color": "var(--c0)"},
        "encoding": {"x": x, "y": y},
    }
    specification = {
        "title": {"text": title, "subtitle": "dashed: 10 % above and below", "anchor": "start"},
        "width": 420,
        "height": 420,
        "layer": [*lines, dots],
    }
    return picture(specification)
