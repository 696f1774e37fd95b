"""Tables of others, from their file to a search: the commands, and the space of ProxylessNAS against a table of it."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from test_app import BATCHES, DATA, SHORT, call, check_error

from estimators import Latency
from estimators import table as tables
from estimators.foreign import import_table
from estimators.foreign.once_for_all import OnceForAll
from nnas.config import build, load
from nnas.costs import Costs, Term, extremes, load_costs
from nnas.deciders import listed
from nnas.pricing import price
from nnas.terminal import costs_text, coverage_text

TINY = [
    "space.name=tiny",
    "space.stages=[{channels: 24, blocks: 2, stride: 2}]",
    "space.stem={channels: 12, stride: 1}",
    "space.first={channels: 16, stride: 1}",
    "space.kernels=[3, 5]",
    "space.head=32",
]


def theirs(space):
    """{key: ms} of a once-for-all table of all that a MobileNet space has, with made-up figures; each differs."""
    figures = {}

    def add(key):
        return figures.setdefault(key, 1 + len(figures) / 8)

    def block(size, channels, outmaps, expansion, kernel, stride):
        after = -(-size // stride)
        skips = int(stride == 1 and channels == outmaps)
        key = f"expanded_conv-input:{size}x{size}x{channels}-output:{after}x{after}x{outmaps}"
        add(f"{key}-expand:{expansion}-kernel:{kernel}-stride:{stride}-idskip:{skips}")
        return after

    image, size, _ = space.input_shape
    channels, after = space.stem.channels, -(-size // space.stem.stride)
    add(f"Conv-input:{size}x{size}x{image}-output:{after}x{after}x{channels}")
    size = after
    if space.first:
        size, channels = block(size, channels, space.first.channels, 1, 3, space.first.stride), space.first.channels
    for stage in space.stages:
        for number in range(stage.blocks):
            stride = stage.stride if number == 0 else 1
            for expansion in space.expansions:
                for kernel in space.kernels:
                    after = block(size, channels, stage.channels, expansion, kernel, stride)
            size, channels = after, stage.channels
    add(f"Conv_1-input:{size}x{size}x{channels}-output:{size}x{size}x{space.head}")
    add(f"Logits-input:{size}x{size}x{space.head}-output:{space.classes}")
    return figures


def as_yaml(figures):
    return "".join(f"{key}: {{mean: {figure}, count: 10}}\n" for key, figure in figures.items())


@pytest.fixture
def home(tmp_path):
    before = os.getcwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture
def tiny(home):
    """The figures of a table that covers the tiny space, in theirs.yaml."""
    figures = theirs(load("coverage", None, ["table=a", *TINY]).space)
    Path("theirs.yaml").write_text(as_yaml(figures))
    return figures


def test_the_space_of_proxylessnas_against_a_table_of_it(home):
    config = load("coverage", None, ["table=ours.json", "space=mobilenet_imagenet", "device=cpu"])
    figures = theirs(config.space)
    Path("theirs.yaml").write_text(as_yaml(figures))
    table, left = import_table("theirs.yaml", OnceForAll(), None, "Pixel 1", "TFLite")
    assert not left and len(table.entries) == len(figures)
    table.write("ours.json")
    network = build(config.space)
    space = listed(network)
    costs = price(network, space, build(config.estimator))
    assert (costs.factor, costs.error) == (1.0, None)
    # The fixed parts alone: what comes before the first block and behind the last, in pieces; all blocks skipped
    # that can be, and the others the smallest.
    choices = {decision.name: "skip" if "skip" in decision.options else "e3_k3" for decision in space.decisions}
    blocks = [
        "112x112x16-output:56x56x24-expand:3-kernel:3-stride:2", "56x56x24-output:28x28x40-expand:3-kernel:3-stride:2",
        "28x28x40-output:14x14x80-expand:3-kernel:3-stride:2", "14x14x80-output:14x14x96-expand:3-kernel:3-stride:1",
        "14x14x96-output:7x7x192-expand:3-kernel:3-stride:2", "7x7x192-output:7x7x320-expand:3-kernel:3-stride:1",
    ]  # fmt: skip
    keys = [f"expanded_conv-input:{block}-idskip:0" for block in blocks]
    keys += [
        "Conv-input:224x224x3-output:112x112x32",
        "expanded_conv-input:112x112x32-output:112x112x16-expand:1-kernel:3-stride:1-idskip:0",
        "Conv_1-input:7x7x320-output:7x7x1280",
        "Logits-input:7x7x1280-output:1000",
    ]
    assert costs.cost(choices) == pytest.approx(sum(figures[key] for key in keys), rel=1e-12)
    bigger = {**choices, "stage3_block2": "e6_k7"}
    key = "expanded_conv-input:14x14x80-output:14x14x80-expand:6-kernel:7-stride:1-idskip:1"
    assert costs.cost(bigger) - costs.cost(choices) == pytest.approx(figures[key])
    assert extremes(space, costs)[0] > 0


def test_from_their_file_to_a_search(tiny):
    done = call(["import_table", "source=theirs.yaml", "processor=Pixel 1", "table=ours.json", "came_from=mail"])
    assert done.status == 0, done.err
    assert f"ours.json: {len(tiny)} modules from theirs.yaml" in done.out and "not taken 0" in done.out
    done = call(["coverage", "table=ours.json", "device=cpu", *TINY])
    assert (
        done.status == 0
        and "8 of 10 modules are in the table, 2 are sums of what is in it, 0 are missing\n" in done.out
    )
    settings = [
        *DATA,
        *BATCHES,
        *SHORT,
        "search.warmup_epochs=0",
        "search.steps_per_update=6",
        "device=cpu",
        "device.kernels=native",
    ]
    settings += ["train.epochs=0", "searcher.samples=2"]
    done = call(["proxyless", *TINY, *settings, "table=ours.json", "run_dir=run", "bound_fraction=0.9"])
    assert done.status == 0, done.err
    assert "imported from theirs.yaml; sums of modules, uncalibrated: how far whole networks" in done.out
    costs = load_costs("run/costs.json")["latency"]
    assert costs.error is None
    architecture = json.loads(Path("run/architecture.json").read_text())
    assert architecture["predicted"]["latency"]["error"] is None
    assert "± unknown" in done.out and "not here" in done.out
    # What the search ended with costs what their table says.
    choices = architecture["choices"]
    keys = [
        "Conv-input:12x12x1-output:12x12x12",
        "expanded_conv-input:12x12x12-output:12x12x16-expand:1-kernel:3-stride:1-idskip:0",
        "Conv_1-input:6x6x24-output:6x6x32",
        "Logits-input:6x6x32-output:10",
    ]
    blocks = {
        "stage1_block1": "12x12x16-output:6x6x24-expand:{}-kernel:{}-stride:2-idskip:0",
        "stage1_block2": "6x6x24-output:6x6x24-expand:{}-kernel:{}-stride:1-idskip:1",
    }
    for name, key in blocks.items():
        if choices[name] != "skip":
            keys.append("expanded_conv-input:" + key.format(choices[name][1], choices[name][4]))
    expected = sum(tiny[key] for key in keys)
    assert architecture["predicted"]["latency"]["value"] == pytest.approx(expected, rel=1e-12)


def test_coverage_lists_all_that_lacks(tiny):
    kept = {key: figure for key, figure in tiny.items() if "kernel:5" not in key and not key.startswith("Logits")}
    Path("theirs.yaml").write_text(as_yaml(kept))
    assert call(["import_table", "source=theirs.yaml", "processor=Pixel 1", "table=ours.json"]).status == 0
    done = call(["coverage", "table=ours.json", "device=cpu", *TINY])
    assert done.status == 0
    assert done.out.splitlines()[-6:] == [
        "4 of 10 modules are in the table, 1 are sums of what is in it, 5 are missing:",
        "  tiny: stage1_block1 = e3_k5",
        "  tiny: stage1_block1 = e6_k5",
        "  tiny: stage1_block2 = e3_k5",
        "  tiny: stage1_block2 = e6_k5",
        "  tiny: head",
    ]
    search = ["proxyless", *TINY, *DATA, *BATCHES, *SHORT, "device=cpu", "table=ours.json", "run_dir=run"]
    check_error(call(search), "5 missing", "imported from theirs.yaml", "coverage")
    assert not Path("run").exists()


@pytest.mark.parametrize("form", ["csv", "once_for_all"])
def test_a_measured_table_goes_out_and_comes_back(home, form):
    done = call(["profile", *TINY, "device=cpu", "estimator.rounds=2"])
    assert done.status == 0, done.err
    (path,) = Path("latency_tables").iterdir()
    # What the formats of others have no place for are the slowdowns.
    entries = {text: replace(entry, slowdowns=()) for text, entry in tables.read(path).entries.items()}
    done = call(["export_table", f"table={path}", "target=out", f"format={form}"])
    assert done.status == 0, done.err
    # The parts before the first block and behind the last are two layers each, for which the YAML has no key.
    assert ("not exported 0" if form == "csv" else "not exported 2: 'tiny: before stage1_block1'") in done.out
    done = call(["import_table", "source=out", f"format={form}", "processor=here", "table=back.json"])
    assert done.status == 0, done.err
    back = tables.read("back.json").entries
    assert back == {text: entry for text, entry in entries.items() if form == "csv" or text in back}
    assert len(back) == len(entries) - (0 if form == "csv" else 2)


def test_whole_networks_are_measured_for_better_predictions_and_to_check_them(home):
    settings = [*TINY, "device=cpu", "estimator.rounds=2"]
    done = call(["calibrate", *settings, "networks=6"])
    assert done.status == 0, done.err
    assert "6 whole networks measured" in done.out and "next:" in done.out
    (path,) = Path("latency_tables").iterdir()
    calibration = tables.read(path).calibration["tiny"]
    assert calibration.networks == 6 and calibration.costs.keys() == tables.read(path).entries.keys()
    before = path.read_bytes()
    done = call(["validate", *settings, "networks=5", "folder=checked"])
    assert done.status == 0, done.err
    assert path.read_bytes() == before, "what is known is not measured again, and what checks it is not kept"
    content = json.loads(Path("checked/validation.json").read_text())
    assert len(content["networks"]) == 5 and content["stated_error"] == calibration.error
    # What is predicted is what the calibration says of the parts, and not the sum of what they take by themselves.
    parts = {text: calibration.costs[text] for text in calibration.costs}
    for network in content["networks"]:
        assert network["predicted"] < sum(parts.values()) and network["predicted"] != network["uncalibrated"]
    figures = [(one["predicted"] / one["measured"] - 1) for one in content["networks"]]
    assert content["agreement"]["calibrated"]["mape"] == pytest.approx(np.mean(np.abs(figures)))
    assert len(Path("checked/validation.csv").read_text().splitlines()) == 6
    assert Path("checked/validation.png").read_bytes().startswith(b"\x89PNG")
    assert "measured again" in done.out and "Kendall tau" in done.out


@pytest.mark.parametrize("command", ["calibrate", "validate"])
def test_calibration_refuses_what_it_cannot_do(home, command):
    check_error(call([command, *TINY, "device=cpu", "networks=1"]), "networks=1")
    check_error(call([command, *TINY, "device=cpu", "estimator=macs"]), "exact", "estimator=latency")


def test_what_is_there_is_not_written_over(tiny):
    command = ["import_table", "source=theirs.yaml", "processor=Pixel 1", "backend=TFLite"]
    assert call(command).status == 0
    (path,) = Path("latency_tables").iterdir()
    assert path.name.startswith("pixel-1-")
    before = path.read_bytes()
    check_error(call(command), str(path), "is kept")
    check_error(call(["export_table", f"table={path}", f"target={path}"]), "is kept")
    assert path.read_bytes() == before


@pytest.mark.parametrize("figure", ["-1", "0", ".nan", "fast"])
def test_a_bad_figure_is_one_line_and_nothing_is_made(tiny, figure):
    key = next(iter(tiny))
    Path("theirs.yaml").write_text(as_yaml({**tiny, key: figure}))
    check_error(call(["import_table", "source=theirs.yaml", "processor=a"]), "theirs.yaml", key, figure, "above 0")
    assert [path.name for path in Path().iterdir()] == ["theirs.yaml"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["import_table", "processor=a"], ["source is not given"]),
        (["import_table", "source=theirs.yaml"], ["processor is not given"]),
        (["import_table", "source=nowhere.yaml", "processor=a"], ["nowhere.yaml", "source="]),
        (["import_table", "source=theirs.yaml", "processor=a", "unit=J"], ["unit='J'", "s, ms, us"]),
        (["import_table", "source=theirs.yaml", "processor=a", "format=fbnet"], ["has no unit", "unit="]),
        (["import_table", "source=theirs.yaml", "processor=a", "format=excel"], ["format=excel"]),
        (["import_table", "source=theirs.yaml", "processor=a", "format.expand=both"], ["auto, ratio, channels"]),
        (["export_table", "table=nowhere.json", "target=a"], ["nowhere.json"]),
        (["export_table", "table=other.json", "target=a"], ["other.json", "format 99"]),
        (["coverage", "device=cpu"], ["table is not given"]),
        (["coverage", "device=cpu", "table=a", "estimator=macs"], ["estimator=latency"]),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line(tiny, arguments, parts):
    Path("other.json").write_text('{"format": 99}')
    check_error(call(arguments), *parts)


def test_every_format_can_be_built():
    for form in ("once_for_all", "csv", "fbnet", "fbnet_cifar10"):
        config = load("import_table", None, ["source=a", "processor=b", f"format={form}"])
        assert build(config.format).name in form
    # Both descriptions of FBNet have its 22 layers and nine operators.
    for form, size in (("fbnet", 7), ("fbnet_cifar10", 4)):
        config = load("import_table", None, ["source=a", "processor=b", "unit=ms", f"format={form}"])
        layers = OmegaConf.to_container(config.format.layers)
        assert sum(layer.get("lines", 1) for layer in layers) == 22
        assert layers[-1]["output"] == f"{size}x{size}x352"
        for before, after in zip(layers, layers[1:], strict=False):
            assert before["output"] == after["input"]


def test_an_fbnet_table_covers_the_blocks_of_its_space(home):
    random = np.random.default_rng(0)
    Path("theirs.txt").write_text(
        "\n".join(" ".join(f"{one:.6f}" for one in row) for row in random.random((22, 9)) + 1)
    )
    done = call(["import_table", "format=fbnet", "unit=ms", "source=theirs.txt", "processor=a", "table=ours.json"])
    assert done.status == 0 and "not taken 22: 'layer 1 skip'" in done.out
    # Five stages have three layers of one shape, eight operators each.
    assert "96 modules from theirs.txt; 40 modules have several figures, up to" in done.out
    stages = [(16, 1, 1), (24, 4, 2), (32, 4, 2), (64, 4, 2), (112, 4, 1), (184, 4, 2), (352, 1, 1)]
    stages = ",".join(f"{{channels: {c}, blocks: {n}, stride: {s}}}" for c, n, s in stages)
    space = ["space=mobilenet_imagenet", "space.stem={channels: 16, stride: 2}", "space.first=null", "space.head=1984"]
    done = call(
        ["coverage", "table=ours.json", "device=cpu", *space, f"space.stages=[{stages}]", "space.kernels=[3,5]"]
    )
    assert done.status == 0, done.err
    # Twelve shapes, four operators: the fixed parts are all that lacks.
    assert "48 of 50 modules are in the table, 0 are sums" in done.out
    assert [line.split(": ")[1] for line in done.out.splitlines()[-2:]] == ["before stage1_block1", "head"]


def test_costs_whose_error_nobody_knows():
    costs = Costs("ms", (Term((), 1.0, "stem"),), 1.0, None, {"table": "a.json", "imported_from": "b.yaml"})
    assert Costs.from_json(json.loads(json.dumps(costs.to_json())), "costs.json") == costs
    assert costs_text("latency", costs) == (
        "latency: 1 modules in ms from a.json, imported from b.yaml; sums of modules, uncalibrated: how far whole "
        "networks are from them is unknown"
    )


def test_coverage_of_everything_has_no_list():
    assert coverage_text(3, 0, []) == "3 of 3 modules are in the table, 0 are sums of what is in it, 0 are missing"


def test_a_latency_of_an_imported_table_tells_where_it_is_from(tiny):
    assert call(["import_table", "source=theirs.yaml", "processor=Pixel 1", "table=ours.json"]).status == 0
    description = Latency(device="cpu", table="ours.json").description()
    assert description["imported_from"] == "theirs.yaml"
    assert description["device"] == {"processor": "Pixel 1", "backend": "unknown"}
