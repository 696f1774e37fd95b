"""Learning rates by formula."""

import nnabla.solvers as S
import numpy as np
import pytest

from nnas.communicator import Alone
from nnas.errors import NnasError
from nnas.schedules import constant, cosine, multistep
from nnas.updates import WeightUpdate


def test_cosine_by_formula():
    rates = [cosine(0.4, step, 10) for step in range(10)]
    np.testing.assert_allclose(rates, 0.2 * (1 + np.cos(np.pi * np.arange(10) / 10)))
    assert rates[0] == 0.4 and rates[-1] > 0


def test_cosine_with_warmup_and_a_least_rate():
    rates = [cosine(0.4, step, 20, least=0.1, warmup=0.25) for step in range(20)]
    np.testing.assert_allclose(rates[:5], 0.4 * np.arange(1, 6) / 5)
    np.testing.assert_allclose(rates[5:], 0.1 + 0.15 * (1 + np.cos(np.pi * np.arange(15) / 15)))
    assert [cosine(0.4, step, 4, warmup=1.0) for step in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_multistep_and_constant():
    assert [multistep(1.0, step, 8, at=[0.5, 0.75]) for step in range(8)] == pytest.approx(
        [1] * 4 + [0.1] * 2 + [0.01] * 2
    )
    assert {constant(0.3, step, 5) for step in range(5)} == {0.3}
    with pytest.raises(NnasError, match="schedule.at=0.5"):
        multistep(1.0, 0, 8, at=0.5)


@pytest.mark.parametrize(
    "schedule, named",
    [(lambda base: base, "schedule: .*base, step, steps"), (lambda *_: float("nan"), "nan"), (lambda *_: -1, "-1")],
)
def test_a_schedule_that_gives_no_rate_is_an_error(schedule, named):
    with pytest.raises(NnasError, match=named):
        WeightUpdate({}, S.Sgd, 0.1, 0.0, None, Alone(), 0, schedule)


def test_an_update_asks_its_schedule():
    update = WeightUpdate({}, S.Sgd, 0.1, 0.0, None, Alone(), 0, lambda base, step, steps: base * step / steps)
    assert update.learning_rate(3, 4) == pytest.approx(0.075)
