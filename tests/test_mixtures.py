"""Searchers on mixtures: by formula, by finite differences, and on toys."""

from dataclasses import replace
from functools import partial

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
import pytest
from conftest import tiny_cells
from test_costs import random_costs
from test_nodes import SPACE, probabilities
from test_search import MIXING
from tiny import CLASSES, SHAPE, MixedJudge, patterns

from nnas.classifier import Classification, ClassifierGraph
from nnas.communicator import Alone
from nnas.costs import extremes
from nnas.deciders import Mixture, Sampled, listed
from nnas.errors import NnasError
from nnas.layers import SAMPLED_EVALUATION, Outputs
from nnas.lookahead import Lookahead
from nnas.objectives import AbsolutePenalty, Constraint, LinearPenalty
from nnas.partial_channels import PartialChannels
from nnas.search import Supernet
from nnas.searchers.darts import Darts
from nnas.searchers.gumbel import Gumbel
from nnas.searchers.pcdarts import PcDarts
from nnas.searchers.xnas import WIPED_OUT, Xnas
from nnas.space import Decision, Site, Space
from nnas.updates import WeightUpdate

adam = partial(S.Adam, alpha=0.1, beta1=0.5)


@pytest.mark.parametrize("name", ["toy", "plain"])
def test_expected_costs_of_legal_architectures_by_finite_difference(name, random):
    """Of the loss for the alphas, through the probabilities that edges are kept."""
    space = SPACE if name == "toy" else Space("plain", SPACE.decisions[5:])
    costs = random_costs(space, random, 1.3)
    constraint = Constraint("latency", costs, extremes(space, costs)[1] * 0.6)
    searcher = Darts(space, [constraint], LinearPenalty(weight=0.7), adam, Alone(), 0)
    alphas = {one.name: random.normal(size=len(one.options)) for one in space.decisions}
    gates = {one: random.normal(size=len(values)) for one, values in alphas.items()}

    def softmax(values):
        return np.exp(values) / np.exp(values).sum()

    def loss(alphas):
        p = {one: softmax(values) for one, values in alphas.items()}
        expected = costs.expected(searcher._named(space.marginals(p)))
        here = {one: softmax(values) for one, values in start.items()}
        cross_entropy = 1.5 + sum(gates[one] @ (p[one] - here[one]) for one in p)
        return searcher.objective(cross_entropy, {"latency": expected}, [constraint])[0]

    start = {one: values.copy() for one, values in alphas.items()}
    value, gradient = searcher.gradient({one: softmax(values) for one, values in alphas.items()}, gates, 1.5)
    assert value == pytest.approx(loss(alphas))
    for one, values in alphas.items():
        for i in range(len(values)):
            step = 1e-5 * np.eye(len(values))[i]
            ends = [loss({**alphas, one: values + sign * step}) for sign in (1, -1)]
            assert gradient[one][i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-7)


def test_expected_costs_are_the_means_over_what_is_drawn(random):
    costs, given = random_costs(SPACE, random), probabilities(random)
    # NONE is never chosen, and a dropped edge costs nothing.
    costs = replace(costs, terms=tuple(term for term in costs.terms if "none" not in dict(term.when).values()))
    drawn = [costs.cost(SPACE.draw(given, random)) for _ in range(4000)]
    searcher = Darts(SPACE, [], LinearPenalty(), adam, Alone(), 0)
    expected = costs.expected(searcher._named(SPACE.marginals(given)))
    assert abs(np.mean(drawn) - expected) < 4.5 * np.std(drawn) / np.sqrt(len(drawn))


@pytest.mark.parametrize("make", MIXING)
def test_the_best_option_of_every_decision_is_found(make):
    """From at least 9 of 10 seeds: one operator is better than all others on every edge, under noise."""
    space = Space("toy", tuple(Decision(f"d{i}", tuple("abcde"), (Site((1,)),)) for i in range(6)))
    right = 0
    for seed in range(10):
        random = np.random.default_rng(seed)
        best = {one.name: random.integers(5) for one in space.decisions}
        worth = {name: 0.3 * random.random(5) + 0.5 * (np.arange(5) == place) for name, place in best.items()}
        searcher = make(space, [], LinearPenalty(), communicator=Alone(), seed=seed)
        searcher.plan(120)
        judge = MixedJudge(searcher, worth, random, noise=0.2)
        for _ in range(120):
            searcher.step(judge)
        right += searcher.best() == {name: "abcde"[place] for name, place in best.items()}
    assert right >= 9


class Smooth:
    """Two decisions among differentiable functions, so that numerical derivatives are sharp."""

    name, input_shape, classes = "smooth", SHAPE, CLASSES

    def __call__(self, x, decide, mode):
        x = F.tanh(PF.affine(x, 6, name="stem"))
        for name in ("first", "second"):
            functions = {"tanh": F.tanh, "sin": F.sin, "same": lambda y: y}
            candidates = {
                option: (lambda x, option=option, f=f, name=name: f(PF.affine(x, 6, name=f"{name}/{option}")))
                for option, f in functions.items()
            }
            x = decide(name, candidates, x)
        return Outputs(PF.affine(x, self.classes, name="classifier"))


@pytest.mark.parametrize("make_solver", [partial(S.Sgd), partial(S.Momentum, momentum=0.9)])
def test_the_second_order_gradient_is_that_of_the_loss_after_a_step(make_solver, random):
    """Against a numerical derivative of the validation loss at w'(gates), for several gates; the weights are as before
    to the bit."""
    network, rate = Smooth(), 0.5
    space = listed(network)
    gates = {one.name: nn.Variable((len(one.options),), need_grad=True) for one in space.decisions}
    start = {name: random.dirichlet(np.ones(gate.size)) for name, gate in gates.items()}
    nn.random.prng = np.random.RandomState(3)
    with nn.parameter_scope("", {}):
        graph = ClassifierGraph(network, Mixture(gates), SAMPLED_EVALUATION, Classification(), 8)
        weights = nn.get_parameters()
    update = WeightUpdate(weights, make_solver, rate, 1e-3, None, Alone(), 0)
    data = patterns()
    training, more, validation = (data.training.draw(np.arange(i, i + 8), random) for i in (0, 4, 9))
    for name, gate in gates.items():
        gate.d = start[name]
    update.step(graph, [more], list(weights), rate, ("train", 0, 0))  # so that there is a velocity
    before = {name: weight.d.copy() for name, weight in weights.items()}
    ahead = Lookahead(graph, weights, gates, update)
    ahead(training, validation, rate)
    found = {name: gate.g.copy() for name, gate in gates.items()}
    assert all((weights[name].d == value).all() for name, value in before.items())

    def loss_ahead(changed):
        for name, gate in gates.items():
            gate.d = changed[name]
        ahead._differentiate(*training)
        moves = update.moves(ahead._gradients(), rate)
        ahead._set({name: value + moves[name] for name, value in before.items()})
        loss = ahead._differentiate(*validation)[0]
        ahead._set(before)
        return loss

    direction = {name: random.normal(size=gate.size) for name, gate in gates.items()}
    step = 2e-2
    ends = [loss_ahead({name: start[name] + sign * step * direction[name] for name in start}) for sign in (1, -1)]
    numerical = (ends[0] - ends[1]) / (2 * step)
    by_formula = sum(float(found[name] @ direction[name]) for name in found)
    assert by_formula == pytest.approx(numerical, rel=1e-2)
    # The first-order gradient is another one.
    for name, gate in gates.items():
        gate.d = start[name]
    ahead._differentiate(*validation)
    first = sum(float(gate.g @ direction[name]) for name, gate in gates.items())
    assert abs(first / numerical - 1) > 0.05


def test_looking_ahead_needs_a_solver_whose_step_is_known():
    weights = {"W": nn.Variable((2,), need_grad=True)}
    update = WeightUpdate(weights, partial(S.Nesterov, momentum=0.9), 0.1, 0.0, None, Alone(), 0)
    with pytest.raises(NnasError, match="Nesterov.*search.solver.make_solver._target_=nnabla.solvers.Momentum"):
        update.moves({"W": np.zeros(2)}, 0.1)


def test_gumbel_gradient_by_finite_difference(random):
    """Of the sum's weights for the alphas, the noise being what it was."""
    space = Space("toy", (Decision("d", tuple("abc"), (Site((1,)),)),))
    searcher = Gumbel(space, [], LinearPenalty(), adam, Alone(), 0, temperature=0.7, last_temperature=0.7)
    slopes, alphas, noise = random.normal(size=3), random.normal(size=3), random.gumbel(size=3)

    def weights(alphas):
        noisy = (alphas - np.log(np.exp(alphas).sum()) + noise) / 0.7
        return np.exp(noisy) / np.exp(noisy).sum()

    _, gradient = searcher.gradient({"d": weights(alphas)}, {"d": slopes}, 1.0)
    for i in range(3):
        step = 1e-6 * np.eye(3)[i]
        numerical = slopes @ (weights(alphas + step) - weights(alphas - step)) / 2e-6
        assert gradient["d"][i] == pytest.approx(numerical, rel=1e-4, abs=1e-8)


def test_gumbel_draws_by_the_probabilities_and_gets_colder(random):
    space = Space("toy", (Decision("d", tuple("abc"), (Site((1,)),)),))
    searcher = Gumbel(space, [], LinearPenalty(), partial(S.Sgd, 1e-12), Alone(), 0, hard=True)
    searcher.plan(5)
    searcher._alphas["d"].d = [1.0, 0.0, -1.0]
    searcher._take_log_probabilities()
    counts = np.zeros(3)
    for _ in range(3000):
        searcher.weigh()
        gate = searcher.gates["d"].d
        assert sorted(gate) == [0, 0, 1]
        counts += gate
    np.testing.assert_allclose(counts / 3000, searcher.probabilities["d"], atol=0.035)
    temperatures = []
    judge = MixedJudge(searcher, {}, random)
    for _ in range(6):
        temperatures.append(searcher.temperature)
        searcher.step(judge)
    np.testing.assert_allclose(temperatures, [10 ** (-i / 4) for i in (0, 1, 2, 3, 4, 4)])


def test_experts_by_hand_and_wiped_out_for_good(random):
    space = Space("toy", (Decision("d", tuple("abc"), (Site((1,)),)),))
    searcher = Xnas(space, [], LinearPenalty(), Alone(), 0, bound=1.0)
    searcher.plan(4)
    eta = np.sqrt(2 * np.log(3) / 4)
    worth = np.array([0.9, 0.3, -1.2])
    judge = MixedJudge(searcher, {"d": worth}, random)
    logs = np.zeros(3)
    for number in range(4):
        p = np.exp(logs - logs.max()) * (logs > WIPED_OUT)
        p /= p.sum()
        np.testing.assert_allclose(searcher.probabilities["d"], p, atol=1e-6)
        searcher.step(judge)
        logs = np.where(logs > WIPED_OUT, logs + eta * np.clip(worth - p @ worth, -1, 1), WIPED_OUT)
        logs[logs < logs.max() - 2 * eta * (3 - number) - 1e-9] = WIPED_OUT
    np.testing.assert_allclose(searcher.probabilities["d"], [1, 0, 0], atol=1e-12)


def test_edges_have_weights_of_their_own(random):
    """The edges that stay are those of the largest products."""
    space = listed(tiny_cells())
    searcher = PcDarts(space, [], LinearPenalty(), adam, Alone(), 0)
    node = space.nodes[1]
    assert searcher.gates[node.name].shape == (3,)
    judge = MixedJudge(searcher, {node.name: np.array([0.0, 1.0, 1.0])}, random)
    for _ in range(20):
        searcher.step(judge)
    assert [edge for edge in node.edges if edge in searcher.best()] == list(node.edges[1:])


def test_a_part_of_the_channels_passes_by(random):
    """With one-hot weights the sum is what sampling its options gives, and the operators have fewer channels."""
    network = PartialChannels(tiny_cells(), 2)
    space = listed(network)
    choices = space.sample(random)
    gates = {one.name: nn.Variable((len(one.options),)) for one in space.decisions}
    for one in space.decisions:
        gates[one.name].d = [option == choices.get(one.name, "none") for option in one.options]
    images = random.normal(size=(2, *SHAPE)).astype(np.float32)
    logits = []
    with nn.parameter_scope("", {}):
        for decide in (Mixture(gates), Sampled()):
            x = nn.Variable.from_numpy_array(images)
            logits.append(network(x, decide, SAMPLED_EVALUATION).logits)
            if isinstance(decide, Sampled):
                decide.select(choices)
        kernels = {name: one.shape for name, one in nn.get_parameters().items() if "/from" in name and "/W" in name}
    for one in logits:
        one.forward()
    np.testing.assert_allclose(logits[0].d, logits[1].d, rtol=1e-4, atol=1e-5)
    assert kernels and all(shape[:2] == (2, 2) for shape in kernels.values())
    with pytest.raises(NnasError, match="channel_share=3.*4 channels"):
        listed(PartialChannels(tiny_cells(), 3))


def test_an_absolute_penalty_pulls_to_the_bound_from_both_sides():
    space = Space("toy", (Decision("d", tuple("ab"), (Site((1,)),)),))
    costs = random_costs(space, np.random.default_rng(0))
    one = Constraint("latency", costs, 2.0)
    penalty = AbsolutePenalty(weight=0.6)
    assert penalty(1.5, {"latency": 3.0}, [one]) == (pytest.approx(1.8), 1.0, {"latency": 0.3})
    assert penalty(1.5, {"latency": 1.0}, [one]) == (pytest.approx(1.8), 1.0, {"latency": -0.3})
    assert penalty.lowest == 0.97


def test_the_weights_step_gives_no_gradient_to_gates(random):
    """What is trained is the whole sum, all its weights, and the gates are left alone."""
    gates = {one.name: nn.Variable((len(one.options),), need_grad=True) for one in listed(tiny_cells()).decisions}
    for gate in gates.values():
        gate.d = 1 / gate.size
    supernet = Supernet(tiny_cells(), Classification(), 4, 4, 0, gates=gates, mixes=True)
    for gate in gates.values():
        gate.grad.zero()
    images, labels = patterns().training.draw(np.arange(4), random)
    for parameter in supernet.trained.values():
        parameter.grad.zero()
    supernet.training.forward(images, labels)
    supernet.training.loss.backward()
    assert all(gate.grad.zeroing for gate in gates.values())
    assert all(not parameter.grad.zeroing for parameter in supernet.trained.values())
    supernet.differentiate({}, images, labels)
    assert any(gate.g.any() for gate in gates.values())
