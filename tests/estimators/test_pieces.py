"""Parts are cut where everything passes through one variable, and into the fewest pieces that are known."""

import nnabla as nn
import nnabla.functions as F
from small_parts import identity, inverted_residual

from estimators import Part
from estimators.graph import functions_of
from estimators.pieces import pieces


def names(part):
    return [function.info.type_name for function in functions_of(part)]


def cut(part, *known):
    return [names(piece) for piece in pieces(part, lambda piece: names(piece) in [list(one) for one in known])]


def chain():
    x = nn.Variable((1, 2))
    return Part((F.tanh(F.sigmoid(F.relu(x))),), (x,), "chain")


def test_a_chain_is_cut_into_what_is_known():
    assert cut(chain(), ("ReLU",), ("Sigmoid", "Tanh")) == [["ReLU"], ["Sigmoid", "Tanh"]]
    assert cut(chain(), ("ReLU",), ("Sigmoid",), ("Tanh",)) == [["ReLU"], ["Sigmoid"], ["Tanh"]]


def test_the_fewest_pieces_are_taken():
    singles = [("ReLU",), ("Sigmoid",), ("Tanh",)]
    assert len(cut(chain(), *singles, ("ReLU", "Sigmoid"))) == 2
    assert cut(chain(), *singles, ("ReLU", "Sigmoid", "Tanh")) == [["ReLU", "Sigmoid", "Tanh"]]


def test_nothing_is_made_up_of_some_pieces_only():
    assert cut(chain(), ("ReLU",), ("Tanh",)) == []
    assert cut(chain()) == []


def test_pieces_join_at_the_same_variables():
    part = chain()
    first, second = pieces(part, lambda piece: len(names(piece)) < 3)
    assert first.inputs == part.inputs and second.outputs == part.outputs and first.outputs == second.inputs


def test_a_shortcut_is_not_cut_through():
    part = inverted_residual()
    asked = []
    pieces(part, lambda piece: asked.append(names(piece)))
    assert asked == [names(part)]
    x = nn.Variable(part.outputs[0].shape)
    y = F.relu(x) + x
    around = Part((F.tanh(F.sigmoid(y) + y),), (x,), "two shortcuts")
    assert cut(around, ("ReLU", "Add2"), ("Sigmoid", "Add2"), ("Tanh",)) == [
        ["ReLU", "Add2"], ["Sigmoid", "Add2"], ["Tanh"],
    ]  # fmt: skip


def test_branches_are_not_cut_through():
    x = nn.Variable((1, 2))
    part = Part((F.add2(F.relu(x), F.tanh(x)),), (x,), "branches")
    assert cut(part, ("ReLU",), ("Tanh", "Add2"), ("Tanh",), ("Add2",)) == []


def test_what_has_other_than_one_input_and_output_is_left_whole():
    x, y = nn.Variable((1, 2)), nn.Variable((1, 2))
    assert pieces(Part((x + y,), (x, y), "two inputs"), lambda piece: True) == []
    assert pieces(Part((F.relu(x), F.tanh(x)), (x,), "two outputs"), lambda piece: True) == []
    assert pieces(identity(), lambda piece: True) == []
    unused = nn.Variable((1, 2))
    assert pieces(Part((F.relu(x),), (unused,), "a constant"), lambda piece: True) == []
