"""Nodes that keep some of their edges: what is legal, how it is drawn, what it costs, how it is computed."""

from functools import partial
from itertools import product

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
import pytest
import tiny
from conftest import Cells
from test_deciders import Recorder
from test_reinforce import reinforce, with_alphas

from estimators.macs import MACs
from nnas import deciders
from nnas.costs import Costs, Term
from nnas.deciders import Costing, Fixed, Listing, MaskedMixture, Mixture, Sampled, listed
from nnas.errors import NnasError
from nnas.layers import SHIPPED as MODE
from nnas.objectives import Constraint, most_probable
from nnas.pricing import price
from nnas.space import Decision, Node, Site, Space

SITE = (Site((1,)),)
EDGES = ("a", "b", "c")
# Options before and behind NONE; an edge without NONE; a decision that is no edge.
SPACE = Space(
    "toy",
    (
        Decision("a", ("x", "none", "y"), SITE),
        Decision("b", ("none", "x", "y"), SITE),
        Decision("c", ("x", "y", "none"), SITE),
        Decision("p", ("u", "v"), SITE),
        Decision("q", ("u", "v", "w"), SITE),
        Decision("plain", ("l", "r"), SITE),
    ),
    (Node("n", EDGES, 2), Node("m", ("p", "q"), 1)),
)
MANY = SPACE.assignments()


def legal():
    """All architectures of SPACE, by going through everything and leaving out what is not legal."""
    found = []
    for options in product(*((*decision.options, None) for decision in SPACE.decisions)):
        choices = {one.name: option for one, option in zip(SPACE.decisions, options, strict=True) if option}
        if "none" in choices.values() or "plain" not in choices:
            continue
        if all(sum(edge in choices for edge in node.edges) == node.keep for node in SPACE.nodes):
            found.append(choices)
    return found


def probabilities(random):
    return {one.name: random.dirichlet(np.ones(len(one.options))) for one in SPACE.decisions}


def odds(choices, given):
    """What the probability of an architecture is proportional to: dropped edges count as none."""
    total = 1.0
    for decision in SPACE.decisions:
        option = choices.get(decision.name, "none")
        if option in decision.options:
            total *= given[decision.name][decision.options.index(option)]
    return total


def test_size_and_assignments_count_what_is_legal():
    expected = legal()
    assert len(expected) == SPACE.size == len(MANY) == 3 * 4 * 5 * 2
    assert {tuple(one.items()) for one in MANY} == {tuple(one.items()) for one in expected}


def test_samples_are_legal_and_uniform(random):
    drawn = [tuple(SPACE.sample(random).items()) for _ in range(6000)]
    counts = {one: drawn.count(one) for one in set(drawn)}
    # Edges first: one of p (2 options) and q (3 options) is 1/2 each.
    for choices, count in counts.items():
        share = 1 / (12 * 2 * (2 if ("p" in dict(choices)) else 3) * 2)
        assert abs(count - 6000 * share) < 5 * np.sqrt(6000 * share)
    assert len(counts) == len(MANY)


def test_what_is_drawn_follows_the_probabilities_given_that_it_is_legal(random):
    given = probabilities(random)
    shares = np.array([odds(choices, given) for choices in MANY])
    shares /= shares.sum()
    drawn = [tuple(SPACE.draw(given, random).items()) for _ in range(1500)]
    counts = np.array([drawn.count(tuple(choices.items())) for choices in MANY])
    assert (np.abs(counts - 1500 * shares) < 5 * np.sqrt(1500 * shares) + 1).all()
    marginals = SPACE.marginals(given)
    for decision in SPACE.decisions:
        for option, found in zip(decision.options, marginals[decision.name], strict=True):
            expected = sum(
                share
                for share, choices in zip(shares, MANY, strict=True)
                if choices.get(decision.name, "none") == option
            )
            assert found == pytest.approx(expected)


def test_certain_probabilities_are_drawn_too(random):
    given = {
        one.name: np.eye(len(one.options))[one.options.index("none") if "none" in one.options else 0]
        for one in SPACE.decisions
    }
    assert SPACE.check(SPACE.draw(given, random))
    assert all(np.isfinite(one).all() for one in SPACE.marginals(given).values())


def test_the_gradient_of_reinforce_is_that_of_the_expected_reward(random):
    """The mean over all architectures of the estimate, against finite differences of the sum over all."""
    alphas = {one.name: random.normal(size=len(one.options)) for one in SPACE.decisions}
    rewards = random.uniform(size=len(MANY))

    def shares(alphas):
        given = {name: np.exp(values) / np.exp(values).sum() for name, values in alphas.items()}
        found = np.array([odds(choices, given) for choices in MANY])
        # Of the edges without NONE which of them stays is drawn uniformly, whatever was learnt.
        return found / found.sum()

    searcher = with_alphas(reinforce(SPACE), alphas)
    found = {name: np.zeros(len(values)) for name, values in alphas.items()}
    for choices, reward, share in zip(MANY, rewards, shares(alphas), strict=True):
        for name, gradient in searcher.gradient([choices], [reward], 0.3).items():
            found[name] += share * gradient
    for name, values in alphas.items():
        for i in range(len(values)):
            ends = [
                shares({**alphas, name: values + sign * 1e-5 * np.eye(len(values))[i]}) @ rewards for sign in (1, -1)
            ]
            assert found[name][i] == pytest.approx((ends[1] - ends[0]) / 2e-5, abs=1e-5)


def test_expected_cost_is_that_of_what_is_drawn(random):
    terms = (Term((), 1.0, ""),) + tuple(
        Term(((one.name, option),), random.uniform(), "")
        for one in SPACE.decisions
        for option in one.options
        for _ in range(2)
    )
    costs = Costs("ms", terms, 1.5)
    searcher = with_alphas(
        reinforce(SPACE, [Constraint("latency", costs, 9.0, 1.0)]),
        {one.name: random.normal(size=len(one.options)) for one in SPACE.decisions},
    )
    shares = np.array([odds(choices, searcher.probabilities) for choices in MANY])
    free = Costs("ms", tuple(term for term in terms if ("none" not in dict(term.when).values())), 1.5)
    expected = shares @ [free.cost(choices) for choices in MANY] / shares.sum()
    none = sum(
        1.5 * term.cost * SPACE.marginals(searcher.probabilities)[edge][SPACE.decision(edge).options.index("none")]
        for term in terms
        for edge, option in term.when
        if option == "none"
    )
    assert searcher.figures()["expected_cost"]["latency"] == pytest.approx(expected + none)


def test_without_bounds_the_discretisation_of_darts(random):
    for _ in range(20):
        logs = {one.name: dict(zip(one.options, random.normal(size=8), strict=False)) for one in SPACE.decisions}
        expected = {}
        for node in SPACE.nodes:
            best = {edge: max((w, o) for o, w in logs[edge].items() if o != "none") for edge in node.edges}
            for edge in sorted(node.edges, key=lambda edge: best[edge][0])[-node.keep :]:
                expected[edge] = best[edge][1]
        expected["plain"] = max(logs["plain"], key=logs["plain"].get)
        assert most_probable(SPACE, logs, []) == SPACE.check(expected)


@pytest.mark.parametrize("number, lowest", [(1, 0.0), (2, 0.0), (1, 0.9)])
def test_within_bounds_the_most_probable_of_all(number, lowest, random):
    for _ in range(10):
        logs = {one.name: dict(zip(one.options, random.normal(size=8), strict=False)) for one in SPACE.decisions}
        constraints = []
        for i in range(number):
            # Whole numbers, and a bound with a bin for each of them.
            terms = tuple(
                Term(((one.name, option),), float(random.integers(1, 30)), "")
                for one in SPACE.decisions
                for option in one.options
                if option != "none"
            )
            costs = Costs("ms", terms)
            all_costs = [costs.cost(choices) for choices in MANY]
            constraints.append(Constraint(f"c{i}", costs, float(np.quantile(all_costs, 0.4).round())))
        within = [one for one in MANY if all(c.costs.cost(one) <= c.bound for c in constraints)]
        near = [one for one in within if all(c.costs.cost(one) >= lowest * c.bound for c in constraints)]
        best = max(sum(logs[name][option] for name, option in one.items()) for one in (near or within))
        found = most_probable(SPACE, logs, constraints, lowest)
        assert found in within
        assert sum(logs[name][option] for name, option in found.items()) == pytest.approx(best)


def test_the_architecture_of_reinforce_is_its_most_probable_cell(random):
    for _ in range(10):
        searcher = with_alphas(
            reinforce(SPACE), {one.name: random.normal(size=len(one.options)) for one in SPACE.decisions}
        )
        best = max(MANY, key=lambda choices: odds(choices, searcher.probabilities))
        # Which edge without NONE stays is not learnt; the others are.
        assert {k: v for k, v in searcher.best().items() if k in EDGES} == {k: v for k, v in best.items() if k in EDGES}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"a": None}, "the node n of the space toy keeps 2 of its edges a, b, c, but the architecture has b"),
        ({"c": "x"}, "has a, b, c"),
        ({"a": "none"}, "leave out an edge that is dropped"),
        ({"p": None}, "node m .* none of them"),
        ({"a": "z"}, "the space toy has x, none, y"),
    ],
)
def test_what_is_not_legal_is_named(changes, message):
    choices = {"a": "x", "b": "y", "p": "u", "plain": "l"} | changes
    with pytest.raises(NnasError, match=message):
        SPACE.check({name: option for name, option in choices.items() if option})


def test_the_file_of_a_space_holds_its_nodes():
    assert SPACE.to_json()["nodes"][0] == {"name": "n", "edges": ["a", "b", "c"], "keep": 2}


def edges_of(candidates, count=3):
    return {edge: (candidates, nn.Variable((1, 2))) for edge in "abcd"[:count]}


def test_listing_refuses_nodes_that_do_not_agree():
    candidates = {"none": lambda x: F.constant(0, x.shape), "x": lambda x: x}
    listing = Listing()
    listing.node("n", edges_of(candidates), 2)
    listing.node("n", edges_of(candidates), 2)
    assert len(listing.space("s").decision("a").sites) == 2
    for name, edges, keep, message in [
        ("n", edges_of(candidates, 4), 2, "other edges"),
        ("n", edges_of(candidates), 1, "another number"),
        ("m", edges_of(candidates), 2, "belongs to another node"),
        ("o", {"e": (candidates, nn.Variable((1, 2)))}, 2, "cannot keep 2 of 1"),
        ("r", {"h": ({"none": candidates["none"]}, nn.Variable((1, 2)))}, 1, "needs an option besides"),
        ("t", {"k": (candidates, nn.Variable((1, 2))), "g": (candidates, nn.Variable((1, 3)))}, 1, "one shape"),
    ]:
        with pytest.raises(NnasError, match=message):
            listing.node(name, edges, keep)
    with pytest.raises(NnasError, match="cannot be nested"):
        Listing()("d", {"x": lambda x: listing_node(x)}, nn.Variable((1, 2)))


def listing_node(x):
    listing = Listing()
    with listing._around.choice("d", "x"):
        return listing.node("n", {"e": ({"x": lambda x: x}, x)}, 1)


def test_fixed_builds_kept_edges_only():
    network = Cells()
    choices = {"node1_from0": "k1", "node1_from1": "skip", "node2_from1": "k3", "node2_from2": "k1"}
    with nn.parameter_scope("", {}):
        network(nn.Variable((2, 2, 6, 6)), Fixed(choices), MODE)
        names = {"/".join(name.split("/")[1:4]) for name in nn.get_parameters() if name.count("/") > 2}
    assert names == {"node1/from0/k1", "node2/from1/k3", "node2/from2/k1"}
    for wrong in ({**choices, "node2_from0": "k1"}, {**choices, "node2_from1": "none"}):
        with pytest.raises(NnasError, match="node2 keeps 2"):
            network(nn.Variable((2, 2, 6, 6)), Fixed(wrong), MODE)


def test_sampled_computes_the_kept_options_only():
    calls = []
    candidates = {
        edge: {"none": Recorder("never", calls)} | {o: Recorder(f"{edge}{o}", calls) for o in "xy"} for edge in "abc"
    }
    decide = Sampled()
    y = decide.node("n", {edge: (candidates[edge], nn.Variable((2, 2))) for edge in "abc"}, 2)
    assert len(y.parent.inputs) == 6
    for choices in ({"a": "x", "c": "y"}, {"b": "y", "c": "x"}, {"a": "y", "b": "y"}):
        calls.clear()
        decide.select(choices)
        y.forward()
        assert calls == [f"{edge}{option}" for edge, option in choices.items()]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("with_edge_weights", [False, True])
def test_a_mixture_of_edges_by_weight_and_its_gradients(with_edge_weights, random):
    values = {edge: random.normal(size=(2, 3)) for edge in "ab"}
    xs = {edge: nn.Variable.from_numpy_array(value) for edge, value in values.items()}
    weights = {edge: nn.Variable.from_numpy_array(random.uniform(size=3)).apply(need_grad=True) for edge in "ab"}
    shares = np.array([0.3, 0.9]) if with_edge_weights else np.ones(2)
    if with_edge_weights:
        weights["n"] = nn.Variable.from_numpy_array(shares).apply(need_grad=True)
    decide = Mixture(weights, tiny.kernels)
    calls = []
    candidates = {"once": lambda x: x, "none": Recorder("none", calls), "twice": lambda x: 2 * x}
    y = decide.node("n", {edge: (candidates, x) for edge, x in xs.items()}, 1)
    for weight in weights.values():
        weight.grad.zero()
    y.forward()
    F.sum(y).forward()
    y.g = 1
    y.backward(grad=1)
    gates = {edge: weights[edge].d.copy() for edge in "ab"}
    expected = sum(
        share * (gates[edge][0] + 2 * gates[edge][2]) * values[edge] for edge, share in zip("ab", shares, strict=True)
    )
    np.testing.assert_allclose(y.d, expected, rtol=1e-5)
    assert calls == []
    for edge, share in zip("ab", shares, strict=True):
        np.testing.assert_allclose(
            weights[edge].g, share * values[edge].sum() * np.array([1, 0, 2]), rtol=1e-4, atol=1e-6
        )
    if with_edge_weights:
        expected = [(gates[edge][0] + 2 * gates[edge][2]) * values[edge].sum() for edge in "ab"]
        np.testing.assert_allclose(weights["n"].g, expected, rtol=1e-4)


def test_a_mixture_leaves_out_what_is_not_selected(random):
    x = nn.Variable.from_numpy_array(random.normal(size=(2, 3)))
    candidates = {"none": lambda x: 0 * x, "one": lambda x: x, "two": lambda x: 2 * x}
    decide = MaskedMixture({edge: nn.Variable.from_numpy_array(np.ones(3)) for edge in "ab"})
    y = decide.node("n", {edge: (candidates, x) for edge in "ab"}, 2)
    for selected, factor in [
        ({"a": ["one"], "b": ["none", "two"]}, 3),
        ({"b": ["one"]}, 2),
        ({"a": ["none"], "b": ["none"]}, 0),
        ({"a": ["none", "one", "two"], "b": ["two"]}, 5),
    ]:
        decide.select(selected)
        y.forward()
        np.testing.assert_allclose(y.d, factor * x.d, rtol=1e-6)


def test_every_option_of_every_edge_is_priced_where_it_stands():
    network = Cells()
    costs = price(network, listed(network), MACs())
    found = [term.when for term in costs.terms if term.when]
    options = [((f"node{n}_from{i}", o),) for n in (1, 2) for i in range(n + 1) for o in ("k1", "k3")]
    assert sorted(found) == sorted(2 * options)  # at two cells; an identity is no part, and none is nothing


def test_the_sum_of_a_node_is_part_of_its_cost():
    x = nn.Variable((1, 2))
    costing = Costing("toy", x)
    y = costing.node("n", {edge: ({"none": F.sigmoid, "x": F.relu, "y": F.tanh}, x) for edge in "abc"}, 2)
    costing.finish(y)
    assert [part.when for part in costing.parts] == [((edge, option),) for edge in "abc" for option in "xy"] + [()]
    (sum_,) = [part for part in costing.parts if not part.when]
    assert sum_.outputs[0].parent.info.type_name == "AddN" and len(sum_.inputs) == 2


def test_search_goes_through_all_of_a_node(random):
    """REINFORCE finds the one cell that is rewarded."""
    target = {"a": "y", "c": "x", "p": "v", "plain": "r"}
    searcher = reinforce(SPACE, samples=10, make_solver=partial(S.Adam, alpha=0.1, beta1=0.0, beta2=0.999))
    for _ in range(80):
        searcher.step(lambda choices: sum(choices.get(name) == option for name, option in target.items()) / 4)
    assert {name: option for name, option in searcher.best().items() if name in EDGES or name == "plain"} == {
        name: option for name, option in target.items() if name != "p"
    }


def test_the_parameters_of_deep_cells_are_found_in_one_walk(monkeypatch):
    """There are 2 ** 40 ways through 40 nodes that read the two before."""
    walks, walk_back = [], deciders._walk_back

    def counted(*arguments):
        walks.append(arguments)
        assert len(walks) < 1000
        return walk_back(*arguments)

    monkeypatch.setattr(deciders, "_walk_back", counted)
    decide, states = Sampled(), [nn.Variable((2, 3)), nn.Variable((2, 3))]
    for number in range(40):
        with nn.parameter_scope(f"node{number}"):
            edges = {
                f"n{number}_{i}": ({"affine": partial(PF.affine, n_outmaps=3, name=str(i))}, state)
                for i, state in enumerate(states[-2:])
            }
            states.append(decide.node(f"n{number}", edges, 2))
    names = decide.parameters(states[-1])({f"n{number}_0": "affine" for number in range(40)})
    assert names == sorted(f"node{number}/0/affine/{letter}" for number in range(40) for letter in "Wb")
