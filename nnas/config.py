"""The command line and the configuration files: composed by Hydra, with errors of one line."""

import argparse
import os
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import nnas
from nnas.errors import NnasError, nearest, one_line
from nnas.files import check_yaml, read_yaml


def _folders_in(path, inside="."):
    """For `classes: ${folders:${data.path},${data.training}}`: how many folders there are, and 2 where there are
    fewer, which the data set will say."""
    root = Path(str(path), str(inside))
    inside = root.iterdir() if root.is_dir() else ()
    return max(2, sum(one.is_dir() and not one.name.startswith(".") for one in inside))


OmegaConf.register_new_resolver("folders", _folders_in, replace=True)


def folder():
    """Where the configuration files are: in the package as installed, or beside it in a checkout."""
    package = Path(nnas.__file__).resolve().parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


def commands(config_dir=None):
    """The names that --config-name takes."""
    return sorted({path.stem for one in _folders(config_dir) for path in one.glob("*.yaml")})


def groups(config_dir=None):
    """{group: the names of its options}."""
    found = {}
    for one in _folders(config_dir):
        for path in sorted(one.glob("*/*.yaml")):
            found.setdefault(path.parent.name, []).append(path.stem)
    return found


def about(group, name, config_dir=None):
    """The first line of comment of a configuration file, up to the end of its sentence; group: '' for commands."""
    path = next(one / group / f"{name}.yaml" for one in _folders(config_dir) if (one / group / f"{name}.yaml").exists())
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline(1000).strip()
    text = first.removeprefix("#").strip() if first.startswith("#") else ""
    return one_line(re.split(r": `|\. (?=[A-Z])", text)[0].rstrip(".:"))


def help_text(config_dir=None):
    """All commands and groups, a line each."""
    names, found = commands(config_dir), groups(config_dir)
    width = max(map(len, [*names, *found]))
    lines = ["commands:", *(f"  {name:{width}}  {about('', name, config_dir)}".rstrip() for name in names)]
    lines += ["", "groups, as space=mobilenet_small (more on their options: nnas list what=spaces):"]
    lines += [f"  {name:{width}}  {', '.join(options)}" for name, options in found.items()]
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    def format_help(self):
        # Here and not as an epilog, since all files are read for it.
        return f"{super().format_help()}\n{help_text()}\n"

    def error(self, message):
        raise NnasError(f"{message}; the command line is COMMAND key=value ... (--help tells more)")


def _folders(config_dir):
    return [folder(), *([Path(config_dir).resolve()] if config_dir else [])]


def parse(arguments):
    """Return (config name, config dir or None, what to do: 'run', 'sweep' or 'show', overrides) of a command line."""
    parser = _Parser(
        prog="nnas",
        usage="nnas COMMAND [key=value ...]   or   python main.py --config-name=COMMAND [key=value ...]",
        description="Hardware-aware neural architecture search. All that takes a value is in Hydra's grammar.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config-name", "-cn", metavar="COMMAND", help="a file of conf/ or of --config-dir, without .yaml"
    )
    parser.add_argument("--config-dir", "-cd", metavar="FOLDER", help="a folder with configuration files of your own")
    parser.add_argument(
        "--multirun", "-m", action="store_true", help="a run for each combination of values, as seed=0,1,2"
    )
    parser.add_argument("--cfg", choices=["job"], help="show the configuration and do nothing")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="values to change, in Hydra's grammar")
    known = parser.parse_intermixed_args(arguments)
    name, overrides = known.config_name, known.overrides
    if name is None and overrides and "=" not in overrides[0]:
        name, *overrides = overrides
    if name is None:
        raise NnasError(
            f"no command is given; say --config-name=COMMAND, with one of {', '.join(commands(known.config_dir))}"
        )
    action = "show" if known.cfg else "sweep" if known.multirun else "run"
    return name.removesuffix(".yaml"), known.config_dir, action, overrides


@dataclass(frozen=True)
class Job:
    """The overrides of one run of several: those that all have, and one value of each that is swept."""

    fixed: list
    swept: list


def swept(overrides):
    """The Jobs of overrides with values to choose from, in Hydra's grammar: seed=0,1,2 or seed=range(3)."""
    fixed, choices = [], []
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
            if parsed.is_sweep_override():
                key = parsed.get_key_element()
                choices.append([f"{key}={value}" for value in parsed.sweep_string_iterator()])
            else:
                fixed.append(override)
        except (HydraException, ValueError, RecursionError):
            raise NnasError(
                f"{override}: it is not of the form key=value, or key=value,value,...{_quoting(override)}"
            ) from None
    return [Job(fixed, list(values)) for values in product(*choices)]


def _quoting(override):
    """What to say of a value that Hydra reads as more than a text, as a path with ~ or brackets."""
    key, _, value = override.partition("=")
    if not re.search(r"[~()\[\]{}:]", value) or set(value) & set("'\""):
        return ""
    return f"; if it is a text, write \"{key}='{os.path.expanduser(value)}'\""


def load(name, config_dir, overrides, complete=True):
    """The composed configuration; complete: whether a value that has to be given must be there."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise NnasError(f"--config-dir={config_dir}: there is no such folder")
    possible = commands(config_dir)
    if name not in possible:
        raise NnasError(
            f"--config-name={name}: there is no such configuration{nearest(name, possible)} (there are "
            f"{', '.join(possible)})"
        )
    for pattern in ("*.yaml", "*/*.yaml") if config_dir else ():
        for path in Path(config_dir).glob(pattern):
            check_yaml(path)
    # Hydra looks for the command itself in the first folder only.
    first, *others = sorted(_folders(config_dir), key=lambda one: not (one / f"{name}.yaml").exists())
    searchpath = [f"hydra.searchpath=[{','.join(f'file://{other}' for other in others)}]"] if others else []
    with initialize_config_dir(str(first), version_base="1.3"):
        try:
            config = compose(name, overrides + searchpath)
            OmegaConf.resolve(config)
        except MissingConfigException as error:
            raise NnasError(_missing(error, config_dir)) from None
        except yaml.YAMLError as error:
            raise NnasError(f"--config-name={name}: a file of it is not YAML: {one_line(error)}") from None
        # Hydra fails in each of these ways on overrides that it did not foresee.
        except (HydraException, OmegaConfBaseException, ValueError, TypeError, AttributeError, LookupError) as error:
            raise NnasError(_explained(error, name, searchpath, overrides)) from None
    missing = sorted(OmegaConf.missing_keys(config))
    if missing and complete:
        raise NnasError(f"{missing[0]} is not given; add {missing[0]}=... to the command")
    return config


def build(config, **arguments):
    """The object that a configuration describes by _target_; errors of its constructor come through as they are."""
    try:
        return instantiate(config, _convert_="all", **arguments)
    except InstantiationException as error:
        cause = error.__cause__
        # EstimatorError is a ValueError; estimators do not know nnas.
        if isinstance(cause, NnasError) or type(cause).__module__.startswith("estimators"):
            raise cause from None
        raise NnasError(one_line(cause or error)) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, NnasError) or type(error).__module__.startswith("estimators"):
            raise
        # Of Hydra itself, as for a flag like _partial_ that is none.
        raise NnasError(f"{one_line(error)}; --cfg job shows what the configuration has") from None


def _missing(error, config_dir):
    wanted = error.missing_cfg_file or ""
    group, _, option = wanted.rpartition("/")
    # Hydra does not say what there is where several may be chosen.
    options = error.options or sorted(
        path.stem for one in _folders(config_dir) for path in (one / group).glob("*.yaml")
    )
    return (
        f"{group or 'configuration'}={option}: there is no such option{nearest(option, options)} (there are "
        f"{', '.join(options)})"
    )


def _explained(error, name, searchpath, overrides):
    """Which of the overrides is at fault, with the nearest key that there is."""
    try:
        keys = _keys(compose(name, searchpath))
    except (HydraException, OmegaConfBaseException):
        keys = []
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except (HydraException, ValueError, RecursionError):
            return f"{override}: it is not of the form key=value{_quoting(override)}"
        key, package = parsed.key_or_group, parsed.package
        if package is not None and key not in groups():
            return f"{override}: there is no group {key!r}{nearest(key, groups())} (nnas --help lists them)"
        if package is not None and not parsed.is_add() and package not in keys:
            return f"{override}: there is no place {package!r}{nearest(package, keys)} (--cfg job shows them all)"
        options = sorted(path.stem for path in (folder() / key).glob("*.yaml"))
        chosen = parsed.value() if isinstance(parsed.value(), list) else [parsed.value()]
        if options and not all(isinstance(one, str) for one in chosen):
            return f"{override}: it must be one of {', '.join(options)}"
        if not parsed.is_add() and key not in keys and not (folder() / key).is_dir():
            return f"{override}: there is no key {key!r}{nearest(key, keys)} (--cfg job shows them all)"
    return one_line(error)


def _keys(node, prefix=""):
    keys = []
    if isinstance(node, (DictConfig, ListConfig)):
        items = node.items_ex(resolve=False) if isinstance(node, DictConfig) else ()
        for key, value in items:
            keys += [f"{prefix}{key}", *_keys(value, f"{prefix}{key}.")]
    return keys


def defaults(name, config_dir=None):
    """{group: the option that a command's own file takes}, of groups that stand there with one option."""
    path = next(one / f"{name}.yaml" for one in _folders(config_dir) if (one / f"{name}.yaml").exists())
    entries = (read_yaml(path, "a configuration") or {}).get("defaults") or []
    chosen = [pair for entry in entries if isinstance(entry, dict) for pair in entry.items()]
    return {group.rpartition(" ")[2].strip("/"): option for group, option in chosen if isinstance(option, str)}


def completions(line):
    """What may stand at the end of a command line that is being typed: commands, keys, options of groups.

    Behind an equals sign the values alone, since bash completes words between those."""
    words = line.split()
    typed = "" if line.endswith(" ") or len(words) < 2 else words[-1]
    given = words[1 : len(words) - bool(typed)]
    config_dir = next((word.partition("=")[2] for word in given if word.startswith("--config-dir=")), None)
    try:
        options = groups(config_dir)
        name = next((word for word in given if "=" not in word and not word.startswith("-")), None)
        if name is None:
            return [f"{one} " for one in commands(config_dir) if one.startswith(typed)]
        key, equals, value = typed.partition("=")
        if equals:
            return [f"{one} " for one in options.get(key.partition("@")[0], ()) if one.startswith(value)]
        config = load(name, config_dir, [word for word in given if "=" in word[1:] and word[0] != "-"], complete=False)
        keys = _keys(config)
        sections = {one.rpartition(".")[0] for one in keys}
        possible = {f"{one}=" for one in keys if one not in sections or one in options}
        # One part of a nested key at a time.
        depth = typed.count(".")
        cut = [(".".join(one.split(".")[: depth + 1]), one.count(".") > depth) for one in possible]
        return sorted({f"{stem}." if deeper else stem for stem, deeper in cut if stem.startswith(typed)})
    except NnasError:
        return []
