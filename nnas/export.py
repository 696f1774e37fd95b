"""The trained network as files, its batch normalization folded into its convolutions."""

import re
import tempfile
import zipfile
from dataclasses import replace as replaced
from pathlib import Path

import nnabla as nn
from nnabla.utils.save import save as save_nnp

from nnas.deciders import Costing, Fixed
from nnas.errors import NnasError, one_line
from nnas.files import replacing
from nnas.layers import SHIPPED, fold
from nnas.updates import set_parameters


def shipped_network(network, choices, batch, weights=None):
    """Build an architecture as it ships, and return (input, {name: output}, {name: parameter}).

    weights: {name: array} of the trained network, or None for random ones.
    """
    x, scope = nn.Variable((batch, *network.input_shape)), {}
    with nn.parameter_scope("", scope):
        outputs = network(x, Fixed(choices), SHIPPED)
        parameters = nn.get_parameters(grad_only=False)
    if weights is not None:
        set_parameters(parameters, fold(weights), "the trained weights")
    return x, {"logits": outputs.logits, **outputs.others}, parameters


def modules(network, choices, batch, weights=None):
    """The parts of an architecture as it ships, in the order in which they run, and {name: parameter} of all.

    They are cut where decisions were: one part for each chosen option that is no identity, and one for what lies
    between. weights: as for shipped_network.
    """
    x, scope = nn.Variable((batch, *network.input_shape)), {}
    costing = Costing(network.name, x)

    def decide(name, candidates, x):
        return costing(name, {choices[name]: candidates[choices[name]]}, x)

    with nn.parameter_scope("", scope):
        outputs = network(x, decide, SHIPPED)
        costing.finish(outputs.logits, *outputs.others.values())
        parameters = nn.get_parameters(grad_only=False)
    if weights is not None:
        set_parameters(parameters, fold(weights), "the trained weights")
    # In this network all of them are there.
    return [replaced(part, when=()) for part in costing.parts], parameters


def export_modules(folder, parts, parameters, writers):
    """Write each part as a file, and return [{format: file name}]; the folder is made.

    writers: {format: function of (path, name, inputs, outputs, parameters)}, as export_nnp is one.
    """
    folder.mkdir(exist_ok=True)
    files = []
    for number, part in enumerate(parts, start=1):
        name = "_".join([f"{number:03}", *re.findall(r"\w+", part.label.partition(": ")[2])])
        inputs = {f"x{position}" if len(part.inputs) > 1 else "x": x for position, x in enumerate(part.inputs)}
        files.append({form: f"{name}.{form}" for form in writers})
        for form, write in writers.items():
            write(folder / f"{name}.{form}", name, inputs, {"y": part.outputs[0]}, parameters)
    return files


def export_nnp(path, name, inputs, outputs, parameters):
    """Write a nnabla network file with the network `name`; its executor is called 'runtime'.

    inputs, outputs, parameters: {name: Variable}; parameters that the network does not use are left out.
    """
    scope, used = {}, set()
    for output in outputs.values():
        output.visit(lambda function: used.update(function.inputs))
    with nn.parameter_scope("", scope), replacing(path) as temporary, tempfile.TemporaryDirectory() as folder:
        for parameter_name, parameter in parameters.items():
            if parameter in used:
                nn.parameter.set_parameter(parameter_name, parameter)
        # nnabla leaves a half-written file when it fails, and writes only to names that end in .nnp.
        written = Path(folder) / "network.nnp"
        batch = next(iter(inputs.values())).shape[0]
        contents = {
            "networks": [{"name": name, "batch_size": batch, "outputs": outputs, "names": inputs}],
            "executors": [{"name": "runtime", "network": name, "data": [*inputs], "output": [*outputs]}],
        }
        try:
            save_nnp(str(written), contents)
        # Of HDF5, when the disk of temporary files is full.
        except (OSError, RuntimeError) as error:
            raise NnasError(
                f"{path}: the network cannot be written by way of {folder} ({one_line(error)}); when there is room, "
                "the same command goes on"
            ) from error
        _copy_without_dates(written, temporary)


def _copy_without_dates(source, target):
    """Copy a zip file so that equal contents are equal bytes."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for member in old.infolist():
            new.writestr(zipfile.ZipInfo(member.filename), old.read(member))
