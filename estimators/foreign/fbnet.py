"""The text tables of FBNet: one line a layer, one number an operator (Wu et al., 2019)."""

from statistics import median

from estimators.base import EstimatorError
from estimators.foreign.base import Figure, Format, known_unit, milliseconds
from estimators.foreign.blocks import Layer, read_shape

LINE = ("input", "output", "stride")
OPERATOR = {"kernel", "expand", "groups"}
MOST_LINES = 1000


class FBNetText(Format):
    """Lines of numbers, whose meaning is not in the file.

    layers: what the lines are, in order: a list of {input: HxWxC, output: HxWxC, stride, lines: how many alike}.
    columns: what the numbers of a line are, in order: {name: {kernel, expand, groups}}, or {name: null} for the
    operator that passes its input on, which costs nothing here; lines of layers where it cannot be may lack it.
    activation: of the blocks. always_expand: whether there is a 1x1 convolution before the depthwise one also where
    expand is 1, as FBNet has it. Lines of layers of one shape are repeated measurements of it.
    """

    name = "fbnet"
    repeats = True

    def __init__(self, layers, columns, activation="relu6", always_expand=True):
        self._columns = list(columns)
        self._lines = []
        for layer in layers:
            lines = isinstance(layer, dict) and layer.get("lines", 1)
            if type(lines) is not int or not 1 <= lines <= MOST_LINES or {"lines", *layer} != {"lines", *LINE}:
                raise EstimatorError(f"format.layers: {layer!r} must give input, output, stride and perhaps lines")
            source, output, stride = read_shape(str(layer["input"])), read_shape(str(layer["output"])), layer["stride"]
            line = {
                name: operator and _operator(name, operator, source, output, stride, activation, always_expand)
                for name, operator in columns.items()
            }
            self._lines += [(line, stride == 1 and source == output)] * lines

    def read(self, text, unit):
        """See Format."""
        unit = known_unit(unit, "the table")
        rows = [line.split() for line in text.splitlines() if line.strip()]
        if len(rows) != len(self._lines):
            raise EstimatorError(f"it has {len(rows)} lines, and format.layers describes {len(self._lines)}")
        figures, left = [], []
        for number, (row, (line, _)) in enumerate(zip(rows, self._lines, strict=True), start=1):
            needed = [name for name in line if line[name] is not None]
            if len(row) not in (len(self._columns), len(needed)):
                raise EstimatorError(
                    f"line {number} has {len(row)} numbers, and format.columns describes {len(self._columns)}: "
                    f"{', '.join(self._columns)}"
                )
            names = self._columns if len(row) == len(self._columns) else needed
            for name, value in zip(names, row, strict=True):
                full = f"layer {number} {name}"
                # Where nothing is computed some tables have 0.
                figure = milliseconds(value, unit, full, zero=not line[name])
                if line[name]:
                    figures.append(Figure(full, line[name], (figure,)))
                else:
                    left.append((full, "it computes nothing, and costs nothing here"))
        return figures, left

    def write(self, layers, table):
        """See Format. Raises EstimatorError where the table lacks a number of any line."""
        known = {layer: table.entries[signature] for signature, layer in layers.items() if layer}
        asked = [layer for line, _ in self._lines for layer in line.values() if layer]
        lacking = [
            f"layer {number} {name}"
            for number, (line, _) in enumerate(self._lines, start=1)
            for name, layer in line.items()
            if layer and layer not in known
        ]
        if lacking:
            raise EstimatorError(
                f"a table in the format {self.name} has a number for every operator, and {len(lacking)} are not "
                f"known, as {lacking[0]}; measure them, or describe fewer layers and columns in format"
            )
        met, rows = {}, []
        for line, is_skippable in self._lines:
            row = []
            for layer in line.values():
                if layer:
                    rounds, before = known[layer].rounds, met.get(layer, 0)
                    met[layer] = before + 1
                    row.append(repr(rounds[before] if len(rounds) == asked.count(layer) else median(rounds)))
                elif is_skippable:
                    row.append("0")
            rows.append(" ".join(row))
        has_line = set(asked)
        left = [
            (entry.label, "no line has it") for text, entry in table.entries.items() if layers[text] not in has_line
        ]
        return "\n".join(rows) + "\n", left


def _operator(name, operator, source, output, stride, activation, always_expand):
    if not isinstance(operator, dict) or not {"kernel", "expand"} <= operator.keys() <= OPERATOR:
        raise EstimatorError(f"format.columns.{name}={operator!r}: it must give kernel, expand and perhaps groups")
    expand = operator["expand"]
    return Layer(
        "inverted_residual",
        source,
        output,
        operator["kernel"],
        stride,
        expand * source[0],
        pointwise=always_expand or expand > 1,
        groups=operator.get("groups", 1),
        activation=activation,
    )
