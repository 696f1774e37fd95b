"""Walks and copies of parts."""

import nnabla as nn
import nnabla.functions as F
import numpy as np
import pytest
from small_parts import convolution, foreign, identity, inverted_residual

from estimators import EstimatorError, Part
from estimators.graph import GraphCopy, functions_of, parameters_of

CPU = nn.Context(["cpu:float"], "CpuCachedArray", "")


def names(part):
    return [function.info.type_name for function in functions_of(part)]


def test_functions_come_in_topological_order_and_stop_at_the_inputs():
    x = nn.Variable((1, 4, 6, 6))
    middle = F.tanh(x)
    part = Part((F.relu(F.sigmoid(middle)) + middle,), (middle,), "part")
    assert names(part) == ["Sigmoid", "ReLU", "Add2"]
    assert names(Part(part.outputs, (x,), "longer")) == ["Tanh", "Sigmoid", "ReLU", "Add2"]


def test_a_shared_function_is_walked_once():
    x = nn.Variable((2, 3))
    shared = F.tanh(x)
    assert names(Part((F.relu(shared), F.sigmoid(shared)), (x,), "part")) == ["Tanh", "ReLU", "Sigmoid"]


def test_a_graph_deeper_than_pythons_recursion_is_walked():
    x = y = nn.Variable((1,))
    for _ in range(3000):
        y = F.identity(y)
    assert len(names(Part((y,), (x,), "deep"))) == 3000


def test_an_identity_has_no_functions():
    assert functions_of(identity()) == []


def test_something_else_than_a_variable_is_named():
    with pytest.raises(EstimatorError, match="'part'.*Variables.*ndarray"):
        functions_of(Part((np.zeros(3),), (), "part"))
    with pytest.raises(EstimatorError, match="'part' has no outputs"):
        functions_of(Part((), (), "part"))


def test_parameters_are_leaves_that_are_no_input():
    part = inverted_residual()
    leaves = parameters_of(part)
    assert [leaf.shape for leaf in leaves][:2] == [(12, 4, 1, 1), (12,)]
    assert part.inputs[0] not in leaves


def test_a_leaf_that_is_an_output_is_copied_too():
    x, weights = nn.Variable((2, 3)), nn.Variable((2,))
    weights.d = [1, 2]
    part = Part((F.relu(x), weights), (x,), "part")
    assert parameters_of(part) == [weights]
    copy = GraphCopy(part, CPU)
    copy.forward()
    np.testing.assert_array_equal(copy.outputs[1].d, [1, 2])


def test_a_copy_computes_what_the_original_does():
    part = inverted_residual()
    copy = GraphCopy(part, CPU)
    part.inputs[0].d = copy.leaves[0].d
    part.outputs[0].forward()
    for _ in range(2):  # the second pass finds its inputs as they were
        copy.forward()
        np.testing.assert_allclose(copy.outputs[0].d, part.outputs[0].d, rtol=1e-5)


def test_a_copy_shares_no_buffer_and_leaves_the_original_as_it_was():
    part = inverted_residual()
    part.inputs[0].d = 3
    leaves = [*part.inputs, *parameters_of(part)]
    before = [leaf.d.copy() for leaf in leaves]
    for leaf in leaves:
        leaf.g = 7
    copy = GraphCopy(part, CPU)
    copy.forward()
    for leaf in copy.leaves:
        leaf.d = 99
    for leaf, values in zip(leaves, before, strict=True):
        np.testing.assert_array_equal(leaf.d, values)
        assert (leaf.g == 7).all()
    assert not {leaf.d.ctypes.data for leaf in leaves} & {leaf.d.ctypes.data for leaf in copy.leaves}


def test_a_copy_keeps_pending_zero_gradients_of_the_original():
    part = convolution()
    weights = parameters_of(part)
    for leaf in weights:
        leaf.grad.zero()
    GraphCopy(part, CPU).forward()
    assert all(leaf.grad.zeroing for leaf in weights)


def test_inputs_and_empty_parameters_are_random_and_the_same_each_time():
    part = convolution()
    weights = parameters_of(part)[0]
    weights.d = 0
    first, second = (GraphCopy(part, CPU).leaves for _ in range(2))
    assert (first[0].d != 0).all() and (first[1].d != 0).all()
    np.testing.assert_array_equal(first[1].d, second[1].d)
    assert (weights.d == 0).all()


def test_several_outputs_an_identity_among_them():
    x = nn.Variable((2, 4))
    pieces = F.split(x, axis=1)
    copy = GraphCopy(Part((x, F.relu(pieces[3]), F.tanh(pieces[0])), (x,), "part"), CPU)
    copy.forward()
    np.testing.assert_allclose(copy.outputs[2].d, np.tanh(copy.leaves[0].d[:, 0]), rtol=1e-5)
    np.testing.assert_allclose(copy.outputs[1].d, np.maximum(copy.leaves[0].d[:, 3], 0))


def test_a_function_that_cannot_be_made_again_is_named():
    with pytest.raises(EstimatorError, match="'mystery'.*'Mystery'"):
        GraphCopy(foreign(), CPU)
