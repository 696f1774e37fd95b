"""The search loop, and what every searcher promises."""

from functools import partial

import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np
import pytest
import tiny
from conftest import Nested, small_mobilenet, tiny_cells
from tiny import CLASSES, SHAPE, Judge, adam, assert_same, objective_of, patterns, shared, without_seconds

from estimators.base import Part
from estimators.macs import MACs
from nnas import checkpoint
from nnas.classifier import Classification, ClassifierGraph
from nnas.data.batches import evaluation_batches
from nnas.deciders import Fixed, Sampled, listed
from nnas.errors import NnasError
from nnas.layers import SAMPLED_EVALUATION, SHIPPED, TRAINING, Outputs, affine, conv_bn, global_average_pooling
from nnas.objectives import MnasnetSoft, constraint
from nnas.pricing import price
from nnas.search import Search, Supernet
from nnas.searchers.darts import Darts
from nnas.searchers.proxyless_gradient import ProxylessGradient
from nnas.searchers.random_search import RandomSearch
from nnas.searchers.reinforce import Reinforce
from nnas.space import Decision, Site, Space
from nnas.updates import parameter_arrays, set_parameters

# Every searcher of the package: a function of (space, constraints, objective, communicator=..., seed=...).
SEARCHERS = [
    pytest.param(partial(Reinforce, make_solver=adam, samples=3), id="reinforce"),
    pytest.param(partial(ProxylessGradient, make_solver=adam, paths="two"), id="gradient"),
    pytest.param(partial(RandomSearch, samples=3), id="random"),
]
VARIANTS = [
    pytest.param(partial(Reinforce, make_solver=adam, samples=3, baseline="leave_one_out"), id="leave_one_out"),
    pytest.param(partial(ProxylessGradient, make_solver=adam, paths="full"), id="gradient_full"),
]
MIXING = [pytest.param(make, id=name) for name, make in tiny.MIXING.items()]
# For what the loop does alike with all of them.
ONE = SEARCHERS[:1]

pytestmark = pytest.mark.usefixtures("kernels")


def mobilenet():
    stages = [{"channels": 6, "blocks": 2, "stride": 2}, {"channels": 8, "blocks": 1, "stride": 1}]
    return small_mobilenet(
        input_shape=SHAPE, classes=CLASSES, stages=stages, expansions=(2, 3), kernels=(3, 5), dropout_rate=0.2
    )


def nested():
    network = Nested()
    network.input_shape, network.classes = SHAPE, CLASSES
    return network


def make_search(make, network=None, data=None, seed=0, fraction=0.6, **changes):
    network = network or mobilenet()
    space = listed(network)
    one, _ = constraint(space, "macs", price(network, space, MACs()), None, fraction, 1.0)
    settings = shared(partial(S.Momentum, momentum=0.9))
    searcher = make(space, [one], objective_of(make), communicator=settings["communicator"], seed=seed)
    settings |= {"warmup_epochs": 2, "epochs": 2, "validation_batch": 6, "steps_per_update": 2, **changes}
    search = Search(network, data or patterns(), searcher=searcher, seed=seed, **settings)
    return search, space, one


def finish(search):
    """Run to the end; returns the records."""
    return [progress.record for progress in search if progress.record]


@pytest.mark.parametrize("make", SEARCHERS)
@pytest.mark.parametrize("network", [mobilenet, nested])
def test_interrupted_and_restored_is_as_if_nothing_had_happened(make, network, tmp_path):
    whole, _, _ = make_search(make, network())
    states, records = [], []
    for progress in whole:
        if progress.record:
            records.append(progress.record)
            states.append(whole.state())
            checkpoint.save(tmp_path / str(len(states)), whole.state())
    assert [record["phase"] for record in records] == ["warmup", "warmup", "search", "search"]
    for epoch in range(1, 5):
        # Whatever is left of other work must not matter: parameters, seeds, and steps of an epoch cut short.
        nn.random.set_function_seed(epoch)
        other, _, _ = make_search(make, network(), seed=0)
        for progress in other:
            if progress.step == 2:
                break
        loaded, _ = checkpoint.load(tmp_path / str(epoch))
        other.restore(loaded)
        assert without_seconds(finish(other)) == without_seconds(records[epoch:])
        assert_same(other.state(), states[-1])
        assert other.searcher.best() == whole.searcher.best()


@pytest.mark.parametrize("make", SEARCHERS[::2])
def test_samples_are_all_that_was_judged_in_an_epoch(make, monkeypatch):
    """Also in one that was interrupted; with the accuracy that was judged and the cost of the choices."""
    search, space, one = make_search(make, nested())
    asked, judge = [], Supernet.accuracy
    monkeypatch.setattr(Supernet, "accuracy", lambda *given: asked.append((given[1], judge(*given))) or asked[-1][1])
    for progress in search:
        if progress.step == 2 and progress.phase == "search":
            other, _, _ = make_search(make, nested())
            other.restore(search.state())
            assert other.samples == search.samples and len(other.samples["accuracy"]) == 3
        if not progress.record:
            continue
        if progress.phase == "warmup":
            assert search.samples is None and asked == []
            continue
        samples = search.samples
        assert len(asked) == 3 * (progress.steps // 2) and samples["accuracy"] == [round(two, 6) for _, two in asked]
        for numbers, cost, (choices, _) in zip(samples["choices"], samples["cost"]["macs"], asked, strict=True):
            named = {
                decision.name: decision.options[number]
                for decision, number in zip(space.decisions, numbers, strict=True)
                if number is not None
            }
            assert named == choices and cost == pytest.approx(one.costs.cost(choices), rel=1e-5)
        asked.clear()


@pytest.mark.parametrize("make", MIXING)
def test_a_search_on_mixtures_resumes_in_the_same_bytes(make, tmp_path):
    """On cells, in the middle of an epoch of its search."""

    def cells():
        return make_search(make, tiny_cells(), warmup_epochs=1, epochs=1, fraction=0.9)[0]

    whole, other = cells(), cells()
    saved = None
    for progress in whole:
        if saved is None and progress.phase == "search" and progress.step == 2:
            checkpoint.save(tmp_path, whole.state())
            saved = progress
        record = progress.record
    for progress in other:
        if progress.step == 2:
            break
    other.restore(checkpoint.load(tmp_path)[0])
    assert without_seconds(finish(other)) == without_seconds([record])
    assert_same(other.state(), whole.state())
    assert other.searcher.best() == whole.searcher.best()
    shown = {"entropies", "skip_share", "none_share", "derived_error", "recalibrated_error", "validation_error"}
    assert shown <= record.keys()


def skipping(alphas=None, **changes):
    """A search by DARTS on cells, whose alphas are the same for every decision, and do not move."""
    still = partial(Darts, make_solver=partial(S.Sgd, 0))
    search = make_search(still, tiny_cells(), warmup_epochs=1, epochs=3, fraction=0.9, **changes)[0]
    for alpha in search.searcher._alphas.values():
        alpha.d = alphas
    search.searcher._take_log_probabilities()
    return search


@pytest.mark.parametrize(
    "alphas, skips, none",
    [([0, 0, 0, 1], 1, 0), ([2, 0, 0, 1], 1, 1), ([0, 0, 2, 1], 0, 0), ([2, 1, 0, 0], 0, 1)],
)
def test_what_a_search_collapses_to_is_told(alphas, skips, none):
    """The options of an edge are none, two convolutions and skip; where none leads, the next is derived."""
    figures = skipping(alphas).searcher.figures()
    assert (figures["skip_share"], figures["none_share"]) == (skips, none)


def test_a_search_ends_when_too_much_would_skip():
    """With the first epoch of the search, not of the warm-up; so does one that goes on from there."""
    whole, stopped = (skipping([0, 0, 0, 1], stop_at_skip_share=share) for share in (None, 0.9))
    assert [record["phase"] for record in finish(whole)] == ["warmup", "search", "search", "search"]
    records = finish(stopped)
    assert [record["phase"] for record in records] == ["warmup", "search"] and records[-1]["stopped"]
    other = skipping([0, 0, 0, 1], stop_at_skip_share=0.9)
    other.restore(stopped.state())
    assert other.upcoming is None
    assert len(finish(skipping([0, 2, 0, 1], stop_at_skip_share=0.9))) == 4
    with pytest.raises(NnasError, match="search.stop_at_skip_share=2"):
        skipping([0, 0, 0, 0], stop_at_skip_share=2)
    with pytest.raises(NnasError, match="search.stop_at_skip_share=0.5: mixtures alone .* Reinforce trains none"):
        make_search(ONE[0].values[0], stop_at_skip_share=0.5)


@pytest.mark.parametrize("make", SEARCHERS)
def test_seeds_decide_a_search(make):
    runs = [make_search(make, seed=seed)[0] for seed in (0, 0, 1)]
    first, same, other = (without_seconds(finish(run)) for run in runs)
    assert first == same
    assert first[0]["loss"] != other[0]["loss"] and first[-1]["loss"] != other[-1]["loss"]


@pytest.mark.parametrize("make", SEARCHERS + VARIANTS + MIXING)
def test_a_searcher_keeps_its_promises(make, random):
    _, space, one = make_search(make)
    costs = one.costs
    searcher = make(space, [one], objective_of(make), communicator=shared(S.Sgd)["communicator"], seed=0)
    judge = Judge(searcher, lambda choices: random.uniform(0, 1))
    for _ in range(3):
        sampled = searcher.sample()
        assert space.check(sampled) == sampled
        figures = searcher.step(judge)
        assert "validation_error" in figures and ("reward" in figures) != ("objective" in figures)
        assert all(np.isfinite(value) for value in figures.values())
        best = searcher.best()
        assert space.check(best) == best and costs.cost(best) <= one.bound * (1 + 1e-9)
        assert searcher.best() == best, "asking for the best must not change it"
        assert searcher.costs(best) == {"macs": costs.cost(best)}
    assert searcher.mixes or len({tuple(choices.items()) for choices in judge.judged}) > 1

    other = make(space, [one], objective_of(make), communicator=shared(S.Sgd)["communicator"], seed=5)
    other.restore(searcher.state())
    for each in (searcher, other):
        each.drawn = [each.sample() for _ in range(3)]
        each.taken = [each.step(Judge(each, lambda choices: 0.1 * len(choices))) for _ in range(2)]
    assert searcher.drawn == other.drawn and searcher.taken == other.taken
    assert_same(searcher.state(), other.state())
    assert searcher.best() == other.best() and searcher.figures() == other.figures()


@pytest.mark.parametrize("make", [SEARCHERS[0], VARIANTS[0], SEARCHERS[2]])
def test_accuracy_and_cost_in_a_reward_are_of_one_architecture(make, random):
    """By an objective that depends on the cost within the bound too."""
    network = mobilenet()
    space = listed(network)
    one, _ = constraint(space, "macs", price(network, space, MACs()), None, 0.6, 1.0)
    objective = MnasnetSoft()
    searcher = make(space, [one], objective, communicator=shared(S.Sgd)["communicator"], seed=0)
    accuracies = []
    for _ in range(5):
        judge = Judge(searcher, lambda choices: accuracies.append(random.uniform(0, 1)) or accuracies[-1])
        accuracies.clear()
        figures = searcher.step(judge)
        costs = [{"macs": one.costs.cost(choices)} for choices in judge.judged]
        rewards = [objective(accuracy, cost, [one]) for accuracy, cost in zip(accuracies, costs, strict=True)]
        assert len(set(accuracies)) == 3 and figures["reward"] == pytest.approx(np.mean(rewards))


@pytest.mark.parametrize("make", SEARCHERS + VARIANTS)
def test_decisions_draw_independently(make):
    """Of the paths to train and of those that are judged: with generators seeded alike only 3 of 9 would be seen."""
    space = Space("pairs", tuple(Decision(name, ("a", "b", "c"), (Site((1,)),)) for name in "xy"))
    searcher = make(space, [], objective_of(make), communicator=shared(S.Sgd)["communicator"], seed=0)
    start, judge = searcher.state(), Judge(searcher, lambda choices: 0.5)
    while len(judge.judged) < 900:
        searcher.step(judge)
        # All that it learnt is taken back, so that the probabilities stay uniform.
        searcher.restore({**start, "generator": searcher.state()["generator"]})
    for drawn in (judge.judged, [searcher.sample() for _ in range(900)]):
        pairs = [(choices["x"], choices["y"]) for choices in drawn]
        counts = [pairs.count((x, y)) * 900 / len(pairs) for x in "abc" for y in "abc"]
        assert min(counts) > 60 and max(counts) < 140, counts


@pytest.mark.parametrize("make", SEARCHERS + MIXING)
def test_a_state_survives_the_file(make, tmp_path):
    search, _, _ = make_search(make, warmup_epochs=0, epochs=1)
    finish(search)
    checkpoint.save(tmp_path / "c", search.state())
    assert_same(search.state(), checkpoint.load(tmp_path / "c")[0])


@pytest.mark.parametrize("make", SEARCHERS)
@pytest.mark.parametrize("network", [mobilenet, nested])
def test_weight_steps_leave_what_was_not_sampled_as_it_is(make, network):
    network = network()
    search, _, _ = make_search(make, network)
    sampled, sample = [], search.searcher.sample
    search.searcher.sample = lambda: sampled.append(sample()) or sampled[-1]
    before, alone = search.weights(), 0
    for progress in search:
        # The first draw of a step is the path that is trained; others are of the searcher's update.
        with nn.parameter_scope("", {}):
            ClassifierGraph(network, Fixed(sampled[0]), TRAINING, Classification(), 1)
            own = nn.get_parameters(grad_only=False).keys()
        after = search.weights()
        changed = {name for name, array in after.items() if (array != before[name]).any()}
        assert changed <= own, changed - own
        assert changed >= {name for name in own if name.endswith(("/W", "/mean", "/variance"))}
        alone += len(after.keys() - own)
        before, sampled[:] = after, []
        assert progress.steps == 3
    assert alone > 0


@pytest.mark.parametrize("make", [*SEARCHERS, MIXING[0]])
def test_warm_up_is_for_the_weights_alone(make):
    search, _, _ = make_search(make)
    start = search.searcher.state()
    start.pop("generator", None)
    for progress in search:
        state = search.searcher.state()
        state.pop("generator", None)
        if progress.phase == "warmup":
            assert_same(state, start)
            assert progress.record is None or "validation_error" not in progress.record
        elif progress.record:
            assert {"validation_error", "best_cost"} <= progress.record.keys()
    with pytest.raises(AssertionError):
        assert_same(state, start)


@pytest.mark.parametrize("make", [*SEARCHERS, MIXING[0]])
def test_weight_steps_are_for_the_weights_alone(make):
    """Neither do they move what the searcher learns, nor does their solver know of it."""
    network = mobilenet()
    search, _, _ = make_search(make, network)
    learnt, step = [], search.searcher.step

    def watch(evaluate):
        now = search.searcher.state()
        now.pop("generator")
        if learnt:
            assert_same(now, learnt[-1])
        figures = step(evaluate)
        learnt.append(search.searcher.state())
        learnt[-1].pop("generator")
        return figures

    search.searcher.step = watch
    finish(search)
    assert len(learnt) == 2
    with nn.parameter_scope("", {}):
        ClassifierGraph(network, Sampled(), TRAINING, Classification(), 1)
        weights = nn.get_parameters().keys()
    solvers = search.state()["update"]
    assert sorted([*solvers["decayed"], *solvers["plain"]]) == sorted(weights)


class Shared:
    """Two decisions whose options take one convolution, under one name."""

    name, input_shape, classes = "shared", SHAPE, CLASSES

    def __call__(self, x, decide, mode):
        def same(x):
            return conv_bn(x, 4, 3, mode, "same", activation="relu")

        x = conv_bn(x, 4, 3, mode, "stem", activation="relu")
        for name in ("first", "second"):
            own = partial(conv_bn, outmaps=4, kernel=1, mode=mode, name=name, activation="relu")
            x = decide(name, {"same": same, "own": own, "twice": lambda x: same(F.relu(same(x)))}, x)
        return Outputs(affine(global_average_pooling(x), self.classes, "classifier"))


@pytest.mark.parametrize("make", ONE)
def test_weights_that_options_share_have_one_name(make, tmp_path, random):
    """It is the same in the checkpoint, in a resumed search and in the derived network."""
    search, space, _ = make_search(make, Shared(), fraction=1.0)
    names = {name for name in search.weights() if "same/" in name}
    assert names == {f"same/{last}" for last in ("W", "gamma", "beta", "mean", "variance")}
    for progress in search:
        if progress.epoch == 3 and progress.record:
            break
    checkpoint.save(tmp_path, search.state())
    other, _, _ = make_search(make, Shared(), fraction=1.0, seed=0)
    other.restore(checkpoint.load(tmp_path)[0])
    assert without_seconds(finish(search)) == without_seconds(finish(other))
    assert_same(search.weights(), other.weights())
    images, labels = patterns().validation.draw(np.arange(6), random)
    for first, second in (("same", "own"), ("own", "twice"), ("same", "same")):
        choices = space.check({"first": first, "second": second})
        with nn.parameter_scope("", {}):
            alone = ClassifierGraph(Shared(), Fixed(choices), SAMPLED_EVALUATION, Classification(), 6)
            set_parameters(nn.get_parameters(grad_only=False), search.weights(), "the supernet")
        search._supernet.select(choices)
        supernet = search._supernet.evaluation
        for graph in (alone, supernet):
            graph.evaluate(images, labels)
        np.testing.assert_allclose(alone.outputs.logits.d, supernet.outputs.logits.d, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", ONE)
def test_weights_learn_from_training_data_and_searchers_from_validation_data(make):
    data = patterns()
    search, _, _ = make_search(make, data=data)
    finish(search)
    assert not data.test.calls and not data.retraining.calls
    # 4 epochs of 3 updates of 2 micro-batches; in 2 of the epochs one update of the searcher.
    assert [len(call) for call in data.training.calls] == [4] * (4 * 3 * 2)
    assert [len(call) for call in data.validation.calls] == [6] * 2
    for epoch in range(4):
        seen = np.concatenate(data.training.calls[6 * epoch : 6 * epoch + 6])
        assert set(seen) == set(range(19))


@pytest.mark.parametrize("make", ONE)
def test_accuracy_is_counted_over_all_validation_samples(make, random):
    """11 samples in batches of 6: the filled-up rest must not count, nor move anything."""
    data = patterns()
    network = mobilenet()
    search, space, _ = make_search(make, network, data)
    finish(search)
    before = search.state()
    for _ in range(3):
        choices = space.sample(random)
        with nn.parameter_scope("", {}):
            graph = ClassifierGraph(network, Fixed(choices), SAMPLED_EVALUATION, Classification(), 6)
            set_parameters(nn.get_parameters(grad_only=False), search.weights(), "the supernet")
        right = 0
        for images, labels, count in evaluation_batches(data.validation, 6):
            graph.images.d = images
            graph.outputs.logits.forward()
            right += (graph.outputs.logits.d.argmax(axis=1) == labels[:, 0])[:count].sum()
        assert search.accuracies(choices)["validation_accuracy"] == pytest.approx(right / 11, abs=1e-6)
    assert_same(search.state(), before)


@pytest.mark.parametrize("make", ONE)
def test_architectures_of_one_update_are_judged_alike(make):
    """The same choices get the same accuracy within an update, and other samples the next time."""
    data = patterns()
    search, space, _ = make_search(make, data=data, warmup_epochs=0, epochs=3)
    seen = []
    step = search.searcher.step

    def watch(evaluate):
        figures = step(evaluate)
        choices = search.searcher.best()
        seen.append({evaluate(choices) for _ in range(3)})
        return figures

    search.searcher.step = watch
    finish(search)
    assert len(seen) == 3 and all(len(one) == 1 for one in seen)
    assert len({tuple(call) for call in data.validation.calls}) == 3


@pytest.mark.parametrize("make", ONE)
def test_records_and_progress(make):
    search, space, one = make_search(make)
    steps, records = [], []
    for progress in search:
        steps.append((progress.phase, progress.epoch, progress.epochs, progress.step, progress.steps))
        records += [progress.record] if progress.record else []
    assert steps == [
        ("warmup" if epoch <= 2 else "search", epoch, 4, step, 3) for epoch in range(1, 5) for step in range(1, 4)
    ]
    for number, record in enumerate(records, start=1):
        assert record["epoch"] == number and record["seconds"] >= 0
        assert 0 <= record["error"] <= 1 and record["loss"] > 0
        assert record["best_cost"]["macs"] <= one.bound
    assert list(search) == []


@pytest.mark.parametrize("make", ONE)
def test_the_weights_learn(make):
    search, _, _ = make_search(make, nested(), warmup_epochs=30, epochs=0)
    losses = [record["loss"] for record in finish(search)]
    assert np.mean(losses[-3:]) < 0.85 * np.mean(losses[:2])


@pytest.mark.parametrize("make", ONE)
@pytest.mark.parametrize(
    "changes",
    [
        {"warmup_epochs": -1},
        {"epochs": -1},
        {"epochs": "many"},
        {"micro_batch": 2.5},
        {"micro_batches": 0},
        {"validation_batch": 2.5},
        {"steps_per_update": 0},
        {"steps_per_update": 2.5},
    ],
    ids=str,
)
def test_wrong_values_are_named(make, changes):
    with pytest.raises(NnasError, match=rf"search\.{next(iter(changes))}="):
        finish(make_search(make, **changes)[0])


@pytest.mark.parametrize("network", [mobilenet, nested])
def test_gates_get_the_gradient_of_the_mixture(network, random):
    """By central differences at one-hot gates; what is not selected and what is not reached gets none."""
    network = network()
    space = listed(network)
    gates = {d.name: nn.Variable((len(d.options),), need_grad=True) for d in space.decisions}
    supernet = Supernet(network, Classification(0.1), 4, 6, 0, shared(S.Sgd)["kernels"], gates=gates)
    for name, parameter in supernet.parameters.items():
        if name.endswith("gamma"):  # blocks with a shortcut start as the identity, where no gradient is left
            parameter.d = random.uniform(0.5, 1.5, parameter.shape).astype(np.float32)
    weights = parameter_arrays(supernet.parameters)
    images, labels = random.normal(size=(6, *SHAPE)), random.integers(CLASSES, size=(6, 1))
    reached = 0
    for _ in range(4):
        active = {d.name: int(random.integers(len(d.options))) for d in space.decisions}
        pairs = {d.name: sorted({active[d.name], (active[d.name] + 1) % len(d.options)}) for d in space.decisions}
        options = {d.name: [d.options[i] for i in pairs[d.name]] for d in space.decisions}
        choices = space.complete(lambda d, active=active: d.options[active[d.name]])
        for name, gate in gates.items():
            gate.d = np.eye(len(gate.d))[active[name]]
        for parameter in supernet.trained.values():
            parameter.grad.zero()
        loss, error = supernet.differentiate(options, images, labels)
        # The mixture is the chosen path, and its weights are spared.
        assert 1 - error == pytest.approx(supernet.accuracy(choices, images, labels))
        assert all(parameter.grad.zeroing for parameter in supernet.trained.values())
        gradients = {name: gate.g.copy() for name, gate in gates.items()}
        for decision in space.decisions:
            gate, place = gates[decision.name], gates[decision.name].d.copy()
            for i in range(len(decision.options)):
                if i not in pairs[decision.name]:
                    assert gradients[decision.name][i] == 0
                    continue
                ends = []
                for sign in (1, -1):
                    gate.d = place + sign * 5e-4 * np.eye(len(place))[i]
                    ends.append(supernet.differentiate(options, images, labels)[0])
                difference = (ends[0] - ends[1]) / 1e-3
                assert gradients[decision.name][i] == pytest.approx(difference, rel=0.03, abs=2e-3)
                assert decision.name in choices or gradients[decision.name][i] == 0
                reached += abs(difference) > 0.005
            gate.d = place
    # That of an active option is often 0: batch normalization behind it undoes what its gate does.
    assert reached >= 6
    assert_same(parameter_arrays(supernet.parameters), weights)


def test_a_mixture_is_built_for_those_who_ask():
    built = [make_search(make.values[0])[0]._supernet for make in SEARCHERS]
    assert [hasattr(supernet, "_mixture") for supernet in built] == [False, True, False]


def test_the_largest_network_is_predicted_as_it_is_built():
    """Costs of the derived network equal the estimator's of that network built alone."""
    network = mobilenet()
    space = listed(network)
    costs = price(network, space, MACs())
    choices = {decision.name: "e3_k5" for decision in space.decisions}
    with nn.parameter_scope("", {}):
        x = nn.Variable((1, *network.input_shape))
        logits = network(x, Fixed(choices), SHIPPED).logits
    assert MACs().costs([Part((logits,), (x,), "alone")]) == [costs.cost(choices)]
