"""Cells in the notation of the papers."""

import pytest
from conftest import small_mobilenet
from test_spaces_darts import DARTS_V2, small

from nnas.deciders import listed
from nnas.errors import NnasError
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
