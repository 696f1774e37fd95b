"""The parts without the command line: price a space, search it under a bound of MACs, train what was found.

python examples/from_python.py
"""

from functools import partial

import nnabla.solvers as S

from estimators.macs import MACs
from nnas.classifier import Classification
from nnas.communicator import Alone
from nnas.data.cluttered_digits import ClutteredDigits
from nnas.deciders import listed
from nnas.objectives import RewardMin, constraint
from nnas.pricing import price
from nnas.search import Search
from nnas.searchers.reinforce import Reinforce
from nnas.spaces.mobilenet import MobileNet
from nnas.train import Training

SEED = 0
SGD = {
    "make_solver": partial(S.Nesterov, momentum=0.9),
    "learning_rate": 0.1,
    "weight_decay": 1e-4,
    "clip_norm": 5.0,
}


def main(warmup_epochs=2, epochs=3, train_epochs=5, **data_settings):
    data = ClutteredDigits(**data_settings)
    network = MobileNet(
        name="tiny",
        input_shape=data.shape,
        classes=data.classes,
        stem={"channels": 8, "stride": 2},
        stages=[{"channels": 12, "blocks": 3, "stride": 1}],
        head=32,
    )
    space = listed(network)
    costs = price(network, space, MACs())
    half, warning = constraint(space, "macs", costs, bound=None, fraction=0.5, weight=1.0)
    if warning:
        print(warning)
    searcher = Reinforce(
        space, [half], RewardMin(), make_solver=partial(S.Adam, 0.1, 0.0, 0.999), communicator=Alone(), seed=SEED
    )
    search = Search(
        network,
        data,
        Classification(),
        searcher,
        SGD,
        warmup_epochs,
        epochs,
        micro_batch=16,
        micro_batches=1,
        validation_batch=64,
        steps_per_update=10,
        communicator=Alone(),
        seed=SEED,
    )
    for progress in search:
        if progress.record:
            print(progress.record)
    choices = searcher.best()
    print(f"found {choices} with {costs.cost(choices):.4g} MACs, bound {half.bound:.4g}")

    training = Training(
        network, choices, data, Classification(), SGD, train_epochs, 16, 1, communicator=Alone(), seed=SEED
    )
    for progress in training:
        if progress.record:
            print(progress.record)
    print(f"test accuracy {training.accuracy(data.test):.2%}")


if __name__ == "__main__":
    main()
