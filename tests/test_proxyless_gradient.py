"""ProxylessNAS with gradients: by formula, by finite differences and on toy decisions."""

from functools import partial

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np
import pytest
from test_costs import NESTED, SHAPE, random_costs
from test_reinforce import FREE, PAIR, adam, random_alphas, softmax, with_alphas
from tiny import Judge

from nnas.communicator import Alone
from nnas.costs import Costs, Term, extremes
from nnas.deciders import MaskedMixture
from nnas.errors import NnasError
from nnas.objectives import Constraint, LinearPenalty, LogProduct, RewardMin
from nnas.searchers.proxyless_gradient import ProxylessGradient
from nnas.space import Decision, Site, Space

SPACES = [PAIR, NESTED]


def searching(space=PAIR, constraints=None, objective=None, make_solver=adam, seed=0, **changes):
    constraints = [Constraint("latency", FREE, 2.0)] if constraints is None else constraints
    objective = objective or LinearPenalty(weight=0.5)
    return ProxylessGradient(space, constraints, objective, make_solver, Alone(), seed, **changes)


def constrained(space, random):
    """Two constraints with costs above 1, so that logarithms can be taken."""
    tables = [random_costs(space, random, factor, unit) for factor, unit in ((1.3, "ms"), (0.7, "KiB"))]
    tables = [Costs(one.unit, (Term((), 2.0, "base"), *one.terms), one.factor) for one in tables]
    return [
        Constraint(one.unit, one, extremes(space, one)[0] * 1.1, weight)
        for one, weight in zip(tables, (0.4, None), strict=True)
    ]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
@pytest.mark.parametrize("objective", [LinearPenalty(weight=0.7), LogProduct(scale=0.6, weight=0.5)])
@pytest.mark.parametrize("among", ["full", "two"])
def test_gradient_by_finite_difference(space, objective, among, random):
    """Of the loss as a function of the alphas, where the cross entropy follows the gates to first order."""
    searcher = searching(space, constrained(space, random), objective, paths=among)
    alphas = {name: values.astype(np.float64) for name, values in random_alphas(space, random).items()}
    gates = {name: random.normal(size=len(values)) for name, values in alphas.items()}
    drawn = {name: searcher._draw(name) for name in alphas}

    def probabilities(alphas):
        found = {name: np.zeros(len(values)) for name, values in alphas.items()}
        for name, places in drawn.items():
            found[name][places] = softmax(alphas[name][places])
        return found

    here = probabilities(alphas)

    def loss(alphas):
        p = probabilities(alphas)
        cross_entropy = 1.7 + sum(gates[name] @ (p[name] - here[name]) for name in p)
        named = searcher._named(p)
        expected = {one.name: one.costs.expected(named) for one in searcher.constraints}
        return objective(cross_entropy, expected, searcher.constraints)[0]

    value, gradient = searcher.gradient(here, gates, 1.7)
    assert value == pytest.approx(loss(alphas))
    sizes = []
    for name, values in alphas.items():
        for i in range(len(values)):
            step = 1e-5 * np.eye(len(values))[i]
            ends = [loss({**alphas, name: values + sign * step}) for sign in (1, -1)]
            assert gradient[name][i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-8)
            sizes.append(abs(gradient[name][i]))
            if i not in drawn[name]:
                assert gradient[name][i] == 0
    assert np.median(sizes) > 1e-3 if among == "full" else max(sizes) > 1e-3


def test_gate_gradient_by_formula(random):
    """Without costs, d loss / d alpha_i = sum_j (d loss / d gate_j) p_j (delta_ij - p_i)."""
    alphas, gates = random_alphas(PAIR, random), {name: random.normal(size=3) for name in ("x", "y")}
    probabilities = {name: softmax(values) for name, values in alphas.items()}
    _, gradient = searching(constraints=[]).gradient(probabilities, gates, 1.0)
    for name, p in probabilities.items():
        for i in range(3):
            expected = sum(gates[name][j] * p[j] * ((i == j) - p[i]) for j in range(3))
            assert gradient[name][i] == pytest.approx(expected)


SOLVERS = {"adam": adam, "momentum": partial(S.Momentum, 0.5), "adam_with_momentum": partial(S.Adam, 0.5)}


@pytest.mark.parametrize("make_solver", SOLVERS.values(), ids=SOLVERS)
def test_two_paths_leave_all_other_probabilities_alone(make_solver, random):
    """To 1e-6, and their alphas exactly, also with solvers whose momentum would move them."""
    space = Space("wide", tuple(Decision(f"d{i}", tuple("abcdefg"), (Site(SHAPE),)) for i in range(3)))
    searcher = searching(space, make_solver=make_solver, paths="two")
    accuracies = {
        decision.name: dict(zip("abcdefg", random.uniform(-2, 2, 7), strict=True)) for decision in space.decisions
    }
    judge = Judge(searcher, lambda choices: sum(accuracies[name][option] for name, option in choices.items()))
    for _ in range(60):
        before, was = searcher.state()["alphas"], {name: p.copy() for name, p in searcher._probabilities.items()}
        searcher.step(judge)
        for decision in space.decisions:
            name, pair = decision.name, judge.selected[-1][decision.name]
            others = [i for i, option in enumerate(decision.options) if option not in pair]
            assert len(pair) == 2 and len(others) == 5
            np.testing.assert_allclose(searcher._probabilities[name][others], was[name][others], atol=1e-6, rtol=0)
            np.testing.assert_array_equal(searcher.state()["alphas"][name][others], before[name][others])
            assert searcher._probabilities[name].sum() == pytest.approx(1)
            assert (searcher.state()["alphas"][name] != before[name]).sum() == 2
    assert max(p.max() for p in searcher._probabilities.values()) > 0.5


def test_pairs_are_drawn_without_replacement(random):
    alphas = {"x": np.array([1.5, 0.0, -0.5]), "y": np.zeros(3)}
    searcher = with_alphas(searching(), alphas)
    p = softmax(alphas["x"])
    drawn = [tuple(searcher._draw("x")) for _ in range(3000)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        expected = p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j])
        assert abs(drawn.count((i, j)) / 3000 - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 3000)
    # Decisions draw independently.
    both = [tuple(searcher._draw("y")) == tuple(searcher._draw("y")) for _ in range(300)]
    assert 0.2 < np.mean(both) < 0.47


def test_the_active_option_follows_the_probabilities():
    for paths, expected in (("full", softmax(np.array([1.0, 0.0, -1.0]))), ("two", None)):
        searcher = searching(make_solver=partial(S.Sgd, 1e-9), paths=paths)
        with_alphas(searcher, {"x": np.array([1.0, 0.0, -1.0]), "y": np.zeros(3)})
        judge = Judge(searcher, lambda choices: 0.5)
        for _ in range(400):
            searcher.step(judge)
        if expected is None:
            given = [
                one for one, options in zip(judge.judged, judge.selected, strict=True) if options["x"] == ["a", "b"]
            ]
            shares, expected = [np.mean([one["x"] == "a" for one in given])], softmax(np.array([1.0, 0.0]))[:1]
        else:
            shares = [np.mean([one["x"] == option for one in judge.judged]) for option in "abc"]
        np.testing.assert_allclose(shares, expected, atol=0.12)


def test_a_search_that_is_certain_still_has_pairs():
    searcher = with_alphas(searching(), {"x": np.array([2000.0, 0, -2000]), "y": np.array([0, 2000.0, 0])})
    with np.errstate(divide="raise", invalid="raise"):
        searcher.step(Judge(searcher, lambda choices: 0.5))
    assert searcher.best() == {"x": "a", "y": "b"}


def zero_mixture(gates, random):
    """A decision between an operator and Zero; returns (loss, the operator's output)."""
    x = nn.Variable.from_numpy_array(random.normal(size=(2, 3)))
    outputs = {}
    candidates = {"op": lambda x: outputs.setdefault("op", 2 * x), "zero": lambda x: 0 * x, "other": lambda x: 3 * x}
    y = MaskedMixture(gates)("d", candidates, x)
    return F.sum(F.exp(y)), 2 * x.d


@pytest.mark.parametrize("paths", ["full", "two"])
def test_an_active_zero_still_gets_its_whole_gradient(paths, random):
    """Where Zero is active, products with detached outputs vanish; the gradients of the gates and costs must not."""
    space = Space("zero", (Decision("d", ("op", "zero", "other"), (Site(SHAPE),)),))
    costs = Costs("ms", (Term((), 1.0, ""), Term((("d", "op"),), 2.0, ""), Term((("d", "other"),), 3.0, "")))
    searcher = searching(space, [Constraint("latency", costs, 4.0, 0.8)], make_solver=partial(S.Sgd, 1.0), paths=paths)
    loss, output = zero_mixture(searcher.gates, random)
    seen = []

    class Evaluate:
        def differentiate(self, options):
            searcher.gates["d"].d = [0, 1, 0]
            searcher.gates["d"].grad.zero()
            loss.forward()
            loss.backward()
            seen.append(searcher.gates["d"].g.copy())
            return 0.0, 0.5

    searcher._draw = lambda name: np.arange(3) if paths == "full" else np.array([0, 1])
    searcher.step(Evaluate())
    # At y = 0 the gradient of the loss is 1 everywhere.
    np.testing.assert_allclose(seen[0], [output.sum(), 0, 1.5 * output.sum()], rtol=1e-5)
    by_gate = np.array([output.sum(), 0, 1.5 * output.sum()]) + 0.8 / 4 * np.array([2, 0, 3])
    p = np.full(3, 1 / 3) if paths == "full" else np.array([0.5, 0.5, 0])
    gradient = p * (by_gate - p @ by_gate)
    alphas = searcher.state()["alphas"]["d"]
    assert alphas[0] - alphas[1] == pytest.approx(-(gradient[0] - gradient[1]), rel=1e-5)
    assert abs(gradient[1]) > 0.1


@pytest.mark.parametrize("paths", ["full", "two"])
@pytest.mark.parametrize("weight, found", [(0.0, {"x": "c", "y": "c"}), (0.3, {"x": "b", "y": "c"})])
def test_converges_on_a_toy_loss(paths, weight, found):
    """Without a penalty to the most accurate; with one to what is worth its cost."""
    costs = Costs("ms", (Term((), 1.0, "stem"), Term((("x", "c"),), 9.0, "x = c")))
    constraints = [Constraint("latency", costs, 20.0 if not weight else 5.0, weight)]
    searcher = searching(constraints=constraints, paths=paths, make_solver=partial(S.Adam, 0.1, 0.0, 0.999))
    accuracy = {"a": 0.2, "b": 0.6, "c": 0.9}
    judge = Judge(searcher, lambda choices: 0.5 * accuracy[choices["x"]] + 0.5 * accuracy[choices["y"]])
    entropy = searcher.figures()["entropy"]
    for _ in range(150):
        figures = searcher.step(judge)
        assert np.isfinite(list(figures.values())).all()
    assert searcher.figures()["entropy"] < 0.5 * entropy
    assert searcher.best() == found
    assert sum(searcher.sample() == found for _ in range(100)) > 60


def test_the_expected_cost_of_the_pair_counts(random):
    """Not that of all options: with two paths the others have no part in it."""
    searcher = searching(NESTED, constrained(NESTED, random), paths="two")
    probabilities = {d.name: searcher._among(d.name, searcher._draw(d.name)) for d in NESTED.decisions}
    assert all(np.count_nonzero(p) <= 2 and p.sum() == pytest.approx(1) for p in probabilities.values())
    loss, _ = searcher.gradient(probabilities, {name: 0 * p for name, p in probabilities.items()}, 0.0)
    named = searcher._named(probabilities)
    expected = {one.name: one.costs.expected(named) for one in searcher.constraints}
    assert loss == pytest.approx(searcher.objective(0.0, expected, searcher.constraints)[0])


def test_alphas_that_are_not_finite_end_the_search():
    searcher = searching()
    searcher.step(Judge(searcher, lambda choices: 0.5))
    with pytest.raises(NnasError, match=r"alphas of x are .*nan.* after update 2 of the searcher") as caught:
        searcher.step(Judge(searcher, lambda choices: float("nan")))
    assert "\n" not in str(caught.value)


def test_wrong_values_and_objectives_are_named():
    with pytest.raises(NnasError, match=r"searcher\.paths='tow': possible are full, two, did you mean 'two'"):
        searching(paths="tow")
    with pytest.raises(
        NnasError, match="does not take the objective RewardMin; .*linear_penalty, absolute_penalty, log_product"
    ):
        searching(objective=RewardMin())
    with pytest.raises(NnasError, match="take objective=linear_penalty"):
        searching(constraints=[Constraint("latency", FREE, 0.9)], objective=LogProduct())
