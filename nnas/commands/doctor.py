"""The command `doctor`."""

import sys
from importlib.util import find_spec
from pathlib import Path

from nnas import cuda_libraries


def doctor(config, terminal):
    """Say for each library of the GPU path and of several processes where it was found, or what is missing."""
    terminal.say(doctor_text(cuda_libraries.load(), cuda_libraries.has_extension(), *_processes()))


def doctor_text(libraries, has_extension, mpi4py, mpirun):
    """libraries: cuda_libraries.Library. mpi4py: whether it is installed. mpirun: its path, or None."""
    missing = [one for one in libraries if one.place is None]
    lines = ["GPU, for device=cudnn:"]
    lines += [_line("nnabla-ext-cuda120", "installed" if has_extension else "missing: pip install 'nnas[cuda120]'")]
    lines += [_line(one.name, one.place or _lack(one)) for one in libraries]
    if not missing and has_extension:
        lines += ["  all is there"]
    else:
        packages = sorted({one.package for one in missing if one.package})
        if packages:
            lines += [f"  to mend: pip install {' '.join(packages)}"]
        if any(one.package is None for one in missing):
            lines += ["  to mend: NVIDIA's driver is the system's to install; without a GPU, take device=cpu"]
    lines += ["several processes, for mpirun:"]
    lines += [_line("mpi4py", "installed" if mpi4py else "missing: pip install 'nnas[mpi]'")]
    lines += [_line("mpirun", mpirun or "missing beside this Python: pip install 'nnas[mpi]', or take the system's")]
    return "\n".join(lines)


def _processes():
    mpirun = Path(sys.executable).parent / "mpirun"
    return find_spec("mpi4py") is not None, str(mpirun) if mpirun.exists() else None


def _lack(library):
    why = f" ({library.fault})" if library.fault else ""
    return f"missing: {library.package or 'it comes with the driver'}{why}"


def _line(name, text):
    return f"  {name:20} {text}"
