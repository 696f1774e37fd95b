"""What tests/test_processes.py starts by mpirun: `processes.py together FOLDER` or `processes.py OMEN command ...`."""

import json
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path

import nnabla as nn
import nnabla.solvers as S
import numpy as np
from conftest import small_mobilenet, tiny_cells
from tiny import CLASSES, MIXING, SHAPE, adam, objective_of, patterns, shared, without_seconds

from estimators.macs import MACs
from nnas import checkpoint
from nnas import communicator as communicators
from nnas.app import run_command
from nnas.communicator import LARGE
from nnas.data.batches import TrainingBatches
from nnas.deciders import listed
from nnas.errors import NnasError
from nnas.objectives import constraint
from nnas.pricing import price
from nnas.search import Search
from nnas.searchers.proxyless_gradient import ProxylessGradient
from nnas.searchers.random_search import RandomSearch
from nnas.searchers.reinforce import Reinforce
from nnas.train import Training
from nnas.updates import WeightUpdate

SEARCHERS = {
    "reinforce": partial(Reinforce, make_solver=adam, samples=3),
    "gradient": partial(ProxylessGradient, make_solver=adam),
    "random": partial(RandomSearch, samples=3),
}
FOUR = {"micro_batch": 2, "micro_batches": 4}
UNEVEN = {"micro_batch": 3, "micro_batches": 5}


def network():
    stages = [{"channels": 6, "blocks": 2, "stride": 2}]
    return small_mobilenet(
        input_shape=SHAPE, classes=CLASSES, stages=stages, expansions=(2, 3), kernels=(3,), dropout_rate=0.2
    )


def make_search(name, communicator, **changes):
    made, solver = (tiny_cells, S.Momentum) if name in MIXING else (network, S.Nesterov)
    make = (SEARCHERS | MIXING)[name]
    space = listed(made())
    one, _ = constraint(space, "macs", price(made(), space, MACs()), None, 0.6, 1.0)
    searcher = make(space, [one], objective_of(make), communicator=communicator, seed=0)
    settings = shared(partial(solver, momentum=0.9)) | {"communicator": communicator, **FOUR, **changes}
    settings |= {"warmup_epochs": 1, "epochs": 2, "validation_batch": settings["micro_batches"] * 3}
    return Search(made(), patterns(), searcher=searcher, seed=0, steps_per_update=2, **settings)


def make_training(communicator):
    settings = shared(partial(S.Momentum, momentum=0.9)) | {"communicator": communicator, **FOUR}
    choices = listed(network()).complete(lambda decision: decision.options[-1])
    data = patterns()
    training = Training(network(), choices, data, epochs=2, seed=0, validate_every=1, split="training", **settings)
    return training, data


def ended(loop):
    """The state at the end of a loop, and what its epochs recorded."""
    records = [progress.record for progress in loop if progress.record]
    return {"state": loop.state() | {"seconds": 0}, "records": without_seconds(records)}


def runs(communicator):
    """{name: what each loop ends with}, alike for any number of processes."""
    found = {name: ended(make_search(name, communicator)) for name in [*SEARCHERS, *MIXING]}
    for name, run in found.items():
        run["best"] = make_best(name, communicator, run["state"])
    found["uneven"] = ended(make_search("reinforce", communicator, **UNEVEN))
    training, data = make_training(communicator)
    found["train"] = ended(training)
    found["train"]["test"] = training.evaluate(data.test)
    return found


def make_best(name, communicator, state):
    search = make_search(name, communicator)
    search.restore(state)
    return search.searcher.best() | search.accuracies(search.searcher.best())


def calls(communicator):
    """What the calls of a communicator of many return, each checked where it stands."""
    rank, size = communicator.rank, communicator.size
    random = np.random.default_rng(rank)
    shapes = [(3,), (LARGE, 2), (0,), (2, 3, 4), (LARGE - 1,), ()]
    arrays = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    everything = []
    for other in range(size):
        theirs = np.random.default_rng(other)
        everything.append([theirs.normal(size=shape).astype(np.float32) for shape in shapes])
    apart = np.ascontiguousarray(arrays[3].T).T  # its numbers do not lie in the order of their places
    communicator.average([apart])
    assert not apart.flags.c_contiguous
    nnabla_arrays = [nn.NdArray.from_numpy_array(array.copy()) for array in arrays]
    for _ in range(2):  # the buffer is used again
        averaged = [array.copy() for array in arrays]
        communicator.average(averaged)
    communicator.average(nnabla_arrays)
    for place, (one, other) in enumerate(zip(averaged, nnabla_arrays, strict=True)):
        mean = np.mean([ranks[place] for ranks in everything], axis=0, dtype=np.float64)
        np.testing.assert_allclose(one, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(one, other.data)
    np.testing.assert_array_equal(apart, averaged[3])
    assert communicator.sum([rank, 0.5]).tolist() == [sum(range(size)), size / 2]
    assert communicator.largest(rank * 7) == (size - 1) * 7
    assert communicator.gather({"rank": rank, "text": "ü" * rank}) == [
        {"rank": other, "text": "ü" * other} for other in range(size)
    ]
    done = []
    assert communicator.once(lambda: done.append(1) or {"by": rank}) == {"by": 0}
    assert done == [1] * communicator.leads
    assert communicator.in_turn(lambda: rank) == rank
    communicator.barrier()
    for count in (0, 1, size, 11):
        shares = communicator.gather(list(communicator.share(count)))
        assert sorted(sum(shares, [])) == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    costs = [5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0, 2.0]
    shares = communicator.gather(communicator.balanced_share(costs))
    assert sorted(sum(shares, [])) == list(range(len(costs)))
    return max(sum(costs[one] for one in share) for share in shares)


def shards(communicator):
    """Which samples each process draws of each epoch, and in which order they are in the whole."""
    split = patterns().training
    batches = TrainingBatches(split, 2, 4, 0, "search", communicator)
    for step in range(batches.steps):
        batches.step("train", 0, step)
    mine = np.concatenate(split.calls).tolist()
    return {"order": batches.order("train", 0).ravel().tolist(), "drawn": communicator.gather(mine)}


def raised(work):
    try:
        work()
    except NnasError as error:
        return str(error)
    return None


def diverging(communicator):
    """The error at an epoch's end after one process went another way."""
    search = make_search("reinforce", communicator)

    def run():
        for progress in search:
            if progress.step == 2 and communicator.rank == 1:
                search.searcher._alphas["stage1_block1"].d = search.searcher._alphas["stage1_block1"].d + 1e-6

    return raised(run)


def differing(communicator):
    made = {"seed": communicator.rank // (communicator.size - 1), "same": 1}
    return raised(lambda: communicator.check_alike("the configuration", lambda: made))


def resumed(communicator, folder):
    """A search that one process had stopped in the middle of an epoch, finished by many."""
    state, _ = checkpoint.load(folder)
    search = make_search("reinforce", communicator)
    search.restore(state)
    return ended(search)


def together(folder):
    communicator = communicators.find()
    found = {
        "size": communicator.size,
        "largest_share": calls(communicator),
        "shards": shards(communicator),
        "diverging": communicator.gather(diverging(communicator)),
        "differing": communicator.gather(differing(communicator)),
        "too_few": raised(lambda: communicator.check_batch("search", 8, 1)),
        "too_few_and_odd": raised(lambda: communicator.check_batch("train", 3, 1)),
    }
    ends = runs(communicator) | {"resumed": resumed(communicator, folder / "stopped")}
    found["alike"] = {name: communicator.gather(digest(run)) for name, run in ends.items()}
    found["records"] = {name: run["records"] for name, run in ends.items()}
    found["best"] = {name: run.get("best") for name, run in ends.items()}
    found["test"] = ends["train"]["test"]
    if communicator.leads:
        checkpoint.save(folder / "ended", {name: run["state"] for name, run in ends.items()})
        (folder / "found.json").write_text(json.dumps(found))


def digest(run):
    return json.dumps(run, sort_keys=True, default=lambda array: array.tobytes().hex())[-4000:]


def omen(kind, arguments):
    """Run a command, in which something happens to process 1 in the second epoch."""
    step = WeightUpdate.step
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    Path(f"{rank}.pid").write_text(str(os.getpid()))

    def stepped(self, graph, micro_batches, active, learning_rate, place):
        if rank == "1" and place[1:] == (1, 1):
            if kind == "raise":
                raise ZeroDivisionError("as foretold")
            os.kill(os.getpid(), getattr(signal, kind))
        return step(self, graph, micro_batches, active, learning_rate, place)

    WeightUpdate.step = stepped
    return run_command(arguments)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    if sys.argv[1] == "together":
        together(Path(sys.argv[2]))
    else:
        sys.exit(omen(sys.argv[1], sys.argv[2:]))
