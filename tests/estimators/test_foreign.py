"""Tables of others: read with their units, refused where a figure is none, and the same after export and import."""

import csv
import io
from statistics import fmean, median

import nnabla as nn
import pytest
import yaml
from small_parts import convolution, factor, inverted_residual

from estimators import EstimatorError, Latency, MissingCost, Part
from estimators import table as tables
from estimators.foreign import Layer, export_table, import_table, repeated_text, write_new
from estimators.foreign.base import milliseconds
from estimators.foreign.csv_file import CSV
from estimators.foreign.fbnet import FBNetText
from estimators.foreign.once_for_all import OnceForAll
from estimators.signature import signature
from nnas.layers import SHIPPED, conv_bn
from nnas.layers import inverted_residual as inverted_residual_block

BLOCK = "expanded_conv-input:112x112x16-output:56x56x24-expand:6-kernel:5-stride:2-idskip:0"
AS_LAYER = Layer("inverted_residual", (16, 112, 112), (24, 56, 56), 5, 2, 96)
CSV_HEADER = "op,input,output,kernel,stride,expand,value,unit\n"
CSV_ROW = "inverted_residual,112x112x16,56x56x24,5,2,6"


@pytest.fixture
def take(tmp_path):
    """Import a text; returns the table and what was left."""

    def make(text, form, unit=None, **settings):
        path = tmp_path / "theirs"
        path.write_text(text)
        return import_table(path, form, unit, "Pixel 1", "TFLite", **settings)

    return make


@pytest.fixture
def refused(take):
    """The error of a text, which is one line and names the file."""

    def make(text, form, unit=None, **settings):
        with pytest.raises(EstimatorError) as caught:
            take(text, form, unit, **settings)
        message = str(caught.value)
        assert "\n" not in message and message.isprintable() and "theirs: " in message
        return message

    return make


def small_fbnet(**settings):
    layers = [
        {"input": "8x8x4", "output": "4x4x6", "stride": 2},
        {"input": "4x4x6", "output": "4x4x6", "stride": 1, "lines": 3},
    ]
    columns = {"k3_e1": {"kernel": 3, "expand": 1}, "k5_e3_g2": {"kernel": 5, "expand": 3, "groups": 2}, "skip": None}
    return FBNetText(**{"layers": layers, "columns": columns} | settings)


FBNET = "1 2 0\n3 4 9\n3.5 4 9\n3 4 9\n"


def figures(table):
    return {text: entry.rounds for text, entry in table.entries.items()}


def test_a_key_of_once_for_all_is_our_block(take):
    table, left = take(f"{BLOCK}: {{mean: 5.25, count: 50, std: 0.5}}", OnceForAll())
    assert not left
    assert table.entries == {AS_LAYER.signature(): tables.Entry(BLOCK, (5.25,), 50)}
    assert table.origin["deviations"] == {AS_LAYER.signature(): 0.5}
    assert take(f"{BLOCK}: {{mean: 5.25, var: 0.25}}", OnceForAll())[0].origin["deviations"] == {
        AS_LAYER.signature(): 0.5
    }


def test_a_table_says_where_it_is_from(take, tmp_path):
    text = f"{BLOCK}: {{mean: 5.25}}\nGELU-input:1x1x8-output:1x1x8: {{mean: 1}}"
    table, left = take(text, OnceForAll(), "us", came_from="by mail, MIT")
    assert table.fingerprint == {"processor": "Pixel 1", "backend": "TFLite"} and table.batch == 1
    origin = table.origin
    assert (origin["format"], origin["file"], origin["unit"]) == ("once_for_all", "theirs", "us")
    assert origin["came_from"] == "by mail, MIT" and len(origin["sha256"]) == 64
    assert origin["not_taken"] == left == [("GELU-input:1x1x8-output:1x1x8", "what GELU computes is not known")]
    table.write(tmp_path / "ours.json")
    again = tables.read(tmp_path / "ours.json")
    assert again.entries == table.entries and again.origin["sha256"] == origin["sha256"]


def keyed(rest, source="112x112x16", output="112x112x16"):
    return f"expanded_conv-input:{source}-output:{output}-{rest}"


@pytest.mark.parametrize(
    ("key", "layer"),
    [
        (
            keyed("expand:3-kernel:3-stride:1-idskip:1"),
            Layer("inverted_residual", (16, 112, 112), (16, 112, 112), 3, 1, 48),
        ),
        (
            keyed("expand:3-kernel:3-stride:1-idskip:0"),
            Layer("inverted_residual", (16, 112, 112), (16, 112, 112), 3, 1, 48, shortcut=False),
        ),
        (
            keyed("expand:1-kernel:3-stride:1-idskip:0", output="112x112x8"),
            Layer("inverted_residual", (16, 112, 112), (8, 112, 112), 3, 1, 16),
        ),
        (
            keyed("expand:3-kernel:3-stride:1-idskip:1-se:1-hs:1"),
            Layer("inverted_residual", (16, 112, 112), (16, 112, 112), 3, 1, 48, squeeze=True, activation="hard_swish"),
        ),
        (
            keyed("expand:3-kernel:3-stride:1-idskip:1-se:0-hs:0"),
            Layer("inverted_residual", (16, 112, 112), (16, 112, 112), 3, 1, 48),
        ),
        ("Conv-input:224x224x3-output:112x112x32", Layer("convolution", (3, 224, 224), (32, 112, 112), 3, 2)),
        ("Conv-input:7x7x3-output:4x4x8", Layer("convolution", (3, 7, 7), (8, 4, 4), 3, 2)),
        ("Conv_1-input:7x7x320-output:7x7x1280", Layer("convolution", (320, 7, 7), (1280, 7, 7))),
        ("Logits-input:7x7x1280-output:1000", Layer("classifier", (1280, 7, 7), (1000,))),
        ("Logits-input:1x1x1280-output:1x1x1000", Layer("affine", (1280, 1, 1), (1000,))),
        ("Logits-input:1280-output:1000", Layer("affine", (1280, 1, 1), (1000,))),
        ("AvgPool2D-input:7x7x960-output:1x1x960", Layer("global_average_pooling", (960, 7, 7), (960, 1, 1))),
        ("AvgPool2D-input:7x7x960-output:960", Layer("global_average_pooling", (960, 7, 7), (960, 1, 1))),
    ],
)
def test_keys_of_once_for_all(take, key, layer):
    table, left = take(f"{key}: {{mean: 1}}", OnceForAll())
    assert not left and list(table.entries) == [layer.signature()]


def test_activations_of_a_table_are_settings(take):
    form = OnceForAll(activation="relu", fixed_activation="hard_swish")
    texts = [BLOCK, BLOCK + "-se:0-hs:0", BLOCK + "-se:0-hs:1", "Conv_1-input:7x7x32-output:7x7x64"]
    found = [next(iter(take(f"{key}: {{mean: 1}}", form)[0].entries)) for key in texts]
    assert found[0] == found[1] != found[2]
    assert "ReLU(" in found[0] and "AddScalar" in found[2] and "AddScalar" in found[3]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("Mystery-input:7x7x320-output:7x7x320", "what Mystery computes is not known"),
        ("latency of everything", "no key of this format"),
        (keyed("expand:3-kernel:3-stride:1"), "it lacks idskip"),
        (keyed("expand:3-kernel:3-stride:1-idskip:0-bias:1"), "bias is not known"),
        (keyed("expand:3-expand:6-kernel:3-stride:1-idskip:0"), "twice"),
        (keyed("expand:0-kernel:3-stride:1-idskip:0"), "whole number from 1"),
        (keyed("expand:3-kernel:3-stride:2-idskip:0"), "output would be 56x56x16"),
        (keyed("expand:3-kernel:3-stride:2-idskip:1", output="56x56x16"), "a shortcut needs"),
        (keyed("expand:3-kernel:4-stride:1-idskip:1"), "kernel 4 is even"),
        ("Conv-input:7x7x3-output:5x5x8", "output would be 4x4x8"),
        ("Conv-input:3-output:8", "not known"),
        ("Conv_1-input:7x7x3-output:7x7x8-stride:1", "nothing is known of Conv_1 with stride"),
        ("\"a\\u0007b\"", "no key"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_listed_and_the_rest_taken(take, key, why):
    table, left = take(f"{BLOCK}: {{mean: 5}}\n{key}: {{mean: 1}}\n", OnceForAll())
    assert list(table.entries) == [AS_LAYER.signature()]
    assert len(left) == 1 and why in left[0][1]


def test_expand_is_the_ratio_or_the_channels(take, refused):
    ratio, channels = BLOCK, BLOCK.replace("expand:6", "expand:96")
    both = [next(iter(take(f"{key}: {{mean: 1}}", OnceForAll())[0].entries)) for key in (ratio, channels)]
    assert both[0] == both[1] == AS_LAYER.signature()
    # One that is wider than any ratio decides for the whole table.
    first = keyed("expand:16-kernel:3-stride:1-idskip:0", output="112x112x8")
    table, _ = take(f"{first}: {{mean: 1}}\n{channels}: {{mean: 2}}", OnceForAll())
    assert Layer("inverted_residual", (16, 112, 112), (8, 112, 112), 3, 1, 16).signature() in table.entries
    mixed = f"{ratio}: {{mean: 1}}\n{channels}: {{mean: 1}}"
    assert "format.expand=ratio or format.expand=channels" in refused(mixed, OnceForAll())
    narrow = BLOCK.replace("expand:6", "expand:9")
    assert "cannot be" not in str(take(f"{BLOCK}: {{mean: 1}}\n{narrow}: {{mean: 1}}", OnceForAll(expand="ratio"))[1])
    with pytest.raises(EstimatorError, match="possible are auto, ratio, channels"):
        OnceForAll(expand="both")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_come_out_alike(take, unit):
    """To the last bit, for decimal numbers that are no binary ones."""
    shift = {"s": -3, "ms": 0, "us": 3, "ns": 6}[unit]

    def value(text, power=1):
        return f"{text}e{power * shift}"

    texts = ["0.1", "1.23", "17.3", "0.007"]
    for text in texts:
        table, _ = take(f"{BLOCK}: {{mean: {value(text)}, std: {value('0.3')}}}", OnceForAll(), unit)
        assert figures(table) == {AS_LAYER.signature(): (float(text),)}
        assert table.origin["deviations"] == {AS_LAYER.signature(): 0.3}
        table, _ = take(f"{BLOCK}: {{mean: 1, var: {value('0.09', 2)}}}", OnceForAll(), unit)
        assert table.origin["deviations"][AS_LAYER.signature()] == pytest.approx(0.3, rel=1e-12)
        assert figures(take(f"{CSV_HEADER}{CSV_ROW},{value(text)},{unit}\n", CSV())[0]) == {
            AS_LAYER.signature(): (float(text),)
        }
        rows = f"{value(text)} 1 1\n" + "1 1 1\n" * 3
        assert (float(text),) in figures(take(rows, small_fbnet(), unit)[0]).values()


BAD_FIGURES = [
    "-1",
    "0",
    "0.0",
    ".nan",
    "nan",
    ".inf",
    "inf",
    "fast",
    "1e999",
    "1e-999",
    "1e99999999999",
    "'1 2'",
    "true",
]


@pytest.mark.parametrize("figure", BAD_FIGURES)
def test_a_figure_that_is_no_latency_is_refused(refused, figure):
    good = "Conv-input:224x224x3-output:112x112x32: {mean: 1}"
    assert "expanded_conv-input:112x112x16" in refused(f"{good}\n{BLOCK}: {{mean: {figure}}}", OnceForAll())
    figure = figure.strip("'").replace(" ", ":")
    assert "line 3" in refused(f"{CSV_HEADER}{CSV_ROW},1,ms\n{CSV_ROW},{figure},ms\n", CSV())
    assert "layer 4 k5_e3_g2" in refused(
        FBNET.replace("3 4 9\n3.5 4 9\n3 4", f"3 4 9\n3.5 4 9\n3 {figure}"), small_fbnet(), "ms"
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{count: 5}", "has no mean"),
        ("", "has the figure ''"),
        ("[1, 2]", "has the figure"),
        ("{mean: [1]}", "has the figure"),
        ("{mean: {a: 1}}", "neither a number nor a list"),
        ("{mean: 1, count: 0}", "the count '0'"),
        ("{mean: 1, count: 2.5}", "the count '2.5'"),
        ("{mean: 1, std: -1}", "must be a number from 0 on"),
        ("{mean: 1, var: -1}", "must be a number from 0 on"),
        ("{mean: 1, std: .nan}", "must be a number from 0 on"),
        ("{mean: 1, rounds: [1, 2]}", "its 2 rounds 1.5 ms"),
        ("{mean: 1, rounds: []}", "no list"),
        ("{mean: 1, rounds: [1, -1]}", "'-1'"),
        ("{mean: 1, label: [a]}", "no word"),
        ("{mean: 1, mean: 2}", "there twice"),
    ],
)
def test_damaged_values_of_once_for_all(refused, value, says):
    assert says in refused(f"{BLOCK}: {value}", OnceForAll())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no mapping"),
        ("- 1", "no mapping"),
        ("{", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("? [a]\n: 1", "no word"),
        ("!!python/object/apply:os.system ['true']: {mean: 1}", "no word"),
        (f"{BLOCK}: {{mean: 1}}\n{BLOCK}: {{mean: 1}}", "there twice"),
        ("Mystery-input:1x1x1-output:1x1x1: {mean: 1}", "none of its modules"),
    ],
)
def test_what_is_no_table_of_once_for_all(refused, text, says):
    assert says in refused(text, OnceForAll())


def test_entries_of_one_module_agree_or_are_an_error(take, refused):
    twin = BLOCK + "-se:0-hs:0"
    message = refused(f"{BLOCK}: {{mean: 1}}\n{twin}: {{mean: 1.5}}", OnceForAll())
    assert BLOCK in message and twin in message and "1 and 1.5 ms" in message
    table, _ = take(f"{BLOCK}: {{mean: 1}}\n{twin}: {{mean: 1.0}}", OnceForAll())
    assert figures(table) == {AS_LAYER.signature(): (1.0,)}
    message = refused(f"{CSV_HEADER}{CSV_ROW},1,ms\n{CSV_ROW},1500,us\n", CSV())
    assert "line 2" in message and "line 3" in message
    assert len(take(f"{CSV_HEADER}{CSV_ROW},1,ms\n{CSV_ROW},1000,us\n", CSV())[0].entries) == 1


def test_lines_of_fbnet_are_layers_and_its_numbers_operators(take):
    table, left = take(FBNET, small_fbnet(), "s")
    first = Layer("inverted_residual", (4, 8, 8), (6, 4, 4), 3, 2, 4, pointwise=True)
    second = Layer("inverted_residual", (6, 4, 4), (6, 4, 4), 5, 1, 18, groups=2)
    assert table.entries[first.signature()] == tables.Entry("layer 1 k3_e1", (1000.0,), 1)
    # Layers of one shape are measured for themselves.
    third = Layer("inverted_residual", (6, 4, 4), (6, 4, 4), 3, 1, 6, pointwise=True)
    assert table.entries[third.signature()] == tables.Entry("layer 2 k3_e1", (3000.0, 3500.0, 3000.0), 3)
    assert table.entries[second.signature()].rounds == (4000.0,)
    assert [name for name, _ in left] == [f"layer {number} skip" for number in (1, 2, 3, 4)]
    assert figures(take(FBNET.replace("1 2 0", "1 2"), small_fbnet(), "s")[0]) == figures(table)
    plain, _ = take(FBNET, small_fbnet(always_expand=False), "s")
    assert Layer("inverted_residual", (4, 8, 8), (6, 4, 4), 3, 2, 4).signature() in plain.entries


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        (FBNET, None, "has no unit; add unit="),
        (FBNET + "1 2 3\n", "ms", "5 lines, and format.layers describes 4"),
        (FBNET.replace("1 2 0", "1 2 0 4"), "ms", "line 1 has 4 numbers"),
        (FBNET.replace("1 2 0", "1"), "ms", "line 1 has 1 numbers"),
        (FBNET.replace("4 9", "4 -9"), "ms", "'layer 2 skip' has the figure '-9'"),
    ],
)
def test_damaged_tables_of_fbnet(refused, text, unit, says):
    assert says in refused(text, small_fbnet(), unit)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"layers": [{"input": "8x8x4", "output": "4x4x6"}]}, "must give input, output, stride"),
        ({"layers": [{"input": "8x8x4", "output": "4x4x6", "stride": 2, "lines": 0}]}, "must give"),
        ({"layers": [{"input": "8x8", "output": "4x4x6", "stride": 2}]}, "HxWxC"),
        ({"layers": [{"input": "8x8x4", "output": "4x4x6", "stride": "a"}]}, "whole number"),
        ({"columns": {"k3": {"kernel": 3}}}, "columns.k3.*must give kernel, expand"),
        ({"columns": {"k3": {"kernel": 3, "expand": 1.5}}}, "whole number"),
    ],
)
def test_a_description_of_fbnet_that_is_none(settings, says):
    with pytest.raises(EstimatorError, match=says):
        small_fbnet(**settings)


def test_rows_of_csv(take):
    text = (
        "label,op,input,output,kernel,stride,expand,groups,pointwise,activation,squeeze,shortcut,signature,value,unit\n"
        "a,inverted_residual,112x112x16,56x56x24,5,2,6,,,,,,,5.25,ms\n"
        "b,convolution,7x7x320,7x7x1280,,,,,,none,,,,1,ms\n"
        "c,inverted_residual,8x8x4,8x8x4,3,1,1,2,yes,hard_swish,1,no,,2,ms\n"
        "d,classifier,7x7x1280,1000,,,,,,,,,,3,ms\n"
        f'e,,,,,,,,,,,,"{signature(convolution())}",4,us\n'
    )
    table, left = take(text, CSV())
    assert not left
    odd = Layer("inverted_residual", (4, 8, 8), (4, 8, 8), 3, 1, 4, True, 2, True, "hard_swish", False)
    expected = [
        ("a", AS_LAYER.signature(), 5.25),
        ("b", Layer("convolution", (320, 7, 7), (1280, 7, 7), activation="none").signature(), 1.0),
        ("c", odd.signature(), 2.0),
        ("d", Layer("classifier", (1280, 7, 7), (1000,)).signature(), 3.0),
        ("e", signature(convolution()), 0.004),
    ]
    assert [(entry.label, text, entry.rounds[0]) for text, entry in table.entries.items()] == expected


def test_columns_of_csv_may_have_other_names(take):
    text = f"{CSV_HEADER}{CSV_ROW},5.25,ms\n".replace("value", "took").replace(",unit", ",note")
    table, _ = take(text, CSV(columns={"value": "took"}, ignore=["note"]), "ms")
    assert figures(table) == {AS_LAYER.signature(): (5.25,)}
    with pytest.raises(EstimatorError, match="format.columns: latency is none of op, input"):
        CSV(columns={"latency": "took"})


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("", "ms", "value has to be there"),
        ("op,input\n", "ms", "value has to be there"),
        ("op,value,value\n", "ms", "each once"),
        ("op,value,dilation\n", "ms", "format.ignore=[THEIRS]"),
        ("op,value\na,1,2\n", "ms", "line 2 has 3 cells"),
        ('op,value\n"a"b,1\n', "ms", "line 2 is no CSV"),
        ("op,value\na,1\n", None, "'line 2' has no unit"),
        ("op,value,unit\na,1,J\n", None, "has the unit 'J'; a latency is in one of s, ms"),
        ("op,value,unit\na,1,s\n", "ms", "in 's', and unit=ms is asked for"),
        ("op,value,runs\na,1,0\n", "ms", "the runs '0'"),
        ("op,value,rounds\na,1,1 2 3\n", "ms", "its 3 rounds 2 ms"),
        ("op,value\nmystery,1\n", "ms", "none of its modules can be taken over, of 1: 'line 2' (op 'mystery'"),
        ("op,value,signature\n,1,float32: x\n", "ms", "none of ours"),
        ("op,value\nconvolution,1\n", "ms", "the shape ''"),
        (f"{CSV_HEADER}inverted_residual,112x112x16,56x56x24,5,2,1.5,1,ms\n", None, "expand '1.5'"),
        (f"{CSV_HEADER}\"{CSV_ROW}", None, "no CSV"),
    ],
)  # fmt: skip
def test_damaged_tables_of_csv(refused, text, unit, says):
    assert says in refused(text, CSV(), unit)


def test_a_signature_of_another_batch_or_type_is_not_taken(take):
    other = [signature(convolution(batch=2)), signature(convolution(), "float16")]
    rows = "".join(f'"{text}",1\n' for text in [signature(convolution()), *other])
    table, left = take(f"signature,value\n{rows}", CSV(), "ms")
    assert list(table.entries) == [signature(convolution())] and len(left) == 2
    table, left = take(f"signature,value\n{rows}", CSV(), "ms", batch=2)
    assert list(table.entries) == [other[0]] and len(left) == 2


def test_a_file_that_is_no_text_or_not_there(tmp_path, refused):
    path = tmp_path / "theirs"
    path.write_bytes(b"\xef\xbb\xbf" + f"{CSV_HEADER}{CSV_ROW},1,ms\r\n".encode())
    assert len(import_table(path, CSV(), None, "a", "b")[0].entries) == 1
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EstimatorError, match="theirs: it is no text in UTF-8"):
        import_table(path, CSV(), "ms", "a", "b")
    with pytest.raises(EstimatorError, match="cannot be read .No such file"):
        import_table(tmp_path / "absent", CSV(), "ms", "a", "b")
    with pytest.raises(EstimatorError, match="no regular file"):
        import_table(tmp_path, CSV(), "ms", "a", "b")
    for settings, says in (
        ({"unit": "J"}, "unit='J'"),
        ({"processor": "a\nb"}, "processor="),
        ({"batch": 0}, "batch=0"),
    ):
        with pytest.raises(EstimatorError, match=says):
            import_table(path, CSV(), **{"unit": "ms", "processor": "a", "backend": "b"} | settings)


def measured():
    """A table with blocks that all formats know, and one part that only CSV can take."""
    table = tables.Table({"processor": "here", "backend": "cpu"})
    for number, figure in enumerate((1.1, 1.3, 1.2)):
        table.add_round(AS_LAYER.signature(), "space: block1 = e6_k5", figure, 10 + number)
    table.add_round(Layer("classifier", (8, 7, 7), (10,)).signature(), "space: head", 0.1, 7)
    return table


FORMS = {
    "once_for_all": (OnceForAll(), None),
    "ratios": (OnceForAll(expand="ratio"), None),
    "channels": (OnceForAll(expand="channels"), None),
    "csv": (CSV(), None),
    "fbnet": (small_fbnet(), "ms"),
}


@pytest.mark.parametrize("name", ["once_for_all", "ratios", "channels", "csv"])
def test_a_measured_table_is_the_same_after_export_and_import(take, name):
    table, (form, unit) = measured(), FORMS[name]
    text, left = export_table(table, form)
    assert not left
    assert take(text, form, unit)[0].entries == table.entries


@pytest.mark.parametrize("name", ["once_for_all", "csv"])
def test_an_imported_table_is_the_same_after_export_and_import(take, name):
    text = f"{BLOCK}: {{mean: 5.25, count: 50, std: 0.5}}\nLogits-input:7x7x8-output:10: {{mean: 0.1}}"
    table, _ = take(text, OnceForAll())
    form, unit = FORMS[name]
    again, _ = take(export_table(table, form)[0], form, unit)
    assert again.entries == table.entries and again.origin["deviations"] == table.origin["deviations"]


def test_the_exported_yaml_is_what_others_read(take):
    content = yaml.safe_load(export_table(measured(), OnceForAll())[0])
    value = content[BLOCK]
    assert value["mean"] == fmean([1.1, 1.3, 1.2]) and value["count"] == 33
    assert value["std"] == pytest.approx((((0.1**2) * 2) / 3) ** 0.5)
    assert content["Logits-input:7x7x8-output:10"] == {"mean": 0.1, "count": 7, "label": "space: head"}
    channels = yaml.safe_load(export_table(measured(), OnceForAll(expand="channels"))[0])
    assert BLOCK.replace("expand:6", "expand:96") in channels


def test_the_exported_csv_says_what_is_a_layer_in_words(take):
    table = tables.Table({"processor": "here", "backend": "cpu"})
    layers = [
        AS_LAYER,
        Layer("inverted_residual", (4, 8, 8), (4, 8, 8), 3, 1, 4, True, 2, True, "hard_swish", False),
        Layer("convolution", (3, 8, 8), (4, 8, 8), 5, activation="none"),
        Layer("classifier", (8, 7, 7), (10,)),
        # No whole ratio: its signature says it.
        Layer("inverted_residual", (4, 8, 8), (4, 8, 8), 3, 1, 10),
    ]
    for layer in layers:
        table.add_round(layer.signature(), "a", 1.0, 1)
    rows = list(csv.DictReader(io.StringIO(export_table(table, CSV())[0])))
    assert [row["op"] for row in rows] == ["inverted_residual"] * 2 + ["convolution", "classifier", ""]
    assert [bool(row["signature"]) for row in rows] == [False] * 4 + [True]
    assert (rows[1]["groups"], rows[1]["activation"], rows[1]["shortcut"]) == ("2", "hard_swish", "0")
    assert all(row["unit"] == "ms" and row["value"] == "1.0" for row in rows)


def test_an_fbnet_table_is_the_same_after_export_and_import(take):
    table, _ = take(FBNET, small_fbnet(), "ms")
    text, left = export_table(table, small_fbnet())
    assert not left
    numbers = [[float(word) for word in line.split()] for line in text.splitlines()]
    assert numbers == [[1, 2], [3, 4, 0], [3.5, 4, 0], [3, 4, 0]]
    again, _ = take(text, small_fbnet(), "ms")
    assert again.entries == table.entries
    # Other rounds than lines: every line has the figure.
    for text in table.entries:
        table.add_round(text, "", 5.0, 1)
    text, _ = export_table(table, small_fbnet())
    again, _ = take(text, small_fbnet(), "ms")
    assert {key: entry.measurement().median for key, entry in again.entries.items()} == {
        key: median(entry.rounds) for key, entry in table.entries.items()
    }


def test_what_a_format_has_no_words_for_is_listed(take):
    table = measured()
    table.add_round(signature(convolution()), "a convolution and more", 1.0, 1)
    table.add_round(Layer("convolution", (3, 8, 8), (4, 8, 8), 5).signature(), "5x5", 1.0, 1)
    table.add_round(signature(two_blocks()), "two", 1.0, 1)
    text, left = export_table(table, OnceForAll())
    assert [name for name, _ in left] == ["5x5", "two"] and len(yaml.safe_load(text)) == 3
    text, left = export_table(table, CSV())
    assert not left and take(text, CSV())[0].entries == table.entries
    with pytest.raises(EstimatorError, match="a number for every operator, and 8 are not known, as layer 1 k3_e1"):
        export_table(table, small_fbnet())
    full, _ = take(FBNET, small_fbnet(), "ms")
    full.add_round(AS_LAYER.signature(), "another", 1.0, 1)
    assert export_table(full, small_fbnet())[1] == [("another", "no line has it")]
    only = tables.Table(table.fingerprint, entries={signature(two_blocks()): tables.Entry("two", (1.0,), 1)})
    with pytest.raises(EstimatorError, match="no words for any of the modules, of 1: 'two'"):
        export_table(only, OnceForAll())


def two_blocks():
    first = inverted_residual()
    second = Layer("convolution", (4, 6, 6), (4, 6, 6), 3).part()
    x = second.inputs[0]
    y = nn.functions.relu6(nn.functions.tanh(first.outputs[0]))
    return Part((y, x), (first.inputs[0], x), "two")


def test_several_figures_of_a_module_are_told(take):
    assert repeated_text(take(FBNET, small_fbnet(), "ms")[0]) == (
        "1 modules have several figures, up to 17% apart; their median counts"
    )
    assert repeated_text(take(f"{BLOCK}: {{mean: 1}}", OnceForAll())[0]) == ""


def test_a_file_that_is_there_is_kept(tmp_path):
    path = tmp_path / "there.json"
    path.write_text("mine")
    with pytest.raises(EstimatorError, match="there.json is there already"):
        write_new(path, measured().write)
    assert path.read_text() == "mine"

    def fail(temporary):
        temporary.write_text("half")
        raise OSError(28, "No space left")

    with pytest.raises(EstimatorError, match="new.json cannot be written .No space left"):
        write_new(tmp_path / "new.json", fail)
    assert [one.name for one in tmp_path.iterdir()] == ["there.json"]
    seen = []
    write_new(tmp_path / "whole.json", lambda temporary: (seen.append(temporary), temporary.write_text("whole")))
    # It gets its name when it is whole.
    assert len(seen) == 1 and seen[0] != tmp_path / "whole.json"
    write_new(tmp_path / "below" / "new.json", measured().write)
    assert tables.read(tmp_path / "below" / "new.json").entries == measured().entries


def test_numbers_are_shifted_and_not_multiplied():
    assert milliseconds("0.0049", "s", "a") == 4.9 != 0.0049 * 1000
    assert milliseconds(4900, "us", "a") == 4.9


@pytest.fixture
def imported(take, tmp_path):
    """A Latency over an imported table."""

    def make(text, form=None, **settings):
        table, _ = take(text, form or OnceForAll(), **settings)
        (tmp_path / "ours.json").unlink(missing_ok=True)
        table.write(tmp_path / "ours.json")
        return Latency(device="cpu", folder=tmp_path / "none", table=tmp_path / "ours.json")

    return make


def stem_and_block():
    x = nn.Variable((1, 3, 8, 8))
    y = conv_bn(x, 4, 3, SHIPPED, "stem", 2, activation="relu6")
    return Part((inverted_residual_block(y, 6, 1, 3, 1, SHIPPED, "block"),), (x,), "stem and block")


STEM = "Conv-input:8x8x3-output:4x4x4: {mean: 0.5}\n"
FIRST = "expanded_conv-input:4x4x4-output:4x4x6-expand:1-kernel:3-stride:1-idskip:0: {mean: 0.25}\n"


def test_a_part_that_others_measured_in_pieces_is_their_sum(imported):
    part = stem_and_block()
    assert imported(STEM + FIRST).costs([part]) == [0.75]
    with pytest.raises(MissingCost, match="stem and block.*imported from theirs: run coverage"):
        imported(STEM).costs([part])


def test_a_measured_table_has_no_pieces(tmp_path):
    """Sums of pieces are not what is measured, and what is not measured here can be."""
    table = tables.Table({"processor": "elsewhere", "backend": "cpu"})
    for layer in (
        Layer("convolution", (3, 8, 8), (4, 4, 4), 3, 2),
        Layer("inverted_residual", (4, 4, 4), (6, 4, 4), 3, 1, 4),
    ):
        table.add_round(layer.signature(), "a", 1.0, 1)
    table.write(tmp_path / "ours.json")
    with pytest.raises(MissingCost, match="elsewhere, run"):
        Latency(device="cpu", table=tmp_path / "ours.json").costs([stem_and_block()])


def test_an_imported_table_is_uncalibrated_and_says_so(imported):
    latency = imported(STEM + FIRST)
    assert factor(latency, [stem_and_block()], [0.75]) == (1.0, None)
    assert latency.description()["imported_from"] == "theirs"
    assert not latency.measures_here


def test_a_table_that_others_did_not_make_needs_a_factor(tmp_path):
    table = tables.Table({"processor": "elsewhere", "backend": "cpu"}, origin={"file": "networks.csv"})
    table.add_round(AS_LAYER.signature(), "a", 1.0, 1)
    table.write(tmp_path / "ours.json")
    latency = Latency(device="cpu", table=tmp_path / "ours.json")
    assert latency.description()["imported_from"] is None
    with pytest.raises(MissingCost, match="no factor"):
        factor(latency, [stem_and_block()], [0.75])


def test_coverage_counts_modules_once_and_lists_what_lacks(imported):
    latency = imported(STEM + FIRST)
    stem = Layer("convolution", (3, 8, 8), (4, 4, 4), 3, 2).part()
    x = nn.Variable((1, 2))
    parts = [
        stem,
        stem,
        stem_and_block(),
        inverted_residual(),
        inverted_residual(label="again"),
        Part((x,), (x,), "skip"),
    ]
    whole, cut, lacks = latency.coverage(parts)
    assert (whole, cut, [lack.label for lack in lacks]) == (1, 1, ["inverted_residual"])
