"""Making the fast functions ready, and saying why where that fails."""

import importlib
import os
import tempfile
from hashlib import sha256
from pathlib import Path

from nnas.errors import NnasError, check_positive_integer, one_line
from nnas.kernels.threads import share_of_the_cores

# How long a thread that waits for another one stays awake, read when numba's threads start. With libgomp's own 300,000
# a step of MobileNetV2 took 0.99 s where another process was on the cores, with this 0.56 s; alone, both take as long.
SPINS = "5000"


class KernelsUnavailable(NnasError):
    """The fast functions cannot be had on this machine."""


def load(threads=None, say=lambda text: None):
    """The module of the functions (nnas.kernels.functions), ready to compute.

    threads: None for this process's share of the cores. say: told when something takes long. The compiled code is
    kept in the user's cache folder, so that only the first process on a machine has to compile it.
    """
    threads = check_positive_integer("device.threads", share_of_the_cores() if threads is None else threads)
    cache = _cache_folder()
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        numba = importlib.import_module("numba")
        numba.config.CACHE_DIR = str(cache)
        functions = importlib.import_module("nnas.kernels.functions")
        get_host_cpu_name = importlib.import_module("llvmlite.binding").get_host_cpu_name
        most = numba.config.NUMBA_NUM_THREADS
        if threads > most:
            raise NnasError(f"device.threads={threads!r}: at most {most} are possible here")
        functions.use_threads(threads)
        compiled = cache / f"compiled-{numba.__version__}-{get_host_cpu_name()}"
        if not compiled.exists():
            say("compiling the fast CPU kernels, once for this machine: about a minute")
        functions.run_all()
        compiled.touch()
    except NnasError:
        raise
    except ModuleNotFoundError as error:
        raise KernelsUnavailable(f"the package {error.name} is not installed; pip install 'nnas[fast]'") from None
    except Exception as error:  # whatever numba, LLVM and the BLAS may find missing on a machine
        raise KernelsUnavailable(f"numba fails here: {one_line(error)}") from error
    return functions


def _cache_folder():
    """A folder for the code compiled from just these sources at this place: numba takes it for no others."""
    digest = sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{source} {source.stat().st_mtime_ns} ".encode() + source.read_bytes())
    name = f"kernels-{digest.hexdigest()[:12]}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # What others can write to is not taken: compiled code is run.
    for parent in (home / "nnas", Path(tempfile.gettempdir()) / f"nnas-{os.getuid()}"):
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = parent.stat()
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                continue
            (parent / name).mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=parent / name):
                return parent / name
        except OSError:
            continue
    raise KernelsUnavailable(
        f"neither {home / 'nnas'} nor {tempfile.gettempdir()} has room that only this user can write to"
    )
