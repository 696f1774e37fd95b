"""The devices that can be measured, and how to tell one from another."""

import difflib
import importlib
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import nnabla as nn
import nnabla.functions as F
from nnabla.ext_utils import get_extension_context

from estimators.base import EstimatorError
from estimators.graph import GraphCopy, one_line
from estimators.onnx_graph import OnnxCopy, needed

FINEST_CLOCK = 1e-6  # seconds; a coarser one is of no use
NAMES = ("auto", "cpu", "cudnn", "onnxruntime")


@dataclass(frozen=True)
class Device:
    """A device of this machine.

    name: the backend, "cpu" or "cudnn". context: nnabla's context for it, to train in too.
    fingerprint: what its latencies depend on: processor, backend, nnabla (version), threads.
    description: one line for the terminal: which device was taken, and why.
    """

    name: str
    context: nn.Context
    fingerprint: dict
    description: str
    dtype: str = "float32"

    @property
    def on_cpu(self):
        """Whether nnabla trains on the CPU in this device's context."""
        return self.name != "cudnn"

    @property
    def clock(self):
        """What gives the seconds that work takes, as a function.

        On the CPU all is computed by the thread that asks for it: the time of that thread leaves out what other
        processes have of its core, which is more than half where the cores are shared."""
        fine = time.get_clock_info("thread_time").resolution <= FINEST_CLOCK
        return time.thread_time if self.on_cpu and fine else time.perf_counter

    def runnable(self, part):
        """A function without arguments that runs a part once, on data of its own; see GraphCopy.

        Raises EstimatorError for a function that the device cannot run.
        """
        return GraphCopy(part, self.context).forward

    def synchronize(self):
        """Wait until all that was started on the device is finished."""
        # The CPU runs each function to its end before the next one.
        if self.name != "cpu":
            extension = importlib.import_module(f"nnabla_ext.{self.name}")
            extension.synchronize(device_id=self.context.device_id)


class OnnxRuntime(Device):
    """ONNX Runtime on the CPU, one thread; nnabla itself, for training, is on the CPU as well."""

    def runnable(self, part):
        """See Device."""
        return OnnxCopy(part, self.context).forward

    def synchronize(self):
        """See Device: a run ends when all is computed."""


def find(name="auto", gpu="0"):
    """The Device of that name; "auto" takes cudnn where a GPU answers, else cpu. gpu: the number of the GPU to take.

    Raises EstimatorError for an unknown name, for cudnn where no GPU answers, and for onnxruntime without its extra.
    """
    if name == "cpu":
        return _cpu("as asked")
    if name == "onnxruntime":
        return _onnxruntime()
    if name not in NAMES:
        nearest = difflib.get_close_matches(str(name), NAMES, n=1, cutoff=0.0)[0]
        raise EstimatorError(f"unknown device {name!r}: possible are {', '.join(NAMES)}; did you mean {nearest!r}?")
    try:
        context = _answering_gpu(gpu)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError)
        reason = "nnabla's CUDA extension is not installed" if missing else one_line(error)
        if name == "cudnn":
            raise EstimatorError(
                f"device 'cudnn' does not work here ({reason}): it needs an NVIDIA GPU with its driver, and "
                "the extra cuda120 (pip install 'nnas[cuda120]'); or take device=cpu"
            ) from error
        return _cpu(reason if missing else f"no GPU answers: {reason}")
    return _cudnn(context, "as asked" if name == "cudnn" else "a GPU answers")


def _cpu(why):
    processor = _processor()
    context = get_extension_context("cpu")
    return Device("cpu", context, _fingerprint(processor, "cpu"), f"device cpu: {processor} ({why})")


def _cudnn(context, why):
    processor = _gpu(context.device_id)
    return Device("cudnn", context, _fingerprint(processor, "cudnn"), f"device cudnn: {processor} ({why})")


def _onnxruntime():
    needed("onnx")
    processor, version = _processor(), needed("onnxruntime").__version__
    return OnnxRuntime(
        "onnxruntime",
        get_extension_context("cpu"),
        {"processor": processor, "backend": "onnxruntime", "onnxruntime": version, "threads": 1},
        f"device onnxruntime: ONNX Runtime {version} on {processor}",
    )


def _fingerprint(processor, backend):
    # nnabla's CPU functions run on one thread, and on a GPU one thread of the host starts the functions.
    return {"processor": processor, "backend": backend, "nnabla": nn.__version__, "threads": 1}


def _answering_gpu(gpu):
    # Not import_extension_module: it logs an error where the extension is missing, and "auto" sees none there.
    extension = importlib.import_module("nnabla_ext.cudnn")
    context = get_extension_context("cudnn", device_id=gpu)
    with nn.context_scope(context), nn.auto_forward(False):
        answer = F.relu(nn.Variable.from_numpy_array([-1.0, 2.0]))
        answer.forward()
    extension.synchronize(device_id=context.device_id)
    if answer.d.tolist() != [0.0, 2.0]:
        raise EstimatorError(f"the GPU answers {answer.d.tolist()} instead of [0.0, 2.0]")
    return context


def _processor():
    """The CPU's model. Cloud machines are called just "AMD EPYC", so family and model number are added."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(\S.*)$", text.split("\n\n")[0], re.MULTILINE))
    if "model name" in fields and "cpu family" in fields:
        return f"{fields['model name']} (family {fields['cpu family']}, model {fields.get('model', '?')})"
    if "CPU part" in fields:
        implementer = fields.get("CPU implementer", "?")
        return f"{platform.machine()} (implementer {implementer}, part {fields['CPU part']})"
    return fields.get("model name") or platform.processor() or platform.machine() or "unknown processor"


def _gpu(device_id):
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", f"--id={device_id}"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise EstimatorError(
            f"nvidia-smi does not tell which GPU this is ({one_line(error)}), and a table needs to know; "
            "install it, or take device=cpu"
        ) from error
