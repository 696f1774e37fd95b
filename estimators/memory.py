"""Memory of inference: the weights, and the peak of the activations, from the order of execution."""

from math import prod, sqrt

from estimators.base import Estimator, EstimatorError
from estimators.graph import functions_of, new_parameters, parameters_of

BYTES = 4  # of an element: graphs are in single precision


class Memory(Estimator):
    """Bytes of weights and of live activations, at a batch size; a buffer lives until it was read for the last time.

    Weights are all leaves of a graph that are no data input, running statistics too. The peak is the largest number of
    bytes that inputs, outputs and intermediate results take at once, function by function in the order in which nnabla
    runs them, the input of the network among them. Functions that work in place (a reshape) take nothing. This is what
    a runtime needs that frees all it can: nnabla itself keeps the network's input, results that nobody reads, and
    buffers that were shared in place. What a function takes for itself while it runs (columns of a convolution,
    workspaces of a GPU) is not counted.

    `exact` gives both for one network. A search needs a sum over parts, and a peak is a maximum: `costs` adds up to an
    upper bound, b + sum of max(0, peak - b) over the parts. b is at least the peak of what every network has, and so
    large that one chosen part on average exceeds it, which makes the bound lowest on average; weights add up exactly.
    The bound is reached where one part exceeds b. It holds for parts that run in the order given; `factor` compares it
    with whole networks, raises it where their functions run in another order that needs more, and its error says how
    far above them it is.
    """

    unit = "bytes"

    def __init__(self, batch=1):
        if type(batch) is not int or batch < 1:
            raise EstimatorError(f"memory: batch has to be a whole number from 1 on, not {batch!r}")
        self.batch = batch

    def description(self):
        """See Estimator."""
        return {
            "estimator": "memory",
            "unit": self.unit,
            "device": None,
            "batch": self.batch,
            "bounds": "from above: weights exactly, the peak of live activations by a sum that is at least the maximum",
        }

    def costs(self, parts, progress=None, space_name="SPACE"):
        """See Estimator; the sum over the parts of a network is an upper bound of its memory."""
        peaks = [peak_of_activations(part) for part in parts]
        always = [number for number, part in enumerate(parts) if not part.when]
        carrier = max(always, key=peaks.__getitem__, default=None)
        base = 0 if carrier is None else max(peaks[carrier], _exceeded_by_one(parts, peaks))
        return [
            float(BYTES * sum(leaf.size for leaf in leaves) + (base if number == carrier else max(0, peak - base)))
            for number, (leaves, peak) in enumerate(zip(new_parameters(parts), peaks, strict=True))
        ]

    def exact(self, part):
        """{"weights", "peak_of_activations", "total"} of one network, in bytes; part: a whole network."""
        weights, peak = BYTES * sum(leaf.size for leaf in parameters_of(part)), peak_of_activations(part)
        return {"weights": weights, "peak_of_activations": peak, "total": weights + peak}

    def calibrated(self, space_name, parts, costs, networks, progress=None):
        """See Estimator."""
        sums = [sum(costs[place] for place in network.parts) for network in networks]
        wholes = [self.exact(network.whole)["total"] for network in networks]
        factor = max([1.0, *(whole / total for whole, total in zip(wholes, sums, strict=True))])
        excess = [factor * total / whole - 1 for whole, total in zip(wholes, sums, strict=True)]
        return costs, factor, sqrt(sum(one * one for one in excess) / max(len(excess), 1))


def _exceeded_by_one(parts, peaks):
    """The lowest of the peaks that at most one part of a random network exceeds on average."""
    options = {}
    for part in parts:
        for decision, option in part.when:
            options.setdefault(decision, set()).add(option)
    shares = [prod(1 / len(options[decision]) for decision, _ in part.when) for part in parts]

    def exceeding(peak):
        return sum(share for share, other in zip(shares, peaks, strict=True) if other > peak)

    return min((peak for peak in peaks if exceeding(peak) <= 1), default=0)


def peak_of_activations(part):
    """The most bytes that data take at once while a part runs, with what is held for later; 0 without functions."""
    functions = functions_of(part)
    if not functions:
        return 0
    weights = set(parameters_of(part))
    buffers = {}  # of a variable that shares the buffer of another: that other

    def buffer(variable):
        return buffers.get(variable, variable)

    for function in functions:
        for position, source in enumerate(function.inputs):
            if function.inplace_data(position):
                buffers[function.outputs[function.inplace_data_with(position)]] = buffer(source)
    last_read = {buffer(source): moment for moment, function in enumerate(functions) for source in function.inputs}
    last_read |= {buffer(variable): len(functions) for variable in (*part.outputs, *part.held)}
    computed = {output for function in functions for output in function.outputs}
    live = {buffer(variable) for variable in {*part.inputs, *part.held} - computed}
    peak = 0
    for moment, function in enumerate(functions):
        live |= {buffer(output) for output in function.outputs}
        peak = max(peak, sum(one.size for one in live - weights))
        live = {one for one in live if last_read.get(one, -1) > moment}
    return BYTES * peak
