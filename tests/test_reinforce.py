"""ProxylessNAS with REINFORCE: by formula and by enumeration on toy decisions."""

from functools import partial
from itertools import product
from math import log

import nnabla.solvers as S
import numpy as np
import pytest
from test_costs import NESTED, SHAPE, architectures, random_costs

from nnas.communicator import Alone
from nnas.costs import Costs, Term, extremes
from nnas.errors import NnasError
from nnas.objectives import Absolute, Constraint, LinearPenalty, LogProduct, RewardMin
from nnas.searchers.reinforce import Reinforce
from nnas.space import Decision, Site, Space

FREE = Costs("ms", (Term((), 1.0, "all"),))
PAIR = Space("pair", (Decision("x", ("a", "b", "c"), (Site(SHAPE),)), Decision("y", ("a", "b", "c"), (Site(SHAPE),))))
SPACES = [PAIR, NESTED]
adam = partial(S.Adam, alpha=0.1, beta1=0.0, beta2=0.999)


def reinforce(space=PAIR, constraints=None, seed=0, make_solver=adam, **changes):
    constraints = [Constraint("latency", FREE, 2.0, 1.0)] if constraints is None else constraints
    return Reinforce(space, constraints, RewardMin(), make_solver, Alone(), seed, **changes)


def with_alphas(searcher, alphas):
    searcher.restore({**searcher.state(), "alphas": alphas})
    return searcher


def random_alphas(space, random):
    return {decision.name: random.normal(size=len(decision.options)) for decision in space.decisions}


def softmax(alphas):
    exponentials = np.exp(alphas)
    return exponentials / exponentials.sum()


def probability(space, alphas, choices):
    """Of an architecture, all of its active decisions being drawn independently."""
    return np.prod(
        [
            softmax(alphas[decision.name])[decision.options.index(choices[decision.name])]
            for decision in space.decisions
            if decision.name in choices
        ]
    )


def rewards_of(space, random):
    return {tuple(choices.items()): random.uniform(0, 1) for choices in architectures(space)}


def expected_reward(space, alphas, rewards):
    return sum(
        probability(space, alphas, choices) * rewards[tuple(choices.items())] for choices in architectures(space)
    )


def exact_gradient(space, alphas, rewards, step=1e-5):
    """Of the negative expected reward, by central differences of the sum over all architectures."""
    gradient = {name: np.zeros(len(values)) for name, values in alphas.items()}
    for name, values in alphas.items():
        for i in range(len(values)):
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved[i] += sign * step
                ends.append(expected_reward(space, {**alphas, name: moved}, rewards))
            gradient[name][i] = -(ends[0] - ends[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
@pytest.mark.parametrize("baseline", [0.0, 0.7, -3.0])
def test_mean_of_the_estimate_is_the_exact_gradient(space, baseline, random):
    """The mean is taken exactly, as the sum over all architectures of probability times estimate."""
    alphas, rewards = random_alphas(space, random), rewards_of(space, random)
    searcher = with_alphas(reinforce(space), alphas)
    mean = {name: np.zeros(len(values)) for name, values in alphas.items()}
    for choices in architectures(space):
        estimate = searcher.gradient([choices], [rewards[tuple(choices.items())]], baseline)
        for name in mean:
            mean[name] += probability(space, alphas, choices) * estimate[name]
    exact = exact_gradient(space, alphas, rewards)
    for name in mean:
        np.testing.assert_allclose(mean[name], exact[name], atol=2e-6)
    assert max(np.abs(values).max() for values in exact.values()) > 0.01


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_mean_over_many_samples_is_the_exact_gradient(space, random):
    alphas, rewards = random_alphas(space, random), rewards_of(space, random)
    searcher = with_alphas(reinforce(space), alphas)
    estimates = []
    for _ in range(30):
        sampled = [searcher.sample() for _ in range(50)]
        given = [rewards[tuple(choices.items())] for choices in sampled]
        estimates.append(searcher.gradient(sampled, given, 0.5))
    exact = exact_gradient(space, alphas, rewards)
    for name in alphas:
        means = np.array([estimate[name] for estimate in estimates])
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        assert (np.abs(means.mean(axis=0) - exact[name]) <= 5 * error + 1e-9).all()


def test_the_estimate_of_several_samples_is_their_mean(random):
    searcher = with_alphas(reinforce(NESTED), random_alphas(NESTED, random))
    sampled = [searcher.sample() for _ in range(7)]
    rewards = list(random.uniform(0, 1, 7))
    together = searcher.gradient(sampled, rewards, 0.4)
    for name in together:
        alone = [searcher.gradient([c], [r], 0.4)[name] for c, r in zip(sampled, rewards, strict=True)]
        np.testing.assert_allclose(together[name], np.mean(alone, axis=0), atol=1e-12)


def test_gradient_by_formula(random):
    alphas = random_alphas(PAIR, random)
    searcher = with_alphas(reinforce(), alphas)
    gradient = searcher.gradient([{"x": "b", "y": "c"}], [0.9], 0.5)
    np.testing.assert_allclose(gradient["x"], 0.4 * (softmax(alphas["x"]) - [0, 1, 0]), atol=1e-6)
    np.testing.assert_allclose(gradient["y"], 0.4 * (softmax(alphas["y"]) - [0, 0, 1]), atol=1e-6)


def test_a_decision_that_is_never_reached_does_not_move():
    searcher = reinforce(NESTED)
    sampled = [choices for choices in architectures(NESTED) if choices["a"] == "a0"][:3]
    gradient = searcher.gradient(sampled, [0.1, 0.5, 0.9], 0.2)
    assert not gradient["b"].any() and not gradient["c"].any()
    assert gradient["a"].any() and gradient["d"].any()


@pytest.mark.parametrize("start_from_first", [True, False])
def test_baseline_follows_the_mean_reward_after_use(start_from_first):
    """Each update uses b, then b becomes beta mean(R) + (1 - beta) b."""
    searcher = reinforce(
        samples=4, baseline_decay=0.8, start_from_first=start_from_first, make_solver=partial(S.Sgd, lr=1.0)
    )
    used = []
    gradient = searcher.gradient
    searcher.gradient = lambda sampled, rewards, baseline: used.append(baseline) or gradient(sampled, rewards, baseline)
    expected, kept = None if start_from_first else 0.0, []
    for accuracies in ([0.1, 0.2, 0.3, 0.6], [0.5] * 4, [0.9, 0.7, 0.8, 0.8]):
        values = iter(accuracies)
        figures = searcher.step(lambda choices, values=values: next(values))
        mean = np.mean(accuracies)
        expected = mean if expected is None else expected
        assert used[-1] == pytest.approx(expected)
        expected = 0.8 * mean + 0.2 * expected
        assert searcher.baseline == searcher.figures()["baseline"] == pytest.approx(expected)
        assert figures["reward"] == pytest.approx(mean)
        assert figures["validation_error"] == pytest.approx(1 - mean)
        kept.append(searcher.baseline)
    assert len(set(kept)) == 3


def test_leave_one_out_by_formula():
    """The advantage of a sample is its reward less the mean reward of the others."""
    searcher = reinforce(samples=4, baseline="leave_one_out")
    used = []
    gradient = searcher.gradient
    searcher.gradient = lambda sampled, rewards, baseline: used.append(baseline) or gradient(sampled, rewards, baseline)
    for accuracies in ([0.1, 0.2, 0.3, 0.6], [0.9, 0.7, 0.8, 0.8]):
        values = iter(accuracies)
        searcher.step(lambda choices, values=values: next(values))
        others = [np.mean([*accuracies[:i], *accuracies[i + 1 :]]) for i in range(4)]
        np.testing.assert_allclose(used[-1], others)
        assert searcher.figures()["baseline"] == pytest.approx(np.mean(accuracies))


def test_mean_of_the_estimate_with_leave_one_out_is_the_exact_gradient(random):
    """Over all pairs of architectures: the others' rewards are drawn without regard to a sample, so they add no bias,
    as the mean of all rewards would."""
    alphas, rewards = random_alphas(PAIR, random), rewards_of(PAIR, random)
    searcher = with_alphas(reinforce(samples=2, baseline="leave_one_out", make_solver=partial(S.Sgd, lr=1.0)), alphas)
    start, mean = searcher.state(), {name: np.zeros(3) for name in alphas}
    for pair in product(architectures(PAIR), repeat=2):
        searcher.restore(start)
        drawn = iter(pair)
        searcher.sample = lambda drawn=drawn: next(drawn)
        searcher.reward = lambda choices, accuracy: rewards[tuple(choices.items())]
        searcher.step(lambda choices: 0.5)
        weight = probability(PAIR, alphas, pair[0]) * probability(PAIR, alphas, pair[1])
        for name, values in searcher.state()["alphas"].items():
            mean[name] += weight * (start["alphas"][name] - values)
    exact = exact_gradient(PAIR, alphas, rewards)
    for name in mean:
        np.testing.assert_allclose(mean[name], exact[name], atol=2e-6)


def test_leave_one_out_needs_others():
    with pytest.raises(NnasError, match=r"searcher\.samples=1: it must be an integer of at least 2"):
        reinforce(samples=1, baseline="leave_one_out")
    reinforce(samples=1)


def test_alphas_that_are_not_finite_end_the_search():
    searcher = reinforce(samples=2)
    searcher.step(lambda choices: 0.5)
    with pytest.raises(NnasError, match=r"alphas of x are .*nan.* after update 2 of the searcher"):
        searcher.step(lambda choices: float("nan"))


@pytest.mark.parametrize("objective", [LinearPenalty(), LogProduct(), lambda accuracy, costs, constraints: accuracy])
def test_a_loss_is_no_reward(objective):
    with pytest.raises(NnasError, match="reward_min, mnasnet_hard, mnasnet_soft, absolute"):
        Reinforce(PAIR, [Constraint("latency", FREE, 2.0)], objective, adam, Alone(), 0)


def test_what_is_derived_is_near_the_bound_where_the_objective_says_so():
    costs = Costs("ms", tuple(Term((("x", option),), cost, "") for option, cost in zip("abc", (1, 5, 9), strict=True)))
    alphas = {"x": np.array([3.0, 1.0, 2.0]), "y": np.zeros(3)}
    for objective, bound, found in (
        (RewardMin(), 5.0, "a"),
        (Absolute(), 5.0, "b"),
        (Absolute(), 5.15, "b"),
        (Absolute(), 5.2, "a"),
        (Absolute(lowest=0.0), 5.0, "a"),
    ):
        made = Reinforce(PAIR, [Constraint("latency", costs, bound)], objective, adam, Alone(), 0)
        assert with_alphas(made, alphas).best()["x"] == found


def test_reward_is_of_the_architecture_that_was_evaluated(random):
    """Accuracy and cost must be those of the same sample."""
    costs = random_costs(NESTED, random)
    constraints = [Constraint("latency", costs, extremes(NESTED, costs)[0] * 1.3, 1.0)]
    searcher = reinforce(NESTED, constraints, samples=6)
    evaluated, seen = [], []
    gradient = searcher.gradient
    searcher.gradient = lambda *given: seen.append(given) or gradient(*given)
    searcher.step(lambda choices: evaluated.append(choices) or 0.01 * len(evaluated))
    sampled, rewards, _ = seen[0]
    assert evaluated == sampled
    for number, (choices, reward) in enumerate(zip(sampled, rewards, strict=True), start=1):
        factor = min(1, constraints[0].bound / costs.cost(choices))
        assert reward == pytest.approx(0.01 * number * factor)


def test_sgd_moves_alphas_against_the_gradient():
    searcher = reinforce(samples=5, make_solver=partial(S.Sgd, lr=0.5), start_from_first=False)
    seen = []
    gradient = searcher.gradient
    searcher.gradient = lambda *given: seen.append(gradient(*given)) or seen[-1]
    before = searcher.state()["alphas"]
    searcher.step(lambda choices: 0.9 if choices["x"] == "b" else 0.2)
    for name, alphas in searcher.state()["alphas"].items():
        np.testing.assert_allclose(alphas, before[name] - 0.5 * seen[0][name], atol=1e-6)


def test_adam_keeps_its_state_from_update_to_update():
    """With the parameters registered anew each time, t stays 1 and the step becomes the gradient's sign."""
    searcher = reinforce(samples=3)
    gradients, alphas = [], [searcher.state()["alphas"]["x"]]
    gradient = searcher.gradient
    searcher.gradient = lambda *given: gradients.append(gradient(*given)) or gradients[-1]
    for number in range(1, 6):
        searcher.step(lambda choices: 0.9 if choices["x"] == "b" else 0.3)
        state = searcher.state()
        assert {solver["t"] for solver in state["solver"].values()} == {number}
        alphas.append(state["alphas"]["x"])
    v = np.zeros(3)
    for t, (one, before, after) in enumerate(zip(gradients, alphas[:-1], alphas[1:], strict=True), start=1):
        v = 0.999 * v + 0.001 * one["x"] ** 2
        step = 0.1 * np.sqrt(1 - 0.999**t) * one["x"] / (np.sqrt(v) + 1e-8)
        np.testing.assert_allclose(after, before - step, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
@pytest.mark.parametrize("start_from_first", [True, False])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_restored_goes_on_in_the_same_bytes(space, start_from_first, steps, random):
    costs = random_costs(space, random)
    constraints = [Constraint("latency", costs, extremes(space, costs)[1] * 0.7, 1.0)]
    rewards = rewards_of(space, random)
    make = partial(reinforce, space, constraints, samples=3, start_from_first=start_from_first)
    one = make(seed=3)
    for _ in range(steps):
        one.step(lambda choices: rewards[tuple(choices.items())])
    other = make(seed=99)
    other.restore(one.state())
    saved = one.state()
    figures = []
    for searcher in (one, other):
        figures.append([searcher.step(lambda choices: rewards[tuple(choices.items())]) for _ in range(3)])
    assert figures[0] == figures[1]
    first, second = one.state(), other.state()
    for name, alphas in first["alphas"].items():
        np.testing.assert_array_equal(alphas, second["alphas"][name])
        assert first["solver"][name]["t"] == second["solver"][name]["t"] == steps + 3
        for key, array in first["solver"][name]["arrays"].items():
            np.testing.assert_array_equal(array, second["solver"][name]["arrays"][key])
    assert first["baseline"] == second["baseline"] and first["generator"] == second["generator"]
    assert one.best() == other.best() and one.sample() == other.sample()
    # A state is a copy: what came after it did not change it.
    assert any((saved["alphas"][name] != first["alphas"][name]).any() for name in saved["alphas"])


def test_samples_follow_the_probabilities(random):
    alphas = random_alphas(PAIR, random)
    searcher = with_alphas(reinforce(), alphas)
    drawn = [tuple(searcher.sample().values()) for _ in range(1500)]
    for i, a in enumerate("abc"):
        for j, b in enumerate("abc"):
            # The product: decisions are independent. With generators seeded alike they would go in lockstep.
            p = softmax(alphas["x"])[i] * softmax(alphas["y"])[j]
            assert abs(drawn.count((a, b)) / 1500 - p) < 4.5 * np.sqrt(p * (1 - p) / 1500)


def test_decisions_draw_independently():
    space = Space("many", tuple(Decision(f"d{i}", tuple("abcd"), (Site(SHAPE),)) for i in range(8)))
    searcher = reinforce(space)
    drawn = [tuple(searcher.sample().values()) for _ in range(200)]
    # 200 draws of 65,536: hardly any twice; in lockstep there are only four.
    assert len(set(drawn)) > 190
    agreements = np.mean([[one[i] == one[j] for i in range(8) for j in range(i)] for one in drawn])
    assert 0.2 < agreements < 0.3


def test_seeds_differ_and_repeat():
    draws = [[reinforce(NESTED, seed=seed).sample() for _ in range(1)] for seed in range(10)]
    assert draws == [[reinforce(NESTED, seed=seed).sample() for _ in range(1)] for seed in range(10)]
    assert len({tuple(one[0].items()) for one in draws}) > 3


def test_converges_on_a_toy_reward_and_entropy_falls():
    """The best of nine under the bound; the most accurate of all is too slow."""
    costs = Costs("ms", (Term((), 1.0, "stem"), Term((("x", "c"),), 9.0, "x = c")))
    searcher = reinforce(constraints=[Constraint("latency", costs, 5.0, 1.0)], samples=5)
    accuracy = {"a": 0.2, "b": 0.6, "c": 0.9}
    entropies, costs_expected = [searcher.figures()["entropy"]], [searcher.figures()["expected_cost"]["latency"]]
    assert entropies[0] == pytest.approx(1)
    for _ in range(6):
        for _ in range(15):
            searcher.step(lambda choices: 0.5 * accuracy[choices["x"]] + 0.5 * accuracy[choices["y"]])
        entropies.append(searcher.figures()["entropy"])
        costs_expected.append(searcher.figures()["expected_cost"]["latency"])
    assert searcher.best() == {"x": "b", "y": "c"}
    assert entropies[-1] < 0.3 and entropies[-1] < entropies[2] < entropies[0]
    assert costs_expected[-1] < costs_expected[0] == pytest.approx(4.0)
    assert sum(searcher.sample() == {"x": "b", "y": "c"} for _ in range(100)) > 80


def test_best_keeps_the_bound_even_where_probabilities_do_not():
    costs = Costs("ms", (Term((("x", "a"),), 1.0, ""), Term((("x", "b"),), 2.0, ""), Term((("x", "c"),), 9.0, "")))
    searcher = reinforce(constraints=[Constraint("latency", costs, 2.0, 1.0)])
    with_alphas(searcher, {"x": np.array([0.0, 1.0, 5.0]), "y": np.array([0.0, 0.1, 0.0])})
    assert searcher.best() == {"x": "b", "y": "b"}
    assert searcher.costs(searcher.best()) == {"latency": 2.0}


def test_figures_by_formula(random):
    costs = random_costs(NESTED, random)
    alphas = random_alphas(NESTED, random)
    searcher = with_alphas(reinforce(NESTED, [Constraint("latency", costs, 100.0, 1.0)]), alphas)
    figures = searcher.figures()
    named = {d.name: dict(zip(d.options, softmax(alphas[d.name]), strict=True)) for d in NESTED.decisions}
    assert figures["expected_cost"]["latency"] == pytest.approx(costs.expected(named), rel=1e-5)
    entropies = [-sum(p * log(p) for p in one.values()) / log(len(one)) for one in named.values() if len(one) > 1]
    assert figures["entropy"] == pytest.approx(np.mean(entropies), rel=1e-5)


def test_figures_and_best_of_a_search_that_is_certain():
    searcher = with_alphas(reinforce(), {"x": np.array([2000.0, 0, -2000]), "y": np.array([0, 2000.0, 0])})
    with np.errstate(divide="raise", invalid="raise"):
        assert searcher.figures()["entropy"] == 0
        assert searcher.best() == {"x": "a", "y": "b"}
        assert searcher.sample() == {"x": "a", "y": "b"}


@pytest.mark.parametrize(
    "changes",
    [{"samples": 0}, {"samples": 1.5}, {"baseline_decay": 1.1}, {"baseline_decay": "x"}, {"baseline": "moving"}],
)
def test_wrong_values_are_named(changes):
    with pytest.raises(NnasError, match=rf"searcher\.{next(iter(changes))}="):
        reinforce(**changes)
