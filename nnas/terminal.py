"""What a person sees while a command runs. One process speaks; the others have a Terminal that is quiet."""

import sys

from tqdm import tqdm


class Terminal:
    """Lines and progress bars; bars are drawn only where someone can see them."""

    def __init__(self, quiet=False):
        self._quiet = quiet
        self._bar = None

    def say(self, text=""):
        if not self._quiet:
            with tqdm.external_write_mode(sys.stdout):
                print(text, flush=True)

    def warn(self, text):
        self.say(f"warning: {text}")

    def progress(self, done, total, text):
        """Draw a bar that stands at done of total."""
        if self._bar is None:
            self._bar = tqdm(total=total, disable=True if self._quiet else None, leave=False, dynamic_ncols=True)
        self._bar.total = total
        self._bar.set_description(text, refresh=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self):
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def follow(self, loop):
        """Draw the progress of a loop and pass on what it yields."""
        try:
            for progress in loop:
                self.progress(
                    progress.step, progress.steps, f"{progress.phase} epoch {progress.epoch}/{progress.epochs}"
                )
                yield progress
        finally:
            self.close()


def epoch_line(progress, constraints):
    """One line on an epoch; constraints: those of the search, for the units of its costs."""
    record = progress.record
    texts = [
        f"{progress.phase:6} epoch {progress.epoch:3}/{progress.epochs}",
        f"{record['seconds']:6.1f} s",
        f"loss {record['loss']:.3f}",
        f"error {record['error']:.3f}",
    ]
    if "reward" in record:
        texts += [f"sampled: validation error {record['validation_error']:.3f}, reward {record['reward']:.3f}"]
    if "entropy" in record:
        texts += [f"entropy {record['entropy']:.2f}"]
        for one in constraints:
            texts += [
                f"expected {one.name} {record['expected_cost'][one.name]:.4g} {one.costs.unit}, "
                f"best {record['best_cost'][one.name]:.4g}"
            ]
    return "  ".join(texts)


def summary_text(summary, choices):
    """The end of a run for people."""
    width = max(map(len, choices), default=0)
    lines = [
        "",
        f"architecture of {summary['space']}:",
        *(f"  {name:{width}}  {option}" for name, option in choices.items()),
        "",
    ]
    if summary["validation_accuracy"] is not None:
        lines += [
            f"validation accuracy  {summary['validation_accuracy']:7.2%}   (weights of the search, {summary['samples']['validation']} images)"
        ]
    lines += [
        f"test accuracy        {summary['test_accuracy']:7.2%}   (after training, {summary['samples']['test']} images)"
    ]
    for name, cost in summary["costs"].items():
        bound = f"   bound {cost['bound']:.4g} {cost['unit']}" if cost["bound"] is not None else ""
        lines += [
            f"{name + ', predicted':20} {cost['predicted']:7.4g} {cost['unit']} ± {cost['predicted_error']:.1%}{bound}"
        ]
    measured = summary["measured_latency"]
    if measured:
        lines += [
            f"latency, measured    {measured['median']:7.4g} {measured['unit']} ± {measured['spread'] / measured['median']:.1%}"
            f"   on {measured['device']}, batch {measured['batch']}"
        ]
    else:
        lines += ["latency, measured    not here: the table is of another device"]
    lines += ["", f"run folder: {summary['run_dir']}", "next:", *(f"  {command}" for command in summary["next"])]
    return "\n".join(lines)
