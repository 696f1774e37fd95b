"""What users have called while a command runs: a class and a line of configuration, hooks.NAME._target_."""


class Hook:
    """Override what you need; whatever is raised ends the run.

    progress: nnas.progress.Progress of the step (its epoch and step count from 1), at an epoch's end with its record.
    loop: the Search or Training that is running. A run that is resumed calls `start_run` and `start_phase` again, and
    `start_epoch` only where an epoch begins.
    """

    def start_run(self, run):
        """run: nnas.rundir.RunFolder, which has its configuration by now."""

    def end_run(self, run, summary):
        """summary: what summary.json holds."""

    def start_phase(self, phase, loop):
        """phase: warmup, search or train."""

    def end_phase(self, phase, loop):
        pass

    def start_epoch(self, progress, loop):
        pass

    def end_epoch(self, progress, loop):
        pass

    def start_step(self, progress, loop):
        pass

    def end_step(self, progress, loop):
        pass


def observed(loop, hooks):
    """Pass on what a loop yields, and call the hooks around it."""
    steps, phase = iter(loop), None
    while (upcoming := loop.upcoming) is not None:
        if upcoming.phase != phase:
            if phase is not None:
                call(hooks, "end_phase", phase, loop)
            phase = upcoming.phase
            call(hooks, "start_phase", phase, loop)
        if upcoming.step == 1:
            call(hooks, "start_epoch", upcoming, loop)
        call(hooks, "start_step", upcoming, loop)
        progress = next(steps)
        call(hooks, "end_step", progress, loop)
        if progress.record:
            call(hooks, "end_epoch", progress, loop)
        yield progress
    if phase is not None:
        call(hooks, "end_phase", phase, loop)


def call(hooks, name, *arguments):
    """Call a method of each hook, in their order."""
    for hook in hooks:
        getattr(hook, name)(*arguments)
