"""Packaging of nnas: the packages nnas and estimators, with the configuration files as nnas.conf."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "nnas" / "__init__.py").read_text(encoding="utf-8")).group(1)
CONFIGS = sorted(
    {"nnas.conf", *(f"nnas.conf.{folder.name}" for folder in (ROOT / "conf").iterdir() if folder.is_dir())}
)

setup(
    name="nnas",
    version=VERSION,
    description="Hardware-aware neural architecture search on nnabla",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # nnabla has wheels for CPython 3.8 to 3.10 only, and the code uses 3.10's syntax.
    python_requires="==3.10.*",
    packages=find_packages(include=["nnas", "nnas.*", "estimators", "estimators.*"]) + CONFIGS,
    package_dir={"nnas.conf": "conf"},
    package_data={package: ["*.yaml"] for package in CONFIGS},
    install_requires=[
        "nnabla>=1.39,<1.40",
        "numpy>=1.23,<2",
        "hydra-core>=1.3,<1.4",
        "omegaconf>=2.3,<2.4",
        "h5py>=3.8",
        "pillow>=9.1",
        "scikit-learn>=1.3",
        "tqdm>=4.60",
        "vl-convert-python>=1.6",
    ],
    extras_require={
        "mpi": ["mpi4py>=4", "openmpi>=5"],
        "cuda120": [
            "nnabla-ext-cuda120>=1.39,<1.40",
            "nvidia-cuda-runtime-cu12",
            "nvidia-cublas-cu12",
            "nvidia-cusolver-cu12",
            "nvidia-curand-cu12",
            "nvidia-cufft-cu12",
            "nvidia-cudnn-cu12>=8.9,<9",
            "nvidia-nccl-cu12",
        ],
        # onnx 1.18 needs a newer protobuf than nnabla takes.
        "onnx": ["onnx>=1.16.2,<1.18", "onnxruntime>=1.19"],
        "fast": ["numba>=0.60", "scipy>=1.11", "threadpoolctl>=3"],
        "tensorboard": ["tensorboardX>=2.6"],
        "docs": ["mkdocs-material>=9.5"],
        "dev": ["altair>=5.5", "pytest>=8", "hypothesis>=6", "ruff>=0.6", "matplotlib>=3.7"],
    },
    entry_points={"console_scripts": ["nnas=nnas.__main__:command_line"]},
)
