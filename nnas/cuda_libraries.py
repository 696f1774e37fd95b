"""The libraries of CUDA and cuDNN that come as Python packages, found without LD_LIBRARY_PATH."""

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

# What nnabla's CUDA extension links, each after what it needs itself: {library: the package that brings it}.
LIBRARIES = {
    "libcuda.so.1": None,  # of the driver
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcusparse.so.12": "nvidia-cusparse-cu12",
    "libcusolver.so.11": "nvidia-cusolver-cu12",
    "libcurand.so.10": "nvidia-curand-cu12",
    "libcufft.so.11": "nvidia-cufft-cu12",
    "libcudnn.so.8": "nvidia-cudnn-cu12",
    "libnccl.so.2": "nvidia-nccl-cu12",
}
EXTENSION = "nnabla_ext.cudnn"


class Library(NamedTuple):
    """A library: place: its path, "the system", or None where it is missing. package: what brings it; None: the
    driver. fault: why it does not load, or None."""

    name: str
    package: str
    place: str
    fault: str


def has_extension():
    """Whether nnabla's CUDA extension is installed; it is not imported, which needs the libraries."""
    try:
        return find_spec(EXTENSION) is not None
    except ModuleNotFoundError:
        return False


def preload():
    """Load the libraries of packages, so that the extension finds them as it is imported; nothing without it."""
    return load() if has_extension() else []


def load(open_library=ctypes.CDLL, folders=None):
    """A Library for each of LIBRARIES, loaded into this process where it can be. open_library: as ctypes.CDLL. folders:
    where packages keep them; None: those of the packages nvidia.*."""
    folders = _folders() if folders is None else folders
    return [_loaded(name, package, open_library, folders) for name, package in LIBRARIES.items()]


def _loaded(name, package, open_library, folders):
    paths = [path for folder in folders for path in sorted(Path(folder).glob(f"*/lib/{name}"))]
    fault = None
    # The extension's calls are resolved in what was loaded globally.
    for path in [*map(str, paths), name]:
        try:
            open_library(path, mode=ctypes.RTLD_GLOBAL)
            return Library(name, package, path if path != name else "the system", None)
        except OSError as error:
            fault = fault or (str(error) if path != name else None)
    return Library(name, package, None, fault)


def _folders():
    spec = find_spec("nvidia")
    return list(spec.submodule_search_locations) if spec is not None else []
