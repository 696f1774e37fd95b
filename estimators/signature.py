"""The canonical name of a part: operations, attributes, shapes, data type, wiring."""

import re

from estimators.graph import functions_of, parameters_of


def signature(part, dtype="float32"):
    """The signature of a part, one line: equal for equal structures, whatever the names and the weights.

    Data inputs are x0, x1, ..., parameters p0, p1, ..., results v0, v1, ..., each numbered in order of first
    use and with its shape there; a second result of one function is v0.1. Shapes contain the batch size.

        float32: v0(1,8,4,4)=ReLU6(x0(1,8,4,4)); v1(1,4,4,4)=Convolution(v0, p0(4,8,1,1); group=1, ...) -> v1
    """
    names = {}
    kinds = {variable: "x" for variable in part.inputs} | {variable: "p" for variable in parameters_of(part)}
    counts = {"x": 0, "p": 0}

    def name(variable):
        if variable in names:
            return names[variable]
        kind = kinds[variable]
        names[variable] = f"{kind}{counts[kind]}"
        counts[kind] += 1
        return names[variable] + _shape(variable)

    steps = []
    for number, function in enumerate(functions_of(part)):
        inputs = ", ".join([name(variable) for variable in function.inputs])
        attributes = ", ".join(f"{key}={_value(value)}" for key, value in sorted(function.info.args.items()))
        arguments = "; ".join(filter(None, [inputs, attributes]))
        for position, output in enumerate(function.outputs):
            names[output] = f"v{number}" if position == 0 else f"v{number}.{position}"
        results = ", ".join(names[output] + _shape(output) for output in function.outputs)
        steps.append(f"{results}={function.info.type_name}({arguments})")
    outputs = ", ".join([name(variable) for variable in part.outputs])
    return f"{dtype}: {'; '.join(steps)} -> {outputs}"


def _shape(variable):
    return f"({','.join(map(str, variable.shape))})"


def _value(value):
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_value, value))}]"
    # nnabla keeps single precision: 0.1 comes back as 0.10000000149.
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def kind_and_shape(text):
    """What a signature shares with others: its types of functions with kernel sizes, and the shape of its input."""
    types = re.findall(r"=(\w+)\(", text)
    kernels = re.findall(r"p\d+\([\d,]*?(\d+,\d+)\)", text)
    shape = re.search(r"x0\(([\d,]*)\)", text)
    return f"{types} {kernels}", shape and shape.group(1)
