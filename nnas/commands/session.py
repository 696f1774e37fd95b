"""What every command works with: how it was called, the device, the space and a terminal."""

import os
import re
import shlex
import shutil
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import nnabla as nn
from omegaconf import OmegaConf

from estimators import device as devices
from nnas import communicator as communicators
from nnas import cuda_libraries
from nnas.commands.settings import built, built_hooks
from nnas.deciders import listed
from nnas.errors import NnasError, check_boolean, check_positive_integer, nearest, one_line
from nnas.kernels import loading
from nnas.pricing import price
from nnas.rundir import working_in
from nnas.terminal import Terminal


@dataclass(frozen=True)
class Invocation:
    """How a command was called: its name, --config-dir or None, and the overrides."""

    name: str
    config_dir: str
    overrides: list

    def to_json(self):
        config_dir = self.config_dir and os.path.abspath(self.config_dir)
        return {"name": self.name, "config_dir": config_dir, "overrides": self.overrides}

    def kept(self, keep=None, changes=()):
        """The overrides of these sections (None: all), but for run_dir and what is changed."""
        changed = {change.partition("=")[0] for change in changes} | {"run_dir"}
        return [
            override
            for override in self.overrides
            if override.lstrip("+~").partition("=")[0] not in changed
            and (keep is None or re.split(r"[.=@]", override.lstrip("+~"))[0] in keep)
        ]

    def variant(self, name, *changes, keep=None):
        """A command line like this one with another command and changes, as it works from where the user stands.

        keep: the sections whose overrides go along; None: all but run_dir and what is changed."""
        kept = [shlex.quote(override) for override in self.kept(keep, changes)]
        config_dir = [f"--config-dir={self.config_dir}"] if self.config_dir else []
        if os.path.basename(sys.argv[0]) == "main.py":
            start = [_from_here(sys.executable), "main.py", f"--config-name={name}"]
        else:
            beside = os.path.join(os.path.dirname(sys.executable), "nnas")
            start = ["nnas" if shutil.which("nnas") or not os.path.exists(beside) else _from_here(beside), name]
        return " ".join([*start, *config_dir, *kept, *map(shlex.quote, changes)])


def _from_here(program):
    """The path of a program, short if it lies below the folder that the user stands in."""
    return os.path.relpath(program) if program.startswith(os.getcwd() + os.sep) else program


class Session:
    """What every command needs: the device, the space, a terminal, hooks and the processes.

    Of several processes the first has the hooks, and speaks and writes for all."""

    def __init__(self, config, invocation, communicator):
        communicator.check_alike("the configuration", lambda: OmegaConf.to_container(config))
        check_positive_integer("seed", config.get("seed", 0), least=0, most=2**64 - 1)
        self.invocation = invocation
        self._held, self._run = ExitStack(), None
        self.terminal = Terminal(quiet=not communicator.leads)
        if not config.get("device"):
            raise NnasError(f"device is not given; take one of {', '.join(devices.NAMES)}")
        if config.device.backend in ("auto", "cudnn"):
            cuda_libraries.preload()
        self.device = devices.find(config.device.backend, _gpu_of(communicator, config.device.get("ids")))
        self.communicator = communicator
        synchronized = check_boolean("device.synchronized_bn", config.device.get("synchronized_bn", False))
        if synchronized and self.device.on_cpu:
            raise NnasError("device.synchronized_bn=true: nnabla has it on GPUs alone; take device=cudnn, or leave it")
        if not self.device.on_cpu:
            self.communicator = communicators.on_gpus(communicator, self.device.context, synchronized)
        self._kernels, self._threads = config.device.kernels, config.device.threads
        hooks = built_hooks(config)
        self.hooks = hooks if communicator.leads else []
        nn.set_default_context(self.device.context)
        self.network = built(config, "space")
        self.space = listed(self.network)
        self.terminal.say(self.device.description)
        self.terminal.say(
            f"space: {self.space.name}, {len(self.space.decisions)} decisions, {self.space.size:.3g} architectures"
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.terminal.close()
        self._held.close()

    def hold(self, run):
        """Keep other processes out of the folder of a run until the command ends."""
        if self._run is None:
            self.communicator.once(lambda: self._held.enter_context(working_in(run)))
            self._run = run

    @cached_property
    def kernels(self):
        """The fast functions to search and train with, or None for nnabla's own."""
        chosen, possible = self._kernels, ("auto", "native", "fast")
        if chosen not in possible:
            raise NnasError(f"device.kernels={chosen}: possible are {', '.join(possible)}{nearest(chosen, possible)}")
        if chosen == "native" or (chosen == "auto" and not self.device.on_cpu):
            return None
        if not self.device.on_cpu:
            raise NnasError("device.kernels=fast: these are for the CPU; take device=cpu, or device.kernels=auto")
        try:
            # In turn: the first process of a machine compiles them for all.
            functions = self.communicator.in_turn(lambda: loading.load(self._threads, self.terminal.say))
        except loading.KernelsUnavailable as error:
            if chosen == "fast":
                raise NnasError(f"device.kernels=fast: {one_line(error)}") from error
            self.terminal.warn(f"training with nnabla's own CPU functions, which are slower: {one_line(error)}")
            return None
        self.terminal.say(f"training with the fast CPU kernels, threads: {functions.threads()}")
        return functions

    def price(self, estimator):
        with self.telling(estimator):
            return price(self.network, self.space, estimator, self.terminal.progress)

    @contextmanager
    def telling(self, estimator):
        """Say afterwards what an estimator has to say of its measurements."""
        before = len(estimator.notices)
        yield
        for notice in estimator.notices[before:]:
            self.terminal.say(notice)


def _gpu_of(communicator, ids):
    """The number of the GPU that this process takes, of device.ids; by default one after the other."""
    place = communicator.place
    if ids is None:
        return str(place)
    ids = OmegaConf.to_container(ids) if OmegaConf.is_list(ids) else [ids]
    if any(type(one) is not int or one < 0 for one in ids) or len(set(ids)) < len(ids):
        raise NnasError(f"device.ids={ids}: it must be a list of different numbers of GPUs, as [0,1]")
    if place >= len(ids):
        raise NnasError(
            f"device.ids={ids}: this machine has more processes than these GPUs; start {len(ids)} of them, or add ids"
        )
    return str(ids[place])
