"""Equal structures have equal signatures, others have not."""

import subprocess
import sys

import nnabla as nn
import nnabla.functions as F
import pytest
from small_parts import convolution, inverted_residual, parameter

from estimators import Part
from estimators.signature import signature


def test_names_and_weights_do_not_matter():
    first, second = inverted_residual(label="one"), inverted_residual(label="two")
    second.inputs[0].name = "another"
    for leaf in second.outputs[0].parent.inputs:
        leaf.need_grad = False
    assert signature(first) == signature(second)


@pytest.mark.parametrize(
    "other",
    [
        convolution(channels=5),
        convolution(kernel=5),
        convolution(size=7),
        convolution(batch=2),
        inverted_residual(),
    ],
)
def test_shapes_attributes_and_operations_matter(other):
    assert signature(other) != signature(convolution())


def test_attributes_matter_where_shapes_agree():
    x = nn.Variable((2, 3))
    assert two(F.leaky_relu(x, alpha=0.1), (x,)) != two(F.leaky_relu(x, alpha=0.2), (x,))


def test_the_data_type_matters():
    assert signature(convolution(), "float16") != signature(convolution(), "float32")


def two(function, inputs):
    return signature(Part((function,), inputs, "part"))


def test_wiring_matters():
    x, y = nn.Variable((2, 3)), nn.Variable((2, 3))
    assert two(F.add2(x, y), (x, y)) != two(F.add2(x, x), (x, y))
    a = F.sub2(F.relu(x), F.tanh(x))
    b = F.sub2(F.tanh(x), F.relu(x))
    assert two(a, (x,)) != two(b, (x,))
    shared, apart = F.relu(x), (F.relu(x), F.relu(x))
    assert two(F.add2(shared, shared), (x,)) != two(F.add2(*apart), (x,))


def test_a_parameter_is_no_data_input():
    x, w = nn.Variable((2, 3)), parameter(2, 3)
    assert two(x * w, (x,)) != two(x * w, (x, w))


def test_which_output_of_a_function_is_used_matters():
    x = nn.Variable((2, 3))
    a, b, _ = F.split(x, axis=1)
    assert two(F.relu(a), (x,)) != two(F.relu(b), (x,))


def test_what_it_looks_like():
    x = nn.Variable((1, 2))
    part = Part((F.leaky_relu(F.affine(x, parameter(2, 3)), alpha=0.1),), (x,), "part")
    assert signature(part) == (
        "float32: v0(1,3)=Affine(x0(1,2), p0(2,3); base_axis=1); v1(1,3)=LeakyReLU(v0; alpha=0.1, inplace=False) -> v1"
    )


def test_another_process_gives_the_same():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from small_parts import inverted_residual; "
        "from estimators.signature import signature; print(signature(inverted_residual()))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, __file__.rsplit("/", 1)[0]], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip().splitlines()[-1] == signature(inverted_residual())
