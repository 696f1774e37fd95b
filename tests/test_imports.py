"""Which module may import which, and what no module may do; read from the source, without running it."""

import ast
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Left never imports right, and nothing imports what comes later in its own line. A name stands for a module of nnas
# or for all modules of a package.
CHAINS = [
    ("kernels", "layers", "spaces"),
    ("space", "layers", "spaces"),
    ("space", "deciders", "spaces"),
    ("space", "genotype", "spaces"),
    ("space", "costs", "objectives"),
    ("communicator", "updates", "searchers", "search"),
    ("searchers", "finalizers"),
    ("updates", "train"),
    ("commands", "app"),
]
# What everything may stand on; it imports nothing of nnas but its like.
FOUNDATION = {"errors", "files", "progress", "randomness"}
# Leaves import the foundation only, and what is named here.
LEAVES = {
    "communicator": set(),
    "cuda_libraries": set(),
    "checkpoint": set(),
    "rundir": {"checkpoint"},
    "data": {"data"},
    "measurements": {"space"},
    # The files of runs alone and what they say, and the cache folder for the library of charts.
    "reports": {"reports", "rundir", "space", "costs", "genotype", "data"},
}
# One file each: an implementation imports none of its package but base.
ALONE = {"spaces", "searchers"}
# What only these, and what is in them, import: {package or module: importers}.
ONLY = {
    "nnas.app": {"nnas.__main__"},
    "nnas.commands": {"nnas.app"},
    "nnas.config": {"nnas.app", "nnas.commands", "nnas.__main__"},
    "estimators": {"nnas.app", "nnas.commands"},
    "hydra": {"nnas.config"},
    "omegaconf": {"nnas.config", "nnas.app", "nnas.commands"},
    # Data sets are made from the configuration, and have no terminal to show that they read or download.
    "tqdm": {"nnas.terminal", "nnas.data.bars"},
    "numba": {"nnas.kernels"},
    "llvmlite": {"nnas.kernels"},
    "onnx": {"estimators.onnx_graph"},
    "onnxruntime": {"estimators.onnx_graph"},
    "mpi4py": {"nnas.communicator"},
    "nnas.kernels": {"nnas.layers", "nnas.commands"},
    "nnas.reports": {"nnas.commands"},
    "vl_convert": {"nnas.reports.drawing"},
}
WITHOUT_NNABLA = {"nnas.space", "nnas.costs", "nnas.checkpoint", "nnas.rundir", "nnas.files", "nnas.errors"}
WITHOUT_NNABLA |= {"nnas.genotype", "nnas.measurements", "estimators.adaptation"}


def sources(root):
    """{module: syntax tree} of nnas and estimators."""
    found = {}
    for path in sorted([*root.glob("nnas/**/*.py"), *root.glob("estimators/**/*.py")]):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[module] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def imports(module, tree, is_package, modules):
    """The names that a module imports, wherever in it; `from nnas import x` counts as nnas.x where that is a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) - node.level + is_package]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in modules else base
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            yield from (given.value for given in node.args[:1] if isinstance(given, ast.Constant))


def _called(node):
    return getattr(node.func, "attr", getattr(node.func, "id", None))


def edges(root):
    trees = sources(root)
    packages = {module for module in trees if any(other.startswith(f"{module}.") for other in trees)}
    return {
        (module, imported)
        for module, tree in trees.items()
        for imported in imports(module, tree, module in packages, trees)
        if imported != module
    }


def layer(module):
    """The name in the tables: 'spaces' of nnas.spaces.mobilenet, 'app' of nnas.app."""
    parts = module.split(".")
    return parts[1] if parts[0] == "nnas" and len(parts) > 1 else None


def is_in(module, package):
    return module == package or module.startswith(f"{package}.")


def later():
    """Pairs (earlier, later), chains joined."""
    order = {pair for chain in CHAINS for pair in combinations(chain, 2)}
    while True:
        joined = order | {(a, d) for a, b in order for c, d in order if b == c}
        if joined == order:
            return order
        order = joined


def violations(root):
    forbidden, found = later(), []
    for importer, imported in sorted(edges(root)):
        here, there = layer(importer), layer(imported)
        wrong = (
            (here, there) in forbidden
            or (here in FOUNDATION and there is not None and there not in FOUNDATION)
            or (here in LEAVES and there is not None and there not in FOUNDATION | LEAVES[here])
            or (here in ALONE and there == here and imported != f"nnas.{here}.base")
            or (is_in(importer, "estimators") and is_in(imported, "nnas"))
            or any(
                is_in(imported, module) and not any(is_in(importer, one) for one in (module, *importers))
                for module, importers in ONLY.items()
            )
            or (importer in WITHOUT_NNABLA and is_in(imported, "nnabla"))
        )
        if wrong:
            found.append(f"{importer} imports {imported}")
    return found


def cycle(root):
    """Modules of an import cycle, or an empty list."""
    after = {}
    for importer, imported in edges(root):
        after.setdefault(importer, set()).add(imported)
    done, path = set(), []

    def visit(module):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        path.append(module)
        found = next(filter(None, map(visit, sorted(after.get(module, ())))), [])
        path.pop()
        done.add(module)
        return found

    return next(filter(None, map(visit, sorted(after))), [])


def unsafe(tree):
    """What must not stand in any module: unpickling, a bare except, an assert."""
    for node in ast.walk(tree):
        called = _called(node) if isinstance(node, ast.Call) else None
        keywords = {keyword.arg for keyword in node.keywords} if isinstance(node, ast.Call) else set()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if any(
                name.split(".")[0] in ("pickle", "cPickle", "dill", "joblib", "shelve", "marshal") for name in names
            ):
                yield node.lineno, "unpickles"
        elif called in ("load", "load_all") and getattr(getattr(node.func, "value", None), "id", None) == "yaml":
            yield node.lineno, "reads YAML unsafely"
        elif "allow_pickle" in keywords:
            yield node.lineno, "unpickles"
        elif called in ("unsafe_load", "full_load", "eval", "exec"):
            yield node.lineno, f"calls {called}"
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "has a bare except"
        elif isinstance(node, ast.Assert):
            yield node.lineno, "asserts"
        elif called == "exit" and getattr(getattr(node.func, "value", None), "id", None) == "sys":
            yield node.lineno, "exits"


def test_no_forbidden_import():
    assert violations(ROOT) == []


def test_no_import_cycle():
    assert cycle(ROOT) == []


def test_nothing_unsafe():
    found = [f"{module}:{line} {what}" for module, tree in sources(ROOT).items() for line, what in unsafe(tree)]
    # The entry point's own exit status is the one exception.
    assert [text for text in found if not text.startswith("nnas.__main__")] == []


def test_the_tables_name_modules_that_exist_or_are_to_come():
    known = {layer(module) for module in sources(ROOT)}
    named = {name for chain in CHAINS for name in chain} | FOUNDATION | LEAVES.keys() | ALONE
    assert named <= known
    assert len(edges(ROOT)) > 50


@pytest.mark.parametrize(
    "path, text, message",
    [
        ("nnas/space.py", "from nnas.deciders import Fixed", "nnas.space imports nnas.deciders"),
        ("nnas/space.py", "def f():\n    import nnas.layers", "nnas.space imports nnas.layers"),
        ("nnas/layers.py", "from nnas.spaces import mobilenet", "nnas.layers imports nnas.spaces.mobilenet"),
        ("nnas/space.py", "import nnabla as nn", "nnas.space imports nnabla"),
        ("nnas/costs.py", "from .objectives import RewardMin", "nnas.costs imports nnas.objectives"),
        ("nnas/communicator.py", "from nnas import search", "nnas.communicator imports nnas.search"),
        ("nnas/data/new.py", "from nnas.updates import cosine", "nnas.data.new imports nnas.updates"),
        ("nnas/checkpoint.py", "from nnas.space import Space", "nnas.checkpoint imports nnas.space"),
        ("nnas/errors.py", "from nnas.space import Space", "nnas.errors imports nnas.space"),
        ("nnas/spaces/new.py", "from .mobilenet import MobileNet", "nnas.spaces.new imports nnas.spaces.mobilenet"),
        ("nnas/searchers/new.py", "import nnas.searchers.reinforce", "imports nnas.searchers.reinforce"),
        ("nnas/search.py", "from estimators.macs import MACs", "nnas.search imports estimators.macs"),
        ("nnas/search.py", "from nnas.app import run", "nnas.search imports nnas.app"),
        ("nnas/search.py", "from nnas.commands import train", "nnas.search imports nnas.commands.train"),
        ("nnas/train.py", "from omegaconf import OmegaConf", "nnas.train imports omegaconf"),
        ("nnas/layers.py", "from numba import njit", "nnas.layers imports numba"),
        ("nnas/kernels/new.py", "import nnas.layers", "nnas.kernels.new imports nnas.layers"),
        ("estimators/new.py", "if True:\n    from nnas.errors import NnasError", "estimators.new imports nnas.errors"),
        ("estimators/new.py", "import_module('nnas.space')", "estimators.new imports nnas.space"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path, path, text, message):
    for name in [
        "nnas/" + one for one in ("spaces/mobilenet", "searchers/reinforce", "deciders", "search", "updates")
    ] + [
        "nnas/space",
        "nnas/layers",
        "nnas/objectives",
        "nnas/app",
        "nnas/commands/train",
        "nnas/errors",
        "estimators/macs",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).with_suffix(".py").write_text("")
    for package in (
        "nnas",
        "nnas/commands",
        "nnas/kernels",
        "nnas/spaces",
        "nnas/searchers",
        "nnas/data",
        "estimators",
    ):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").write_text("")
    assert violations(tmp_path) == []
    (tmp_path / path).write_text(text)
    assert any(found.endswith(message) for found in violations(tmp_path))


def test_a_cycle_is_found(tmp_path):
    (tmp_path / "nnas").mkdir()
    for name, text in (("__init__", ""), ("a", "import nnas.b"), ("b", "from nnas import c"), ("c", "import nnas.a")):
        (tmp_path / "nnas" / f"{name}.py").write_text(text)
    assert set(cycle(tmp_path)) == {"nnas.a", "nnas.b", "nnas.c"}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "np.load(path, allow_pickle=True)",
        "try:\n    f()\nexcept:\n    pass",
        "assert value > 0",
        "sys.exit(1)",
    ],
)
def test_what_is_unsafe_is_found(text):
    assert len(list(unsafe(ast.parse(text)))) == 1
