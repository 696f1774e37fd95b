"""A nnabla graph as an ONNX model, and its run in ONNX Runtime; needs the extra [onnx]."""

import importlib
from math import prod

import numpy as np

from estimators.base import EstimatorError, Part
from estimators.graph import GraphCopy, functions_of, parameters_of

OPSET = 13
IR_VERSION = 8  # that of opset 13's time, so that older runtimes read the files too


def needed(package):
    """The module of an optional package. Raises EstimatorError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise EstimatorError(
            f"the package {package} is not there ({error}): install it by pip install 'nnas[onnx]', or do without the "
            "export format onnx and the device onnxruntime"
        ) from error


def onnx_model(name, inputs, outputs, parameters=None):
    """The ONNX model, bytes, of the graph between some Variables, as it stands: batch size and weights included.

    inputs, outputs: {name: Variable}. parameters: {name: Variable}, for the names of the weights.
    Raises EstimatorError for a function that has no rule in RULES, or that ONNX cannot express.
    """
    onnx = needed("onnx")
    part = Part(tuple(outputs.values()), tuple(inputs.values()), name)
    graph = _Graph(onnx, part, inputs, parameters or {})
    for function in functions_of(part):
        graph.convert(function)
    for output_name, variable in outputs.items():
        graph.node("Identity", [graph.name(variable)], [output_name])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            name,
            [_described(onnx, one, variable) for one, variable in inputs.items()],
            [_described(onnx, one, variable) for one, variable in outputs.items()],
            graph.initializers,
        ),
        producer_name="nnas",
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model)
    return model.SerializeToString()


class OnnxCopy:
    """A copy of a part that ONNX Runtime runs on one thread of the CPU; weights and inputs as GraphCopy makes them.

    Raises EstimatorError as onnx_model does, and for a part without inputs: it would be computed once and for all.
    """

    def __init__(self, part, context):
        if not part.inputs:
            raise EstimatorError(f"part {part.label!r} has no inputs: say which Variables are its data")
        onnxruntime = needed("onnxruntime")
        copy = GraphCopy(part, context)
        inputs = {f"x{number}": leaf for number, leaf in enumerate(copy.leaves[: len(part.inputs)])}
        outputs = {f"y{number}": output for number, output in enumerate(copy.outputs)}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        model = onnx_model(part.label, inputs, outputs)
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        # Bound once: to hand over arrays takes as long as a small module.
        self._binding = self._session.io_binding()
        for name, leaf in inputs.items():
            self._binding.bind_cpu_input(name, np.ascontiguousarray(leaf.d, np.float32))
        for name in outputs:
            self._binding.bind_output(name)

    def forward(self):
        """One inference pass."""
        self._session.run_with_iobinding(self._binding)

    def results(self):
        """The arrays of the last pass."""
        return self._binding.copy_outputs_to_cpu()


class _Graph:
    """The nodes and weights of a model while it is made; names: {Variable: its name in the model}."""

    def __init__(self, onnx, part, inputs, parameters):
        self.nodes, self.initializers = [], []
        self.names = {variable: name for name, variable in inputs.items()}
        self._onnx = onnx
        self._label = part.label
        self._parameters = {variable: name for name, variable in parameters.items()}
        self._weights = set(parameters_of(part))
        self._made = 0

    def convert(self, function):
        """Add the nodes of a nnabla function."""
        rule = RULES.get(function.info.type_name)
        if rule is None:
            raise EstimatorError(
                f"part {self._label!r}: there is no rule for the function {function.info.type_name!r} in ONNX; add one "
                "to RULES in estimators/onnx_graph.py"
            )
        for variable in function.outputs:
            self.names[variable] = self.new("v")
        rule(self, function, Arguments(function.info.args))

    def refuse(self, function, reason):
        raise EstimatorError(f"part {self._label!r}: {function.info.type_name} with {reason} has no form in ONNX")

    def node(self, operator, inputs, outputs=None, **attributes):
        """Add a node and return the name of its first output; inputs: names, "" for one that is left out."""
        outputs = outputs or [self.new("t")]
        self.nodes.append(self._onnx.helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]

    def constant(self, values, dtype=np.float32, name=None):
        """The name of a constant."""
        name = name or self.new("c")
        array = np.ascontiguousarray(values, dtype)
        self.initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def name(self, variable, shape=None):
        """The name of a Variable; shape: as which it is wanted."""
        if variable in self._weights and (shape is not None or variable not in self.names):
            array = variable.d if shape is None else variable.d.reshape(shape)
            # A weight that is wanted in two shapes is there twice, under its own name once.
            name = self.constant(array, name=self._parameters.pop(variable, None) or self.new("p"))
            if shape is not None:
                return name
            self.names[variable] = name
        name = self.names[variable]
        if shape is None or tuple(shape) == variable.shape:
            return name
        return self.node("Reshape", [name, self.constant(shape, np.int64)])

    def inputs(self, function):
        return [self.name(variable) for variable in function.inputs]

    def outputs(self, function):
        return [self.names[variable] for variable in function.outputs]

    def new(self, letter):
        self._made += 1
        return f"{letter}{self._made}"


class Arguments(dict):
    """Arguments of a nnabla function, as attributes."""

    __getattr__ = dict.__getitem__


def _described(onnx, name, variable):
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, variable.shape)


def _window(graph, function, a):
    if a.get("channel_last") or a.get("base_axis", 1) != 1:
        graph.refuse(function, f"channel_last={a.get('channel_last')}, base_axis={a.get('base_axis')}")
    return {"pads": 2 * list(a.pad), "strides": list(a.stride)}


def _filters(graph, function, a):
    return {**_window(graph, function, a), "dilations": list(a.dilation), "group": a.group}


def _convolution(graph, function, a):
    graph.node("Conv", graph.inputs(function), graph.outputs(function), **_filters(graph, function, a))


def _depthwise_convolution(graph, function, a):
    x, weight, *bias = function.inputs
    maps, *kernel = weight.shape
    names = [graph.name(x), graph.name(weight, (maps, 1, *kernel)), *map(graph.name, bias)]
    window = _window(graph, function, a)
    graph.node("Conv", names, graph.outputs(function), dilations=list(a.dilation), group=maps // a.multiplier, **window)


def _deconvolution(graph, function, a):
    filters = _filters(graph, function, a) | {"output_padding": list(a.output_padding)}
    graph.node("ConvTranspose", graph.inputs(function), graph.outputs(function), **filters)


def _affine(graph, function, a):
    x, weight, *bias = function.inputs
    rows, columns = prod(x.shape[: a.base_axis]), prod(x.shape[a.base_axis :])
    outmaps = weight.size // columns
    names = [graph.name(x), graph.name(weight, (columns, outmaps)), *(graph.name(one, (outmaps,)) for one in bias)]
    if x.shape != (rows, columns):
        names[0] = graph.node("Reshape", [names[0], graph.constant((rows, columns), np.int64)])
    _reshaped(graph, function, graph.node("Gemm", names))


def _batch_normalization(graph, function, a):
    x, *rest = function.inputs
    if a.batch_stat or list(a.axes) != [1]:
        graph.refuse(function, f"batch_stat={a.batch_stat}, axes={a.axes}")
    maps = x.shape[1]
    beta = graph.constant(np.zeros(maps)) if a.no_bias else graph.name(rest.pop(0), (maps,))
    gamma = graph.constant(np.ones(maps)) if a.no_scale else graph.name(rest.pop(0), (maps,))
    mean, variance = (graph.name(one, (maps,)) for one in rest)
    graph.node(
        "BatchNormalization", [graph.name(x), gamma, beta, mean, variance], graph.outputs(function), epsilon=a.eps
    )


def _pooling(operator, times_area=False, **attributes):
    def rule(graph, function, a):
        window = _window(graph, function, a)
        floors = tuple(
            (size + 2 * pad - kernel) // stride + 1
            for size, pad, kernel, stride in zip(
                function.inputs[0].shape[-len(a.kernel) :], a.pad, a.kernel, a.stride, strict=True
            )
        )
        if floors != function.outputs[0].shape[-len(a.kernel) :]:
            graph.refuse(function, "ignore_border=False")
        if "including_pad" in a:
            window["count_include_pad"] = int(a.including_pad)
        pooled = graph.outputs(function) if not times_area else None
        name = graph.node(operator, graph.inputs(function), pooled, kernel_shape=list(a.kernel), **attributes, **window)
        if times_area:
            graph.node("Mul", [name, graph.constant(prod(a.kernel))], graph.outputs(function))

    return rule


def _plain(operator, *arguments):
    """A node with the same inputs; arguments: those that become attributes of the same name."""

    def rule(graph, function, a):
        attributes = {name: list(a[name]) if isinstance(a[name], (list, tuple)) else a[name] for name in arguments}
        graph.node(operator, graph.inputs(function), graph.outputs(function), **attributes)

    return rule


def _with_scalar(operator, first=False):
    """A node of the input and the argument `val`; first: whether val comes before the input."""

    def rule(graph, function, a):
        names = [graph.name(function.inputs[0]), graph.constant(a.val)]
        graph.node(operator, names[::-1] if first else names, graph.outputs(function))

    return rule


def _clipped(low, high):
    def rule(graph, function, a):
        names = [graph.name(function.inputs[0]), graph.constant(low), graph.constant(high)]
        graph.node("Clip", names, graph.outputs(function))

    return rule


def _swish(graph, function, a):
    (x,) = graph.inputs(function)
    graph.node("Mul", [x, graph.node("Sigmoid", [x])], graph.outputs(function))


def _mean(graph, function, a):
    graph.node(
        "ReduceMean", graph.inputs(function), graph.outputs(function), axes=list(a.axes), keepdims=int(a.keep_dims)
    )


def _sum(graph, function, a):
    names = [*graph.inputs(function), graph.constant(a.axes, np.int64)]
    graph.node("ReduceSum", names, graph.outputs(function), keepdims=int(a.keep_dims))


def _reshape(graph, function, a):
    _reshaped(graph, function, graph.name(function.inputs[0]))


def _reshaped(graph, function, name):
    shape = graph.constant(function.outputs[0].shape, np.int64)
    graph.node("Reshape", [name, shape], graph.outputs(function))


def _slice(graph, function, a):
    if any(step < 1 for step in a.step):
        graph.refuse(function, f"step={a.step}")
    # The ends as they come out of nnabla, whose stop may lie behind the end.
    sizes = [(size - 1) * step + 1 for size, step in zip(function.outputs[0].shape, a.step, strict=True)]
    starts = [
        start + size if start < 0 else start for start, size in zip(a.start, function.inputs[0].shape, strict=True)
    ]
    stops = [start + size for start, size in zip(starts, sizes, strict=True)]
    axes = range(len(starts))
    names = [graph.constant(values, np.int64) for values in (starts, stops, axes, a.step)]
    graph.node("Slice", [graph.name(function.inputs[0]), *names], graph.outputs(function))


def _split(graph, function, a):
    (x,) = graph.inputs(function)
    pieces = [graph.new("t") for _ in function.outputs]
    graph.node("Split", [x], pieces, axis=a.axis)
    axes = graph.constant([a.axis], np.int64)
    for piece, output in zip(pieces, graph.outputs(function), strict=True):
        graph.node("Squeeze", [piece, axes], [output])


def _stack(graph, function, a):
    axes = graph.constant([a.axis], np.int64)
    pieces = [graph.node("Unsqueeze", [name, axes]) for name in graph.inputs(function)]
    graph.node("Concat", pieces, graph.outputs(function), axis=a.axis)


def _pad(graph, function, a):
    if a.mode != "constant":
        graph.refuse(function, f"mode={a.mode}")
    ndim = len(function.inputs[0].shape)
    width = [0] * (2 * ndim - len(a.pad_width)) + list(a.pad_width)
    names = [graph.constant(width[0::2] + width[1::2], np.int64), graph.constant(a.constant_value)]
    graph.node("Pad", [graph.name(function.inputs[0]), *names], graph.outputs(function))


def _broadcast(graph, function, a):
    shape = graph.constant(function.outputs[0].shape, np.int64)
    graph.node("Expand", [graph.name(function.inputs[0]), shape], graph.outputs(function))


def _transpose(graph, function, a):
    graph.node("Transpose", graph.inputs(function), graph.outputs(function), perm=list(a.axes))


# A rule gets the _Graph, the nnabla Function and its Arguments, and adds nodes that end in the function's outputs.
RULES = {
    "Convolution": _convolution,
    "DepthwiseConvolution": _depthwise_convolution,
    "Deconvolution": _deconvolution,
    "Affine": _affine,
    "BatchNormalization": _batch_normalization,
    "MaxPooling": _pooling("MaxPool"),
    "AveragePooling": _pooling("AveragePool"),
    "SumPooling": _pooling("AveragePool", times_area=True, count_include_pad=1),
    "GlobalAveragePooling": _plain("GlobalAveragePool"),
    "ReLU": _plain("Relu"),
    "ReLU6": _clipped(0, 6),
    "LeakyReLU": _plain("LeakyRelu", "alpha"),
    "ELU": _plain("Elu", "alpha"),
    "Swish": _swish,
    "Sigmoid": _plain("Sigmoid"),
    "HardSigmoid": _plain("HardSigmoid"),
    "Tanh": _plain("Tanh"),
    "HardTanh": _clipped(-1, 1),
    "Softmax": _plain("Softmax", "axis"),
    "LogSoftmax": _plain("LogSoftmax", "axis"),
    "Add2": _plain("Add"),
    "BcAdd2": _plain("Add"),
    "AddN": _plain("Sum"),
    "Sub2": _plain("Sub"),
    "Mul2": _plain("Mul"),
    "Div2": _plain("Div"),
    "AddScalar": _with_scalar("Add"),
    "MulScalar": _with_scalar("Mul"),
    "PowScalar": _with_scalar("Pow"),
    "RSubScalar": _with_scalar("Sub", first=True),
    "RDivScalar": _with_scalar("Div", first=True),
    "MaximumScalar": _with_scalar("Max"),
    "MinimumScalar": _with_scalar("Min"),
    "Mean": _mean,
    "Sum": _sum,
    "Reshape": _reshape,
    "Concatenate": _plain("Concat", "axis"),
    "Slice": _slice,
    "Split": _split,
    "Stack": _stack,
    "Pad": _pad,
    "Transpose": _transpose,
    "Broadcast": _broadcast,
    "Identity": _plain("Identity"),
}
