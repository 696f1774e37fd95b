"""mkdocs asks this file for each page: a line '::: module' or '::: module.Class' becomes its docstrings.

mkdocstrings does the same; the version that goes with our mkdocs does not work with the pymdown-extensions that
mkdocs-material needs.
"""

import importlib
import inspect
import re
import textwrap


def on_page_markdown(markdown, **_):
    return re.sub(r"^::: ([\w.]+)$", lambda found: documented(found[1]), markdown, flags=re.MULTILINE)


def documented(name):
    """Markdown on a module or class and what is public in it; a name that there is none of ends the build."""
    thing = _imported(name)
    if inspect.ismodule(thing):
        inside = [one for key, one in vars(thing).items() if not key.startswith("_")]
        own = [one for one in inside if (inspect.isclass(one) or inspect.isfunction(one)) and one.__module__ == name]
        return "\n\n".join([_text(thing), *(_entry(one, f"{one.__name__}", 3) for one in own)])
    return _entry(thing, name, 3)


def _imported(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, inner = name.rpartition(".")
        return getattr(importlib.import_module(module), inner)


def _entry(thing, name, level):
    kind = "class " if inspect.isclass(thing) else ""
    lines = [f"{'#' * level} `{kind}{name}`", f"```python\n{thing.__name__}{_signature(thing)}\n```", _text(thing)]
    if inspect.isclass(thing):
        methods = [one for key, one in vars(thing).items() if inspect.isfunction(one) and not key.startswith("_")]
        lines += [_entry(one, f"{thing.__name__}.{one.__name__}", level + 1) for one in methods]
    return "\n\n".join(lines)


def _signature(thing):
    try:
        return str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "(...)"


def _text(thing):
    """The docstring, with what Markdown would take for markup as it stands."""
    text = textwrap.dedent(inspect.getdoc(thing) or "") if thing.__doc__ else ""
    return re.sub(r"([<_*\[\]`|])", r"\\\1", text)
