"""Cells in the notation of the papers."""

from pathlib import Path

import pytest
from conftest import small_mobilenet
from test_app import BATCHES, DATA, call
from test_spaces_darts import DARTS_V2, small

from nnas.checkpoint import read_weights
from nnas.deciders import listed
from nnas.errors import NnasError
from nnas.files import read_json
from nnas.genotype import choices_of, read_architecture, written
from nnas.space import Architecture

TEXT = (
    "Genotype(normal=[('skip_connect', 0), ('sep_conv_3x3', 1), ('max_pool_3x3', 1), ('dil_conv_5x5', 2)], "
    "normal_concat=[2, 3], reduce=[('avg_pool_3x3', 0), ('sep_conv_5x5', 1), ('skip_connect', 0), "
    "('dil_conv_3x3', 1)], reduce_concat=[2, 3])"
)


def test_what_is_written_is_what_was_read():
    space = listed(small())
    choices = choices_of(TEXT, space, "text")
    assert choices["normal_node2_from2"] == "dil_conv_5x5" and choices["reduction_node1_from1"] == "sep_conv_5x5"
    assert "normal_node2_from0" not in choices
    assert written(choices, space) == TEXT


def test_every_architecture_survives_being_written(random):
    space = listed(small(nodes=4))
    for _ in range(30):
        choices = space.sample(random)
        assert choices_of(written(choices, space), space, "text") == choices


@pytest.mark.parametrize("form", ["{}", "V2 = {}\n", "# of a paper\n{}", "\n  DARTS=  {}"])
def test_forms_of_the_papers_are_read(form, tmp_path):
    space = listed(small())
    (tmp_path / "cells.txt").write_text(form.format(TEXT))
    read = read_architecture(tmp_path / "cells.txt", space)
    assert read == Architecture("cells", choices_of(TEXT, space, "text"), {})


def test_architecture_files_are_read_as_ever(tmp_path):
    architecture = Architecture("cells", {"normal_node1_from0": "skip_connect"}, {})
    architecture.save(tmp_path / "a.json")
    assert read_architecture(tmp_path / "a.json", listed(small())) == architecture


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("'sep_conv_3x3', 1", "'sep_conv_4x4', 1", "operator 'sep_conv_4x4'.*did you mean 'sep_conv_"),
        ("'skip_connect', 0", "'none', 0", "leave out an edge"),
        ("('sep_conv_3x3', 1)", "('sep_conv_3x3', 2)", "sources are 0 to 1"),
        ("('sep_conv_3x3', 1)", "('sep_conv_3x3', -1)", "sources are 0 to 1"),
        ("('sep_conv_3x3', 1)", "('sep_conv_3x3', 0)", "two edges from 0"),
        ("('skip_connect', 0), ", "", "7 edges|3 edges"),
        ("normal_concat=[2, 3]", "normal_concat=[3]", "outputs"),
        ("normal_concat=[2, 3], ", "", "fields"),
        ("normal_concat=[2, 3]", "normal_concat=__import__('os')", "no genotype"),
        ("normal_concat=[2, 3]", "normal_concat=[x for x in (2, 3)]", "no genotype"),
        ("reduce_concat=[2, 3])", "reduce_concat=[2, 3]) + print(3)", "no genotype"),
        ("reduce_concat=[2, 3])", "reduce_concat=[2, 3]", "no genotype"),
        ("normal_concat=[2, 3]", "normal_concat=" + "[" * 3000, "no genotype"),
        ("normal_concat=[2, 3]", "normal_concat=2", "must be a list"),
        ("('sep_conv_3x3', 1)", "('sep_conv_3x3', '1')", "must be a list of pairs"),
        ("normal=", "normal=[], normal=", "no genotype|fields"),
        ("normal=", "**{}, normal=", "no genotype|fields"),
    ],
)
def test_what_is_no_genotype_of_the_space_is_refused(old, new, message, tmp_path):
    assert old in TEXT
    (tmp_path / "cells.txt").write_text(TEXT.replace(old, new, 1))
    with pytest.raises(NnasError, match=message):
        read_architecture(tmp_path / "cells.txt", listed(small()))


def test_cells_of_another_size_are_refused():
    with pytest.raises(NnasError, match="set space.nodes"):
        choices_of(DARTS_V2, listed(small()), "V2")


def test_a_space_without_cells_has_no_genotypes():
    with pytest.raises(NnasError, match="no cells"):
        choices_of(TEXT, listed(small_mobilenet()), "text")


CELLS = ["space=darts_small", "space.channels=2", "space.search={cells: 3, channels: 2}", "device=cpu"]
SMALL = [*DATA, *BATCHES[2:], "train.epochs=1", "device.threads=1"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_cells_are_searched_written_read_and_trained_again(here):
    """From end to end, over the commands: the genotype of a search is trained as what the search found is."""
    search = ["proxyless", *CELLS, *SMALL, *BATCHES[:2], "search.steps_per_update=6", "search.validation_batch=32"]
    search += ["search.warmup_epochs=0", "search.epochs=1", "searcher.samples=2", "constraints=[macs]"]
    done = call([*search, "train.epochs=0", "finalizer=divnas_ranked", "finalizer.samples=8", "run_dir=run"])
    assert done.status == 0, done.err
    found = Architecture.load("run/architecture.json")
    assert read_json("run/space.json", "")["nodes"][0] == {
        "name": "normal_node1",
        "edges": ["normal_node1_from0", "normal_node1_from1"],
        "keep": 2,
    }
    counted = read_json("run/summary.json", "")["counted"]
    assert counted["macs"] == found.predicted["macs"]["value"]
    assert f"from0 {found.choices['normal_node1_from0']}, from1 {found.choices['normal_node1_from1']}\n" in done.out

    shown = call(["export_genotype", *CELLS, "architecture=run/architecture.json"])
    written = call(["export_genotype", *CELLS, "architecture=run/architecture.json", "target=texts/cells.txt"])
    text = Path("texts/cells.txt").read_text().strip()
    assert shown.status == written.status == 0 and shown.out.strip().endswith(text)

    done = call(["import_genotype", *CELLS, "source=texts/cells.txt", "target=again.json"])
    assert done.status == 0 and Architecture.load("again.json").choices == found.choices
    assert "train space=darts_small space.channels=2 " in done.out and "architecture=again.json" in done.out
    assert f"{counted['macs'] / 1e6:.4g} M MACs, {counted['parameters'] / 1e6:.4g} M parameters" in done.out
    done = call(["import_genotype", *CELLS, "source=texts/cells.txt", "target=again.json"])
    assert done.status == 1 and "it is there already" in done.err

    train = ["train", *CELLS, *SMALL, "train.epochs=0", "estimator.rounds=1"]
    done = call([*train, "architecture=texts/cells.txt", "weights=run/supernet.h5", "run_dir=trained"])
    assert done.status == 0, done.err
    assert Architecture.load("trained/architecture.json").choices == found.choices
    weights, supernet = read_weights("trained/weights.h5", "w"), read_weights("run/supernet.h5", "w")
    assert all((array == 1).all() for name, array in weights.items() if name.endswith("gamma"))
    assert all((array == supernet[name]).all() for name, array in weights.items() if name in supernet)


def test_divnas_is_refused_before_anything_is_begun(here):
    done = call(["proxyless", "device=cpu", "finalizer=divnas", "constraints=[macs]", "run_dir=run"])
    assert done.status == 1 and "take finalizer=argmax" in done.err and not Path("run").exists()
