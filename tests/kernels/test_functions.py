"""Every fast function against nnabla's own, and against double precision, over random shapes."""

import nnabla as nn
import nnabla.functions as F
import numpy as np
import pytest

from nnas.kernels import Normalization
from nnas.kernels.loading import load
from tests.kernels import reference

ACTIVATIONS = {None: lambda x: x, "relu": F.relu, "relu6": F.relu6, "swish": F.swish}
TOLERANCE = 1e-5
EPSILON = 1e-5


@pytest.fixture(scope="module")
def fast():
    return load(2)


def variable(array, need_grad=True):
    made = nn.Variable(array.shape, need_grad=need_grad)
    made.d = array
    return made


def results(output, inputs, dz, times=1):
    """The output and the gradients of the inputs that need one, summed over some backward passes."""
    output.persistent = True
    loss = F.sum(output * variable(dz, False))
    for one in inputs.values():
        one.grad.zero()
    for _ in range(times):
        loss.forward(clear_no_need_grad=True)
        loss.backward(clear_buffer=True)
    return {"output": output.d.copy(), **{f"d{name}": one.g.copy() for name, one in inputs.items() if one.need_grad}}


def relative(found, expected):
    return float(np.abs(found - expected).max() / (np.abs(expected).max() + 1e-12))


def assert_close(found, expected, tolerance=TOLERANCE):
    assert found.keys() == expected.keys()
    errors = {name: relative(found[name], expected[name]) for name in found}
    assert max(errors.values()) <= tolerance, errors


def random_case(seed):
    """A convolution of a random kind with what follows it."""
    random = np.random.default_rng(seed)
    pick = lambda *options: options[random.integers(len(options))]  # noqa: E731
    kind = pick("plain", "grouped", "depthwise", "1x1")
    kernel = (1, 1) if kind == "1x1" else (int(random.integers(1, 8)), int(random.integers(1, 6)))
    dilation = (int(pick(1, 1, 2)), int(pick(1, 1, 3)))
    pad = (int(random.integers(0, 4)), int(random.integers(0, 4))) if kind != "1x1" else pick((0, 0), (1, 0))
    stride = (int(pick(1, 1, 2, 3)), int(pick(1, 1, 2)))
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, pad, strict=True)]
    size = [int(low + random.integers(0, 12)) for low in least]
    group = {"plain": 1, "1x1": 1, "grouped": int(pick(2, 3)), "depthwise": int(random.integers(2, 12))}[kind]
    channels = group if kind == "depthwise" else group * int(random.integers(1, 7))
    maps = group if kind == "depthwise" else group * int(random.integers(1, 9))
    return {
        "shape": (int(pick(1, 2, 5, 16)), channels, *size),
        "weight": (maps, channels // group, *kernel),
        "window": (kernel, pad, stride, dilation),
        "group": group,
        "statistics": pick(None, "batch", "batch", "scratch", "running"),
        "affine": bool(pick(True, True, False)),
        "activation": pick(None, "relu", "relu6", "swish"),
        "shortcut": bool(pick(True, False)),
        "rectified": kind == "depthwise" and bool(pick(True, False)),
        "without_gradient": pick((), (), ("x",), ("weight",), ("x", "weight"), ("beta",), ("shortcut",)),
        "times": int(pick(1, 2)),
        "random": random,
    }


class Case:
    """A random case, to be computed by each side."""

    def __init__(self, seed):
        self.__dict__.update(random_case(seed))
        random, maps = self.random, self.weight[0]
        self.arrays = {
            "x": random.normal(size=self.shape),
            "weight": random.normal(size=self.weight) / np.sqrt(np.prod(self.weight[1:])),
        }
        if self.statistics is None:
            self.arrays["beta"] = random.normal(size=maps)
        elif self.affine:
            self.arrays |= {"gamma": random.normal(size=maps), "beta": random.normal(size=maps)}
        self.running = random.normal(size=maps), random.uniform(0.5, 2, size=maps)
        y = reference.convolution(self._x(), self.arrays["weight"], self.window, self.group)
        if self.statistics in ("batch", "scratch") and (y[:, 0].size == 1 or np.prod(self.weight[1:]) == 1):
            # One number is its own mean, and one weight a scale that is normalized away: gradients are only rounding.
            self.statistics = "running"
        self.out_shape = y.shape
        if self.shortcut:
            self.arrays["shortcut"] = random.normal(size=y.shape)
        self.dz = random.normal(size=y.shape).astype(np.float32)
        self.arrays = {name: array.astype(np.float32) for name, array in self.arrays.items()}

    def _x(self):
        return np.maximum(self.arrays["x"], 0) if self.rectified else self.arrays["x"]

    def _inputs(self):
        return {name: variable(array, name not in self.without_gradient) for name, array in self.arrays.items()}

    def _norm(self, inputs, shape=lambda maps: (maps,)):
        maps = self.weight[0]
        mean, variance = (variable(a.astype(np.float32).reshape(shape(maps)), False) for a in self.running)
        if self.statistics is None:
            return None, mean, variance
        gamma, beta = inputs.get("gamma"), inputs.get("beta")
        return Normalization(self.statistics, gamma, beta, mean, variance, 0.9, EPSILON), mean, variance

    def fast(self, functions):
        inputs = self._inputs()
        norm, mean, variance = self._norm(inputs)
        _, pad, stride, dilation = self.window
        output = functions.convolution(
            inputs["x"],
            inputs["weight"],
            inputs["beta"] if norm is None else None,
            pad,
            stride,
            dilation,
            self.group,
            norm,
            self.activation,
            inputs.get("shortcut"),
            self.rectified,
        )
        found = results(output, inputs, self.dz, self.times)
        return {**found, "mean": mean.d.ravel(), "variance": variance.d.ravel()}

    def native(self):
        inputs = self._inputs()
        norm, mean, variance = self._norm(inputs, lambda maps: (1, maps, 1, 1))
        _, pad, stride, dilation = self.window
        x = F.relu(inputs["x"]) if self.rectified else inputs["x"]
        bias = inputs["beta"] if norm is None else None
        y = F.convolution(x, inputs["weight"], bias, pad=pad, stride=stride, dilation=dilation, group=self.group)
        if norm is not None:
            gamma, beta = (
                one and F.reshape(one, (1, self.weight[0], 1, 1), inplace=False) for one in (norm.gamma, norm.beta)
            )
            if self.statistics == "scratch":
                mean, variance = (variable(a.d.copy(), False) for a in (mean, variance))
            batch = self.statistics != "running"
            y = F.batch_normalization(y, beta, gamma, mean, variance, decay_rate=0.9, eps=EPSILON, batch_stat=batch)
        y = ACTIVATIONS[self.activation](y)
        output = y + inputs["shortcut"] if self.shortcut else y
        found = results(output, inputs, self.dz, self.times)
        if self.statistics == "scratch":  # nnabla has none that keeps nothing: its statistics are thrown away
            mean, variance = (variable(a.astype(np.float32), False) for a in self.running)
        return {**found, "mean": mean.d.ravel(), "variance": variance.d.ravel()}

    def exact(self):
        arrays = {name: array.astype(np.float64) for name, array in self.arrays.items()}
        x = np.maximum(arrays["x"], 0) if self.rectified else arrays["x"]
        y = reference.convolution(x, arrays["weight"], self.window, self.group)
        maps = self.weight[0]
        gamma, beta = arrays.get("gamma", np.ones(maps)), arrays.get("beta", np.zeros(maps))
        mean, variance = (
            (np.zeros(maps), np.ones(maps) - EPSILON)
            if self.statistics is None
            else (a.astype(np.float32).astype(np.float64) for a in self.running)
        )
        z, dy, dgamma, dbeta = reference.normalized(
            y, self.statistics, gamma, beta, mean, variance, EPSILON, self.activation, self.dz.astype(np.float64)
        )
        dx, dweight = reference.convolution_gradients(x, arrays["weight"], self.window, self.group, dy)
        if self.rectified:
            dx = dx * (arrays["x"] > 0)
        gradients = {"x": dx, "weight": dweight, "gamma": dgamma, "beta": dbeta, "shortcut": self.dz}
        found = {f"d{name}": self.times * gradients[name] for name in arrays if name not in self.without_gradient}
        return {"output": z + arrays.get("shortcut", 0), **found}


@pytest.mark.parametrize("seed", range(150))
def test_convolution_normalization_activation_and_shortcut(fast, seed):
    case = Case(seed)
    assert_close(case.fast(fast), case.native())


def test_double_precision_finds_them_no_less_accurate_than_nnabla(fast):
    errors = {"fast": [], "native": []}
    for seed in range(80):
        case = Case(seed)
        exact = case.exact()
        for side, found in (("fast", case.fast(fast)), ("native", case.native())):
            errors[side] += [relative(found[name], value) for name, value in exact.items()]
    fast_errors, native_errors = np.array(errors["fast"]), np.array(errors["native"])
    assert len(fast_errors) > 200 and fast_errors.max() < TOLERANCE
    assert np.sqrt((fast_errors**2).mean()) <= np.sqrt((native_errors**2).mean())
    assert np.median(fast_errors) <= 1.1 * np.median(native_errors)


@pytest.mark.parametrize("seed", range(40))
def test_pooling(fast, seed):
    random = np.random.default_rng(seed)
    kernel = random.integers(1, 5, 2).tolist()
    pad = [int(random.integers(0, (k + 1) // 2 + (k > 1))) for k in kernel]
    pad = [min(p, k - 1) for p, k in zip(pad, kernel, strict=True)]
    stride = random.integers(1, 4, 2).tolist()
    size = [int(k + random.integers(0, 12)) for k in kernel]
    x = random.normal(size=(int(random.integers(1, 6)), int(random.integers(1, 9)), *size)).astype(np.float32)
    cases = {
        "max": (
            lambda x: fast.max_pooling(x, kernel, stride, pad),
            lambda x: F.max_pooling(x, kernel, stride, True, pad),
        )
    }
    for including in (True, False):
        cases[including] = (
            lambda x, including=including: fast.average_pooling(x, kernel, stride, pad, including),
            lambda x, including=including: F.average_pooling(x, kernel, stride, True, pad, including_pad=including),
        )
    for ours, theirs in cases.values():
        sides = []
        for build in (ours, theirs):
            one = variable(x)
            output = build(one)
            dz = np.random.default_rng(seed).normal(size=output.shape).astype(np.float32)
            sides.append(results(output, {"x": one}, dz, times=2))
        assert_close(*sides)


def test_maximum_of_equal_numbers_hands_the_gradient_to_the_first_as_nnabla_does(fast):
    sides = []
    for build in (fast.max_pooling, lambda x, k, s, p: F.max_pooling(x, k, s, True, p)):
        x = variable(np.zeros((1, 1, 5, 5), np.float32))
        output = build(x, (3, 3), (2, 2), (1, 1))
        sides.append(results(output, {"x": x}, np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)))
    assert_close(*sides)


@pytest.mark.parametrize("activation", ["relu", "relu6", "swish"])
def test_activations_alone(fast, random, activation):
    x, y = random.normal(size=(2, 3, 4, 5, 7)).astype(np.float32) * 5
    sides = []
    for activate in (lambda v: fast.activate(v, activation), ACTIVATIONS[activation]):
        inputs = {"x": variable(x), "y": variable(y)}
        output = activate(inputs["x"]) + inputs["y"]
        sides.append(results(output, inputs, np.ones_like(x), times=2))
    assert_close(*sides)


@pytest.mark.parametrize("statistics", ["batch", "scratch", "running"])
def test_batch_normalization_alone(fast, random, statistics):
    x = random.normal(size=(3, 4, 5, 7)).astype(np.float32)
    sides = []
    for is_fast in (True, False):
        inputs = {
            "x": variable(x),
            "gamma": variable(np.linspace(-1, 2, 4, dtype=np.float32).reshape(1, 4, 1, 1)),
            "beta": variable(np.linspace(1, 2, 4, dtype=np.float32).reshape(1, 4, 1, 1)),
        }
        mean, variance = (variable(np.full((1, 4, 1, 1), value, np.float32), False) for value in (0.1, 0.7))
        # x feeds two functions, so that its gradient is also added to.
        x2 = inputs["x"] * 2
        if is_fast:
            norm = Normalization(statistics, inputs["gamma"], inputs["beta"], mean, variance, 0.9, EPSILON)
            y = fast.batch_normalization(x2, norm, "relu")
        else:
            y = F.relu(
                F.batch_normalization(
                    x2, inputs["beta"], inputs["gamma"], mean, variance, decay_rate=0.9, eps=EPSILON,
                    batch_stat=statistics != "running",
                )
            )  # fmt: skip
        sides.append(results(y + x2, inputs, np.linspace(-1, 1, x.size, dtype=np.float32).reshape(x.shape), times=2))
    assert_close(*sides)


@pytest.mark.parametrize("count, shape", [(1, (3,)), (2, (2, 3, 5, 7)), (5, (4, 3, 50, 50)), (7, (2, 4096))])
def test_weighted_sums(fast, count, shape):
    """One of the variables is there twice, and one needs no gradient; against nnabla's, and double precision."""
    random = np.random.default_rng(count)
    arrays = [random.normal(size=shape).astype(np.float32) for _ in range(count)]
    weights, dz = random.normal(size=count + 1).astype(np.float32), random.normal(size=shape).astype(np.float32)

    def computed(form, times):
        inputs = {str(number): variable(array, number != 1) for number, array in enumerate(arrays)}
        inputs["weights"] = variable(weights)
        xs = [*(inputs[str(number)] for number in range(count)), inputs["0"]]
        return results(form(xs, inputs["weights"]), inputs, dz, times)

    def native(xs, weights):
        parts = [F.slice(weights, (i,), (i + 1,)) for i in range(count + 1)]
        return F.add_n(*(F.mul2(F.reshape(part, (1,) * len(shape)), x) for part, x in zip(parts, xs, strict=True)))

    for times in (1, 2):
        found = computed(fast.weighted_sum, times)
        assert_close(found, computed(native, times))
    exact = sum(weight * array.astype(float) for weight, array in zip(weights, [*arrays, arrays[0]], strict=True))
    assert relative(found["output"], exact) < 1e-6
    products = [(array.astype(float) * dz).sum() for array in [*arrays, arrays[0]]]
    assert relative(found["dweights"], 2 * np.array(products)) < 1e-6


def test_the_number_of_threads_changes_no_bit(fast):
    def bits(threads):
        fast.use_threads(threads)
        return [{name: a.tobytes() for name, a in Case(seed).fast(fast).items()} for seed in range(40)]

    try:
        assert bits(1) == bits(2) == bits(2)
    finally:
        fast.use_threads(2)


def test_an_input_that_is_overwritten_between_passes_is_read_anew(fast, random):
    """Evaluation keeps nothing: a backward pass after it computes again what it needs."""
    x, weight = variable(random.normal(size=(2, 3, 4, 4))), variable(random.normal(size=(5, 3, 1, 1)))
    mean, variance = variable(np.zeros(5), False), variable(np.ones(5), False)
    norm = Normalization("running", None, None, mean, variance, 0.9, EPSILON)
    y = fast.convolution(x, weight, normalization=norm, activation="relu")
    first = results(y, {"x": x, "weight": weight}, np.ones(y.shape))
    x.d = 2 * x.d
    second = results(y, {"x": x, "weight": weight}, np.ones(y.shape))
    np.testing.assert_allclose(second["output"], 2 * first["output"], rtol=1e-5)
    np.testing.assert_allclose(second["dweight"], 2 * first["dweight"], rtol=1e-5)


def test_a_masked_branch_is_neither_computed_nor_changed(fast, random):
    x = variable(random.normal(size=(2, 3, 4, 4)))
    weights = [variable(random.normal(size=(3, 3, 1, 1))) for _ in range(2)]
    means = [variable(np.zeros(3), False) for _ in range(2)]
    variances = [variable(np.ones(3), False) for _ in range(2)]
    branches = [
        fast.convolution(x, w, normalization=Normalization("batch", None, None, m, v, 0.5, EPSILON))
        for w, m, v in zip(weights, means, variances, strict=True)
    ]
    y = F.add_n(*branches)
    y.parent.set_active_input_mask([False, True])
    for weight in weights:
        weight.grad.zero()
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
    assert not means[0].d.any() and means[1].d.any()
    assert not weights[0].g.any() and weights[1].g.any()


def test_scale_and_shift_alone_can_be_trained(fast, random):
    """Where the input of a normalization needs no gradient, none is written anywhere."""
    x = variable(random.normal(size=(4, 3, 6, 6)), False)
    gamma, beta = variable(np.ones(3)), variable(np.zeros(3))
    y = fast.batch_normalization(x, Normalization("scratch", gamma, beta, epsilon=EPSILON))
    found = results(y, {"gamma": gamma, "beta": beta}, np.ones(y.shape))
    np.testing.assert_allclose(found["dbeta"], 4 * 36)
    np.testing.assert_allclose(found["dgamma"], 0, atol=1e-3)


def test_what_cannot_be_computed_is_refused(fast):
    x = variable(np.ones((1, 2, 3, 3)))
    with pytest.raises(ValueError, match="window"):
        fast.convolution(x, variable(np.ones((2, 2, 5, 5))))
    with pytest.raises(ValueError, match="rectified"):
        fast.convolution(x, variable(np.ones((2, 2, 1, 1))), rectified=True)


def test_numbers_that_are_none_are_seen(fast):
    x = np.ones((2, 2, 3, 3), np.float32)
    x[0, 0, 1, 1] = np.nan
    one = variable(x)
    weight = variable(np.ones((2, 2, 1, 1), np.float32))
    for activation in ACTIVATIONS:
        y = fast.convolution(one, weight, activation=activation)
        y.forward()
        assert np.isnan(y.d).any(), activation
