"""The latency tables of ProxylessNAS and once-for-all: a flat YAML of layers (Cai et al., 2019 and 2020)."""

import re
from dataclasses import replace
from decimal import Decimal
from statistics import fmean, pstdev

import yaml

from estimators.base import EstimatorError
from estimators.foreign.base import Figure, Format, check_rounds, deviations, milliseconds, shown, whole_number
from estimators.foreign.blocks import Layer, read_shape, show_shape

KEY = re.compile(r"(?P<op>\w+)-input:(?P<input>[\dx]+)-output:(?P<output>[\dx]+)(?P<rest>(?:-\w+:\d+)*)")
NEEDED, OPTIONAL = {"expand", "kernel", "stride", "idskip"}, {"se", "hs"}
LARGEST_RATIO = 10  # a larger `expand` must be a number of channels


class OnceForAll(Format):
    """YAML of `expanded_conv-input:HxWxC-output:HxWxC-expand:6-kernel:5-stride:2-idskip:0`, perhaps with `-se:1-hs:1`,
    to {mean, count, std or var}, in ms; idskip:1 is a shortcut.

    Fixed parts are `Conv` (3x3), `Conv_1` and further ones (1x1), `AvgPool2D` and `Logits`, which holds the pooling
    where its input is larger than 1x1. activation: of blocks that are not marked `hs:1`. fixed_activation: of Conv
    and Conv_1. expand: 'ratio', 'channels' (in the middle of the block), or 'auto', which looks at the whole table.
    Exported are also the rounds and the label of an entry, where they say more than mean and key do.
    """

    name = "once_for_all"
    unit = "ms"

    def __init__(self, activation="relu6", fixed_activation="relu6", expand="auto"):
        if expand not in ("auto", "ratio", "channels"):
            raise EstimatorError(f"expand={expand!r}: possible are auto, ratio, channels")
        self._activation, self._fixed_activation, self._expand = activation, fixed_activation, expand
        for one in (activation, fixed_activation):
            Layer("convolution", (1, 1, 1), (1, 1, 1), activation=one)

    def read(self, text, unit):
        """See Format."""
        values = _flat_mapping(text)
        channels = self._expands_in_channels(values)
        figures, left = [], []
        for key, value in values.items():
            figure = _figure(key, value, unit or self.unit)
            try:
                figures.append(replace(figure, of=self._layer(key, channels)))
            except EstimatorError as error:
                left.append((key, str(error)))
        return figures, left

    def write(self, layers, table):
        """See Format."""
        written, left = {}, []
        given = deviations(table)
        channels = self._expand == "channels"
        for signature, entry in table.entries.items():
            layer = layers[signature]
            key = layer and self._key(layer, channels)
            if key is None or self._layer(key, channels) != layer:
                left.append((entry.label, "no key says what it is"))
                continue
            value = {"mean": fmean(entry.rounds), "count": entry.runs}
            if len(entry.rounds) > 1:
                value |= {"std": pstdev(entry.rounds), "rounds": list(entry.rounds)}
            elif signature in given:
                value["std"] = given[signature]
            written[key] = value if entry.label == key else {**value, "label": entry.label}
        return yaml.safe_dump(written, sort_keys=True, width=10**6) if written else "", left

    def _expands_in_channels(self, values):
        pairs = []
        for key in values:
            found = re.fullmatch(r"expanded_conv-input:\d+x\d+x(\d{1,6})-.*-expand:(\d{1,6})(-.*)?", key)
            if found:
                pairs.append((int(found[1]), int(found[2])))
        if self._expand != "auto" or all(expand <= LARGEST_RATIO for _, expand in pairs):
            return self._expand == "channels"
        if any(expand < channels for channels, expand in pairs):
            raise EstimatorError(
                "whether expand is the ratio or the channels cannot be seen: it is up to "
                f"{max(expand for _, expand in pairs)}, and smaller than the input's channels elsewhere; set "
                "format.expand=ratio or format.expand=channels"
            )
        return True

    def _layer(self, key, channels):
        found = KEY.fullmatch(key)
        if found is None:
            raise EstimatorError("it is no key of this format")
        op, source, output = found["op"], read_shape(found["input"]), read_shape(found["output"])
        pairs = re.findall(r"-(\w+):(\d+)", found["rest"])
        attributes = {name: int(number) for name, number in pairs if len(number) < 7}
        if len(attributes) < len(pairs):
            raise EstimatorError("an attribute is there twice, or has seven digits")
        if op == "expanded_conv":
            return self._block(source, output, attributes, channels)
        if attributes:
            raise EstimatorError(f"nothing is known of {op} with {', '.join(attributes)}")
        if op == "Logits":
            return Layer("affine" if source[1:] in ((), (1, 1)) else "classifier", source, output)
        if op == "AvgPool2D":
            return Layer("global_average_pooling", source, output)
        if re.fullmatch(r"Conv(_\d+)?", op) and len(source) == len(output) == 3:
            # Of all strides, that which makes the output; whether it does is checked where the layer is built.
            stride = -(-source[1] // output[1])
            kernel = 3 if op == "Conv" else 1
            return Layer("convolution", source, output, kernel, stride, activation=self._fixed_activation)
        raise EstimatorError(f"what {op[:40]} computes is not known")

    def _block(self, source, output, attributes, channels):
        missing, unknown = NEEDED - attributes.keys(), attributes.keys() - NEEDED - OPTIONAL
        if missing or unknown:
            what = [f"it lacks {one}" for one in sorted(missing)] + [f"{one} is not known" for one in sorted(unknown)]
            raise EstimatorError("; ".join(what))
        expand = attributes["expand"]
        return Layer(
            "inverted_residual",
            source,
            output,
            attributes["kernel"],
            attributes["stride"],
            expand if channels else expand * source[0],
            squeeze=bool(attributes.get("se")),
            activation="hard_swish" if attributes.get("hs") else self._activation,
            shortcut=bool(attributes["idskip"]),
        )

    def _key(self, layer, channels):
        """The key of a layer, or None; it is right where reading it gives the layer again."""
        shapes = f"-input:{show_shape(layer.input)}-output:{show_shape(layer.output)}"
        if layer.op == "inverted_residual":
            expand = layer.middle if channels else layer.middle // layer.input[0]
            key = f"expanded_conv{shapes}-expand:{expand}-kernel:{layer.kernel}-stride:{layer.stride}"
            key += f"-idskip:{int(layer.shortcut)}"
            hard = layer.activation == "hard_swish" != self._activation
            return key + f"-se:{int(layer.squeeze)}-hs:{int(hard)}" if layer.squeeze or hard else key
        if layer.op == "convolution":
            return ("Conv" if layer.kernel == 3 else "Conv_1") + shapes
        return {"classifier": "Logits", "affine": "Logits", "global_average_pooling": "AvgPool2D"}[layer.op] + shapes


def _flat_mapping(text):
    """{key: a text, or {name: a text or a list of texts}} of YAML; numbers stay texts, so that none is rounded."""
    # libyaml's loader is ten times as fast, and has a limit on depth of its own.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise EstimatorError(f"it is not YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(root, yaml.MappingNode):
        raise EstimatorError("it is no mapping from layers to figures")
    return _mapping(root, _value)


def _mapping(node, convert):
    found = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None or name in found:
            # YAML itself would keep the last one only.
            raise EstimatorError(f"the key {shown(name)} is there twice" if name else "a key in it is no word")
        found[name] = convert(name, value)
    return found


def _value(name, node):
    return _mapping(node, _texts) if isinstance(node, yaml.MappingNode) else _texts(name, node)


def _texts(name, node):
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode) and all(isinstance(one, yaml.ScalarNode) for one in node.value):
        return [one.value for one in node.value]
    raise EstimatorError(f"{shown(name)} is neither a number nor a list of them")


def _figure(key, value, unit):
    if not isinstance(value, dict):
        value = {"mean": value}
    if "mean" not in value:
        raise EstimatorError(f"{shown(key)} has no mean")
    mean = milliseconds(value["mean"], unit, key)
    rounds, label = value.get("rounds"), value.get("label", key)
    if not isinstance(label, str) or (rounds is not None and (not isinstance(rounds, list) or not rounds)):
        raise EstimatorError(f"the label of {shown(key)} is no word, or its rounds are no list of numbers")
    rounds = tuple(milliseconds(one, unit, key) for one in rounds or [value["mean"]])
    check_rounds(rounds, mean, fmean(rounds), key)
    return Figure(
        name=key,
        of=None,
        rounds=rounds,
        runs=whole_number(value.get("count", 1), key, "the count"),
        deviation=_deviation(value, unit, key) if len(rounds) == 1 else None,
        label=label,
    )


def _deviation(value, unit, key):
    if "std" in value:
        return milliseconds(value["std"], unit, key, zero=True)
    if "var" in value:
        variance = milliseconds(value["var"], "ms", key, zero=True)  # checked as a number; its unit is another one
        return milliseconds(Decimal(str(variance)).sqrt(), unit, key, zero=True)
    return None
