"""The configuration files, and what the command line says about wrong ones."""

import io
import os
import tarfile
from distutils.core import run_setup
from functools import cache
from pathlib import Path

import h5py
import nnabla as nn
import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image
from tiny import Judge, objective_of

import nnas
from nnas import app
from nnas import config as configuration
from nnas.communicator import Alone
from nnas.config import build, load, parse
from nnas.costs import Costs, Term
from nnas.deciders import listed
from nnas.errors import NnasError
from nnas.finalizers import Finalizer
from nnas.objectives import Constraint

ROOT = Path(nnas.__file__).resolve().parent.parent
CONF = configuration.folder()
COMMANDS = sorted(path.stem for path in CONF.glob("*.yaml"))
OPTIONS = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml"))
# What a command does not know by itself.
GIVEN = {
    "train": ["architecture=a.json"],
    "coverage": ["table=a.json"],
    "import_table": ["source=a.yaml", "processor=a"],
    "export_table": ["table=a.json", "target=a.csv"],
    "proxyless_imagenet": ["data.path=folder"],
    "images": ["data.path=folder"],
    "resume": ["run_dir=a"],
    "report": ["run_dir=a"],
    "status": ["run_dir=a"],
    "compare": ["runs=a"],
    "list": ["what=spaces"],
    "adapt": ["sources=[a.json]", "measurements=m.csv"],
    "import_genotype": ["source=a.txt", "target=a.json"],
    "export_genotype": ["architecture=a.json"],
}


def options(group):
    return [pytest.param(option, id=option) for name, option in OPTIONS if name == group]


@cache
def composed(group, option):
    """The configuration of a group's option, as a command composes it."""
    command, place = {"estimator": ("profile", ""), "solver": ("proxyless", "@train.solver")}.get(
        group, ("proxyless", "")
    )
    config = load(command, None, [f"{group}{place}={option}"])
    return config.train.solver if group == "solver" else config[group]


@cache
def plain(command):
    """A command's own configuration."""
    return load(command, None, GIVEN.get(command, []))


def test_there_are_commands_and_options():
    assert set(COMMANDS) >= {"proxyless", "proxyless_gradient", "random", "profile", "train"}
    assert {"space", "data", "searcher", "objective", "estimator", "solver"} <= {group for group, _ in OPTIONS}
    assert set(configuration.commands()) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_composes_and_names_what_it_runs(command):
    config = plain(command)
    assert config.command in {*app.COMMANDS, *app.FILE_COMMANDS, "resume"}
    assert not OmegaConf.missing_keys(config)
    assert "hydra" not in OmegaConf.to_container(config, throw_on_missing=True) and "${" not in OmegaConf.to_yaml(
        config
    )


def test_the_yardstick_has_the_same_budget():
    """Random search differs from the main job by nothing but the searcher, and judges as many architectures."""
    main, other = (OmegaConf.to_container(plain(command)) for command in ("proxyless", "random"))
    assert main.pop("searcher")["samples"] == other.pop("searcher")["samples"]
    assert main == other


@pytest.mark.parametrize("option", options("space"))
def test_spaces_build_and_list(option):
    network = build(composed("space", option))
    space = listed(network)
    assert space.name == option == network.name
    assert all(len(decision.options) > 1 and decision.sites for decision in space.decisions)
    if space.nodes:
        nodes, edges = (composed("space", option)["nodes"], len(space.decisions))
        assert len(space.nodes) == 2 * nodes and edges == 2 * sum(range(2, nodes + 2))
        return
    blocks = sum(stage["blocks"] for stage in composed("space", option).stages)
    assert len(space.decisions) == blocks
    # Behind the first block of a stage, all blocks keep their shape and may be skipped.
    skips = sum("skip" in decision.options for decision in space.decisions)
    assert skips >= blocks - len(composed("space", option).stages)


def cifar10_archive(folder):
    path, random = folder / "cifar.tar.gz", np.random.default_rng(0)
    with tarfile.open(path, "w:gz") as tar:
        for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
            content = b"".join(bytes([label]) + random.bytes(3072) for label in range(10))
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return [f"data.path={path}", "data.checksum=null", "data.validation=0.2"]


def image_tree(folder, *splits):
    for split in splits:
        for label in range(3):
            place = folder / split / str(label)
            place.mkdir(parents=True)
            for number in range(10):
                pixels = np.random.default_rng([len(split), label, number]).integers(
                    256, size=(9, 9, 3), dtype=np.uint8
                )
                Image.fromarray(pixels).save(place / f"{number}.png")
    return [f"data.path={folder}"]


def hdf5_file(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"], file["y"] = np.random.default_rng(0).normal(size=(30, 1, 8, 8)), np.arange(30) % 3
    return [f"data.training={folder / 'a.h5'}"]


def csv_file(folder):
    image_tree(folder, "images")
    rows = [f"images/{label}/{number}.png,{label}" for label in range(3) for number in range(10)]
    (folder / "a.csv").write_text("\n".join(["x:image,y:label", *rows]))
    return [f"data.training={folder / 'a.csv'}"]


# What the data sets read that ask for files, made in a folder; the overrides that name it.
FILES = {
    "cifar10": cifar10_archive,
    "csv": csv_file,
    "hdf5": hdf5_file,
    "image_folder": lambda folder: image_tree(folder, "."),
    "imagenet": lambda folder: [*image_tree(folder, "train", "val"), "data.validation=5"],
}
SHAPES = {"cifar10": (3, 32, 32), "csv": (3, 9, 9), "hdf5": (1, 8, 8), "image_folder": (3, 32, 32)}
SHAPES["imagenet"] = (3, 224, 224)


@pytest.mark.parametrize("option", options("data"))
def test_data_builds_and_fits_its_space(option, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = load("proxyless", None, [f"data={option}", *FILES.get(option, lambda folder: [])(tmp_path)])
    data = build(config.data)
    for split in (data.training, data.retraining, data.validation, data.test):
        images, labels = split.draw(np.arange(2), np.random.default_rng(0))
        assert images.shape == (2, *data.shape) and labels.shape == (2, 1)
        assert images.dtype == np.float32 and labels.dtype == np.int32
    assert data.description()["samples"]["test"] == len(data.test)
    if option in FILES:
        assert data.shape == SHAPES[option]
    else:
        network = build(config.space)
        assert (network.input_shape, network.classes) == (data.shape, data.classes)
    if data.augmentation is not None:
        x = nn.Variable((2, *data.shape))
        assert data.augmentation(x).shape == x.shape


@pytest.mark.parametrize("option", sorted(FILES.keys() - {"cifar10"}))
def test_data_of_files_say_what_is_missing(option):
    with pytest.raises(NnasError, match=r"data\.(path|training) is not given; add data\.(path|training)=\.\.\."):
        load("proxyless", None, [f"data={option}"])


@pytest.mark.parametrize("option", options("searcher"))
def test_searchers_build_and_make_a_step(option):
    space = listed(build(composed("space", "mobilenet_small")))
    one = Constraint("latency", Costs("ms", (Term((), 1.0, "all"),)), 2.0, 1.0)
    make = build(composed("searcher", option))
    searcher = make(space, [one], objective_of(make), communicator=Alone(), seed=0)
    searcher.step(Judge(searcher, lambda choices: 0.5))
    assert space.check(searcher.best())


@pytest.mark.parametrize("option", options("finalizer"))
def test_finalizers_build(option):
    assert isinstance(build(composed("finalizer", option)), Finalizer)


@pytest.mark.parametrize("option", options("objective"))
def test_objectives_build(option):
    objective = build(composed("objective", option))
    assert objective(0.5, {}, []) in (0.5, (0.5, 1.0, {}))
    assert option in type(objective).names(), "errors name it"


@pytest.mark.parametrize("option", options("estimator"))
def test_estimators_build(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    estimator = build(load("profile", None, [f"estimator={option}", "device=cpu"]).estimator)
    assert estimator.unit and estimator.batch == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", options("constraints"))
def test_constraints_bring_their_estimator(option):
    (name,) = load("proxyless", None, [f"constraints={option}"]).constraints
    one = load("proxyless", None, [f"constraints=[{option}]", "bound_ms=3"]).constraints[option]
    assert name == option and build(one.estimator).unit
    assert one.weight is None and one.fraction == 0.5 and one.bound == (3 if option == "latency" else None)


def test_constraints_are_chosen_by_name():
    def chosen(*overrides):
        return load("proxyless", None, list(overrides)).constraints

    assert (
        set(chosen()) == {"latency"} and set(chosen("constraints=[]")) == set(chosen("~constraints.latency")) == set()
    )
    several = chosen("constraints=[latency,macs,memory]", "constraints.macs.bound=4e5", "bound_fraction=0.7")
    assert set(several) == {"latency", "macs", "memory"}
    assert several.macs.bound == 4e5 and several.latency.fraction == 0.7
    by_graph = chosen("estimator@constraints.latency.estimator=latency_by_graph")
    assert by_graph.latency.estimator._target_.endswith("LatencyByGraph")
    # One of one's own needs no file.
    own = chosen(
        "+estimator@constraints.mine.estimator=macs", "+constraints.mine.bound=1", "+constraints.mine.weight=1"
    )
    assert set(own) == {"latency", "mine"}


@pytest.mark.parametrize("option", options("solver"))
def test_solvers_build(option):
    settings = build(composed("solver", option))
    assert set(settings) == {"make_solver", "learning_rate", "schedule", "weight_decay", "clip_norm"}
    solver = settings["make_solver"]()
    solver.set_learning_rate(settings["learning_rate"])
    assert solver is not settings["make_solver"](), "one for each group of parameters"


@pytest.mark.parametrize("command", COMMANDS)
def test_values_that_are_lists_stay_plain(command):
    """Constructors take plain values: no container of the configuration reaches them."""
    groups = {"space", "format"} & plain(command).keys()
    assert groups or command in ("resume", "report", "status", "compare", "list", "doctor")
    for group in groups:
        for value in vars(build(plain(command)[group])).values():
            assert type(value).__module__.split(".")[0] != "omegaconf"


@pytest.mark.parametrize(
    "command, overrides, parts",
    [
        ("proxylss", [], ["--config-name=proxylss", "did you mean 'proxyless'", "train"]),
        ("proxyless", ["search.epoch=3"], ["search.epoch=3", "did you mean 'search.epochs'"]),
        ("proxyless", ["epochs=3"], ["epochs=3", "no key 'epochs'"]),
        ("proxyless", ["serch.epochs=3"], ["did you mean 'search.epochs'"]),
        ("proxyless", ["seed=1", "search.solver.momentums=3"], ["search.solver.momentums=3", "no key"]),
        ("proxyless", ["search.solver.make_solver.momentun=1"], ["'search.solver.make_solver.momentum'"]),
        ("proxyless", ["space=mobilenet_smal"], ["space=mobilenet_smal", "did you mean 'mobilenet_small'"]),
        ("proxyless", ["spaces=mobilenet_small"], ["spaces=mobilenet_small", "did you mean 'space'"]),
        ("proxyless", ["data=imagenets"], ["data=imagenets", "did you mean 'imagenet'", "cluttered_digits"]),
        ("proxyless", ["solver@train.solver=nesterof"], ["nesterof", "nesterov"]),
        ("proxyless", ["constraints=[latency,mac]"], ["constraints=mac", "did you mean 'macs'", "memory, parameters"]),
        ("proxyless", ["solvr@search.solver=nesterov"], ["solvr@search", "did you mean 'solver'"]),
        (
            "proxyless",
            ["estimator@constraints.latency.estimatr=macs"],
            ["did you mean 'constraints.latency.estimator'"],
        ),
        ("proxyless", ["seed"], ["seed", "key=value"]),
        ("proxyless", ["table=a (1)"], ["table=a (1)", "key=value", "\"table='a (1)'\""]),
        ("proxyless", ["table=~/a"], ["key=value", f"\"table='{os.path.expanduser('~/a')}'\""]),
        ("proxyless", ["space.stages=[{"], ["space.stages=[{"]),
        ("proxyless", ["~nothing"], ["nothing"]),
        ("proxyless", ["+seed=3"], ["seed"]),
        ("proxyless", ["bound_ms=${nothing}"], ["nothing"]),
        ("train", [], ["architecture is not given", "architecture=..."]),
    ],
)
def test_errors_name_the_nearest(command, overrides, parts):
    with pytest.raises(NnasError) as caught:
        load(command, None, overrides)
    text = str(caught.value)
    assert all(part in text for part in parts), text
    assert "\n" not in text and len(text) < 600, text


def test_overrides_reach_what_refers_to_them():
    config = load("proxyless", None, ["device=cpu", "table=t.json", "bound_ms=0.25"])
    estimator = config.constraints.latency.estimator
    assert (estimator.device, estimator.table) == ("cpu", "t.json")
    assert config.constraints.latency.bound == 0.25
    other = load("proxyless", None, ["solver@train.solver=nesterov", "train.solver.learning_rate=0.7"])
    assert other.train.solver.learning_rate == 0.7 != other.search.solver.learning_rate


def test_ones_own_folder_adds_commands_and_options(tmp_path):
    (tmp_path / "space").mkdir()
    (tmp_path / "mine.yaml").write_text("defaults:\n  - proxyless\n  - override space: wide\n  - _self_\nseed: 7\n")
    (tmp_path / "space" / "wide.yaml").write_text("defaults:\n  - mobilenet_small\nhead: 96\nname: wide\n")
    config = load("mine", str(tmp_path), [])
    assert (config.seed, config.space.head, config.space.name, config.command) == (7, 96, "wide", "search")
    assert load("proxyless", str(tmp_path), ["space=wide"]).space.head == 96
    assert set(configuration.commands(tmp_path)) == {*COMMANDS, "mine"}
    with pytest.raises(NnasError, match="did you mean 'wide'"):
        load("proxyless", str(tmp_path), ["space=wid"])
    with pytest.raises(NnasError, match="did you mean 'mine'"):
        load("mime", str(tmp_path), [])
    with pytest.raises(NnasError, match="no such folder"):
        load("proxyless", str(tmp_path / "nowhere"), [])


def test_a_broken_file_of_ones_own_is_named(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [\n")
    with pytest.raises(NnasError, match="mine"):
        load("mine", str(tmp_path), [])


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["proxyless", "seed=1"], ("proxyless", None, "run", ["seed=1"])),
        (["--config-name=proxyless", "seed=1"], ("proxyless", None, "run", ["seed=1"])),
        (["seed=1", "--config-name", "proxyless"], ("proxyless", None, "run", ["seed=1"])),
        (["--config-name=proxyless.yaml"], ("proxyless", None, "run", [])),
        (["-cn", "train", "-cd", "mine", "a=1", "b=2"], ("train", "mine", "run", ["a=1", "b=2"])),
        (["train", "--config-dir=mine", "a=1"], ("train", "mine", "run", ["a=1"])),
        (["proxyless", "--cfg", "job"], ("proxyless", None, "show", [])),
        (["proxyless", "~train", "+x=1"], ("proxyless", None, "run", ["~train", "+x=1"])),
    ],
)
def test_both_ways_in_have_one_grammar(arguments, expected):
    assert parse(arguments) == expected


@pytest.mark.parametrize("arguments", [[], ["seed=1"]])
def test_no_command_is_an_error_that_lists_them(arguments):
    with pytest.raises(NnasError, match="no command is given.*profile, proxyless, .*train"):
        parse(arguments)


@pytest.mark.parametrize(
    "node, parts",
    [
        ({"_target_": "nnas.data.cluttered_digits.ClutteredDigits", "canvas": 3}, ["data.canvas=3"]),
        ({"_target_": "nnas.data.cluttered_digits.ClutteredDigits", "canvass": 12}, ["canvass"]),
        ({"_target_": "nnas.nothing.Here"}, ["nnas.nothing"]),
        ({"_target_": "nnas.objectives.RewardMax"}, ["RewardMax"]),
        ({"outer": {"_target_": "nnas.classifier.Classification", "label_smoothing": 2}}, ["label_smoothing=2"]),
    ],
)
def test_errors_of_constructors_are_one_line(node, parts):
    with pytest.raises(NnasError) as caught:
        build(OmegaConf.create(node))
    text = str(caught.value)
    assert all(part in text for part in parts) and "\n" not in text, text


def test_all_files_are_packaged(monkeypatch):
    """Every folder with code and every configuration file is in the distribution."""
    monkeypatch.chdir(ROOT)
    distribution = run_setup("setup.py", stop_after="init")
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("nnas", "estimators")
        for path in (ROOT / package).rglob("*.py")
    }
    assert folders <= set(distribution.packages)
    for path in (ROOT / "conf").rglob("*.yaml"):
        package = ".".join(("nnas.conf", *path.parent.relative_to(ROOT / "conf").parts))
        assert package in distribution.packages and "*.yaml" in distribution.package_data[package]
    assert distribution.package_dir["nnas.conf"] == "conf"


def test_the_folder_is_that_of_the_package_where_there_is_one(tmp_path, monkeypatch):
    assert CONF == ROOT / "conf"
    (tmp_path / "site" / "nnas" / "conf").mkdir(parents=True)
    monkeypatch.setattr(nnas, "__file__", str(tmp_path / "site" / "nnas" / "__init__.py"))
    assert configuration.folder() == tmp_path / "site" / "nnas" / "conf"
