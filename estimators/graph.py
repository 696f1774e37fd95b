"""Walking a part of a graph, and copying it."""

import nnabla as nn
import numpy as np
from nnabla import function as nnabla_functions

from estimators.base import EstimatorError


def functions_of(part):
    """The functions of a part in topological order: the same for equal structures, none for an identity.

    Raises EstimatorError where an input or an output of the part is no Variable, or there is no output.
    """
    _check(part)
    stop = set(part.inputs)
    ordered, seen = [], set()
    for output in part.outputs:
        # A stack of our own: Python's recursion limit is below the depth of some networks.
        stack = [(output, False)]
        while stack:
            variable, inputs_done = stack.pop()
            if variable in stop or variable.parent is None:
                continue
            function = variable.parent
            if inputs_done:
                ordered.append(function)
            elif function not in seen:
                seen.add(function)
                stack.append((variable, True))
                stack.extend((source, False) for source in reversed(function.inputs))
    return ordered


def parameters_of(part):
    """The leaves of a part that are none of its inputs, in order of first use: weights and constants."""
    used = [variable for function in functions_of(part) for variable in function.inputs]
    inputs = set(part.inputs)
    leaves = [variable for variable in (*used, *part.outputs) if variable.parent is None and variable not in inputs]
    return list(dict.fromkeys(leaves))


def new_parameters(parts):
    """For each part its parameters_of, without those of an earlier part that is there whenever this one is."""
    users, found = {}, []
    for part in parts:
        when = set(part.when)
        new = [leaf for leaf in parameters_of(part) if not any(other <= when for other in users.get(leaf, ()))]
        for leaf in new:
            users.setdefault(leaf, []).append(when)
        found.append(new)
    return found


class GraphCopy:
    """A runnable copy of a part on a device, sharing no buffer with the original.

    Parameters have the values of the original; inputs, and parameters that are all zero, random ones, since
    processors are faster at zeros. Needs no gradients: it is the network as it ships.
    Raises EstimatorError for a function that cannot be made again from its arguments.
    """

    def __init__(self, part, context, seed=0):
        generator = np.random.default_rng(seed)
        functions = functions_of(part)
        with nn.context_scope(context), nn.auto_forward(False):
            copies = {variable: _random_like(variable, generator) for variable in part.inputs}
            copies |= {variable: _copy_of(variable, generator) for variable in parameters_of(part)}
            self.leaves = tuple(copies.values())
            for function in functions:
                inputs = [copies[variable] for variable in function.inputs]
                outputs = _apply_again(function, inputs, context, part)
                copies |= dict(zip(function.outputs, outputs, strict=True))
        self.outputs = tuple(copies[variable] for variable in part.outputs)
        # An identity among several outputs has nothing to compute.
        self._computed = [output for output in self.outputs if output.parent is not None]

    def forward(self):
        """One inference pass."""
        if len(self._computed) == 1:
            self._computed[0].forward(clear_no_need_grad=True)
        elif self._computed:
            nn.forward_all(self._computed, clear_no_need_grad=True)


def _check(part):
    for variable in (*part.outputs, *part.inputs):
        if not isinstance(variable, nn.Variable):
            raise EstimatorError(
                f"part {part.label!r}: outputs and inputs have to be nnabla Variables, "
                f"but there is a {type(variable).__name__}"
            )
    if not part.outputs:
        raise EstimatorError(f"part {part.label!r} has no outputs: give the Variables where it ends")


def _random_like(variable, generator):
    leaf = nn.Variable(variable.shape)
    leaf.d = generator.standard_normal(variable.shape)
    leaf.persistent = True
    return leaf


def _copy_of(variable, generator):
    leaf = nn.Variable(variable.shape)
    # copy_from leaves the original where it is; `variable.d` would move it to the host, as changed there.
    leaf.data.copy_from(variable.data)
    if not leaf.d.any():
        # Positive, since it may be a variance.
        leaf.d = 0.1 * np.abs(generator.standard_normal(variable.shape))
    leaf.persistent = True
    return leaf


def _apply_again(function, inputs, context, part):
    type_name = function.info.type_name
    make = getattr(nnabla_functions, type_name, None)
    if make is None:
        raise EstimatorError(
            f"part {part.label!r}: the function {type_name!r} is none of nnabla's own and cannot be copied "
            "for measuring; build the network that is measured from nnabla.functions"
        )
    try:
        again = make(context, **function.info.args)
        outputs = again(*inputs, n_outputs=len(function.outputs), auto_forward=False)
    except Exception as error:
        raise EstimatorError(
            f"part {part.label!r}: the function {type_name!r} cannot be made again on {context.backend}: "
            f"{one_line(error)}"
        ) from error
    return outputs if isinstance(outputs, (list, tuple)) else [outputs]


def one_line(error):
    """An exception in one line; nnabla's messages have several."""
    return " ".join(f"{type(error).__name__}: {error}".split())
