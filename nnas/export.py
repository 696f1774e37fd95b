"""The trained network as a file, its batch normalization folded into its convolutions."""

import shutil
import tempfile
from pathlib import Path

import nnabla as nn
from nnabla.utils.save import save as save_nnp

from nnas.deciders import Fixed
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


def export_nnp(path, name, x, outputs, parameters):
    """Write a nnabla network file whose network `name` maps x to {name: output}; its executor is called 'runtime'."""
    scope = {}
    with nn.parameter_scope("", scope), replacing(path) as temporary, tempfile.TemporaryDirectory() as folder:
        for parameter_name, parameter in parameters.items():
            nn.parameter.set_parameter(parameter_name, parameter)
        # nnabla leaves a half-written file when it fails, and writes only to names that end in .nnp.
        written = Path(folder) / "network.nnp"
        contents = {
            "networks": [{"name": name, "batch_size": x.shape[0], "outputs": outputs, "names": {"x": x}}],
            "executors": [{"name": "runtime", "network": name, "data": ["x"], "output": list(outputs)}],
        }
        try:
            save_nnp(str(written), contents)
        # Of HDF5, when the disk of temporary files is full.
        except (OSError, RuntimeError) as error:
            raise NnasError(
                f"{path}: the network cannot be written by way of {folder} ({one_line(error)}); when there is room, "
                "the same command goes on"
            ) from error
        shutil.copyfile(written, temporary)
