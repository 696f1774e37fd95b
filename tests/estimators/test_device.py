"""Finding devices."""

import importlib

import numpy as np
import pytest

from estimators import EstimatorError
from estimators import device as devices


@pytest.fixture
def no_extension(monkeypatch):
    real = importlib.import_module

    def import_module(name, *rest):
        if name.endswith("cudnn"):
            raise ImportError("libcuda.so.1: cannot open shared object file")
        return real(name, *rest)

    monkeypatch.setattr(devices.importlib, "import_module", import_module)


def test_cpu():
    device = devices.find("cpu")
    device.synchronize()
    assert device.name == "cpu" and device.context.device_id == ""
    assert device.fingerprint["backend"] == "cpu" and device.fingerprint["processor"]
    assert device.fingerprint["nnabla"].startswith("1.")
    assert device.fingerprint["processor"] in device.description and "as asked" in device.description


def test_auto_without_a_gpu_takes_the_cpu_and_says_why(no_extension):
    device = devices.find("auto")
    assert device.name == "cpu"
    assert "libcuda.so.1" in device.description and "\n" not in device.description
    assert device.fingerprint == devices.find("cpu").fingerprint


def test_cudnn_without_a_gpu_says_what_to_install(no_extension):
    with pytest.raises(EstimatorError, match=r"libcuda.*nnas\[cuda120\].*device=cpu"):
        devices.find("cudnn")


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(EstimatorError, match="'cuddn'.*auto, cpu, cudnn.*mean 'cudnn'"):
        devices.find("cuddn")


def test_a_gpu_that_answers_is_taken(monkeypatch):
    """With the CPU behind the extension's calls, since there is no GPU here."""
    waits = []

    class Extension:
        @staticmethod
        def synchronize(device_id):
            waits.append(device_id)

    def context_of(name, **options):
        return devices.nn.Context(["cpu:float"], "CpuCachedArray", options.get("device_id", ""))

    class Answer:
        stdout = "NVIDIA H200\n"

    monkeypatch.setattr(devices.importlib, "import_module", lambda name: Extension)
    monkeypatch.setattr(devices, "get_extension_context", context_of)
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: Answer)
    device = devices.find("auto")
    device.synchronize()
    assert device.name == "cudnn" and device.fingerprint["processor"] == "NVIDIA H200"
    assert waits == ["0", "0"]
    assert "GPU answers" in device.description


def test_a_processor_without_a_model_name(monkeypatch):
    text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n"
    monkeypatch.setattr(devices.Path, "read_text", lambda *_, **__: text)
    monkeypatch.setattr(devices.platform, "machine", lambda: "aarch64")
    assert devices._processor() == "aarch64 (implementer 0x41, part 0xd0c)"


def test_fingerprints_are_json_values():
    assert all(isinstance(value, (str, int)) for value in devices.find("cpu").fingerprint.values())
    assert not any(isinstance(value, np.generic) for value in devices.find("cpu").fingerprint.values())
