"""What is not installed, and a GPU that is not there, ends nothing that can do without."""

import subprocess
import sys

OPTIONAL = ("numba", "llvmlite", "matplotlib", "mpi4py", "nnabla_ext.cuda", "nnabla_ext.cudnn")
# The fast functions alone need a package that is optional; nnas.kernels.loading asks for them.
IMPORT_ALL = f"""
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys({OPTIONAL})
for package in ("nnas", "estimators"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.startswith("nnas.kernels.") or module.name == "nnas.kernels.loading":
            importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("nnas", "estimators")))
"""


def test_every_module_imports_without_optional_packages_and_without_a_gpu():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()[-1]
    assert all(f"'{name}'" in found for name in ("nnas.app", "nnas.__main__", "nnas.terminal", "estimators.device"))
