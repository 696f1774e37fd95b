"""Memory: closed formulas, and what nnabla really keeps while it runs."""

import nnabla as nn
import nnabla.functions as F
import pytest
from small_parts import factor, identity, inverted_residual, parameter

from estimators import EstimatorError, Memory, Part
from estimators.graph import parameters_of
from estimators.memory import peak_of_activations


def data(*shape):
    """Something computed: nnabla never frees a leaf."""
    leaf = nn.Variable(shape)
    leaf.d = 1
    return F.sin(leaf)


def chain():
    x = data(1, 4, 8, 8)
    y = F.convolution(x, parameter(6, 4, 1, 1), parameter(6))
    y = F.max_pooling(F.relu(y), (2, 2))
    return Part((F.affine(F.reshape(y, (1, -1)), parameter(96, 3), parameter(3)),), (x,), "chain")


def wide():
    """Branches that wait for each other, and an input that is read late."""
    x = data(1, 12, 6, 6)
    first, second = F.split(F.reshape(F.tile(x, (1, 2, 1, 1)), (1, 12, 2, 36), inplace=False), axis=2)
    y = F.concatenate(F.relu(first), F.tanh(F.tile(second, (1, 1, 2))), axis=2)
    return Part((F.concatenate(F.relu(y), F.reshape(F.sigmoid(x), (1, 12, 36), inplace=False), axis=2),), (x,), "wide")


def kept_by_nnabla(part):
    """The most bytes that nnabla has not freed at once while it runs a part, without its weights."""
    for leaf in parameters_of(part):
        leaf.persistent = True
    buffers, most = {}, [0]

    def before(function):
        for i, source in enumerate(function.inputs):
            if function.inplace_data(i):
                buffers[function.outputs[function.inplace_data_with(i)]] = buffers.get(source, source)
        for output in function.outputs:
            buffers.setdefault(output, output)
        live = {buffers[one] for one in buffers if one in function.outputs or not one.data.clear_called}
        most[0] = max(most[0], sum(4 * one.size for one in live))

    part.outputs[0].forward(clear_buffer=True, function_pre_hook=before)
    return most[0]


def test_a_chain_by_formula():
    x, convolved, pooled = 4 * 64, 6 * 64, 6 * 16
    assert peak_of_activations(chain()) == 4 * max(x + convolved, convolved + convolved, convolved + pooled)
    weights = 6 * 4 + 6 + 96 * 3 + 3
    assert Memory().exact(chain()) == {
        "weights": 4 * weights,
        "peak_of_activations": 4 * 2 * convolved,
        "total": 4 * (weights + 2 * convolved),
    }


def test_a_shortcut_is_kept_until_it_is_added():
    part = inverted_residual(channels=4, expansion=3, size=6)
    # The input, and the expanded maps before and behind the activation.
    assert peak_of_activations(part) == 4 * 36 * (4 + 12 + 12)


def test_the_batch_counts_for_activations_only():
    def convolved(batch):
        x = nn.Variable((batch, 4, 8, 8))
        return Part((F.convolution(x, parameter(4, 4, 3, 3), pad=(1, 1)),), (x,), "part")

    one, eight = (Memory().exact(convolved(batch)) for batch in (1, 8))
    assert eight["weights"] == one["weights"] and eight["peak_of_activations"] == 8 * one["peak_of_activations"]


@pytest.mark.parametrize("make", [chain, wide])
def test_the_peak_is_what_nnabla_keeps(make):
    part = make()
    assert peak_of_activations(part) == kept_by_nnabla(part)


def test_what_is_held_for_later_counts():
    part, elsewhere = chain(), nn.Variable((1, 5, 7))
    alone = peak_of_activations(part)
    assert peak_of_activations(Part(part.outputs, part.inputs, "", held=(elsewhere,))) == alone + 4 * 35
    # Its own input does not go after its last reader, when a later part reads it too.
    assert peak_of_activations(Part(part.outputs, part.inputs, "", held=part.inputs)) == alone + 4 * 4 * 64


def test_running_statistics_are_weights():
    x = nn.Variable((1, 4, 6, 6))
    norm = [parameter(1, 4, 1, 1) for _ in range(4)]
    for one in norm[2:]:
        one.need_grad = False
    part = Part((F.batch_normalization(x, *norm, batch_stat=False),), (x,), "norm")
    assert Memory().exact(part)["weights"] == 4 * 16


def test_a_peak_that_every_network_has_counts_once():
    """Of the parts (always: 10, one option: 16 or 2) a network needs the larger peak, not the sum."""
    part = {name: pooled(size) for name, size in (("always", 8), ("large", 14), ("small", 1))}
    parts = [
        part["always"],
        Part(part["large"].outputs, part["large"].inputs, "large", (("d", "large"),)),
        Part(part["small"].outputs, part["small"].inputs, "small", (("d", "small"),)),
    ]
    peaks = [4 * (size + 2) for size in (8, 14, 1)]
    always, large, small = Memory().costs(parts)
    assert always + large == max(peaks[0], peaks[1]) and always + small == peaks[0]


def pooled(size):
    x = nn.Variable((1, size))
    return Part((F.slice(x, (0, 0), (1, 2)) if size > 1 else F.tile(x, (1, 2)),), (x,), "always")


def test_weights_that_two_parts_share_count_once():
    weights = parameter(4, 4, 1, 1)

    def part(when=()):
        x = nn.Variable((1, 4, 1, 1))
        return Part((F.convolution(x, weights),), (x,), "part", when)

    first, again = Memory().costs([part(), part((("d", "a"),))])
    assert (first, again) == (4 * 16 + 4 * 8, 0)
    chosen, other = Memory().costs([part((("d", "a"),)), part((("d", "b"),))])
    assert chosen == other == 4 * 16 + 4 * 8


def test_the_error_is_what_the_bound_exceeds():
    parts = [chain(), inverted_residual()]
    exact = [Memory().exact(part)["total"] for part in parts]
    assert factor(Memory(), parts, exact) == (1.0, 0.0)
    assert factor(Memory(), parts, [1.1 * total for total in exact]) == (1.0, pytest.approx(0.1))
    raised, _ = factor(Memory(), parts, [0.8 * exact[0], exact[1]])
    assert raised == pytest.approx(1 / 0.8), "a bound that is none is raised"


def test_an_identity_costs_nothing_and_a_wrong_batch_is_refused():
    assert Memory().costs([identity()]) == [0.0]
    with pytest.raises(EstimatorError, match="batch.*'x'"):
        Memory(batch="x")


def test_a_result_that_nobody_reads_goes_at_once():
    x = data(1, 2, 10)
    first, _ = F.split(x, axis=1)
    part = Part((F.tile(F.relu(first), (1, 3)),), (x,), "part")
    # The input and both halves; then one half, its copy; then the copy and the result.
    assert peak_of_activations(part) == 4 * max(20 + 10 + 10, 10 + 10, 10 + 30)


def test_what_works_in_place_takes_nothing():
    x = data(1, 2, 10)
    rows = [F.reshape(x, (1, 20)) for _ in range(2)]
    assert peak_of_activations(Part((F.concatenate(*rows),), (x,), "part")) == 4 * (20 + 40)
