"""What a person sees while a command runs. One process speaks; the others have a Terminal that is quiet.

Nothing here is coloured, and bars are drawn on terminals only: NO_COLOR and a pipe get what they ask for."""

import shutil
import sys

from tqdm import tqdm

NOTABLE_SLOWDOWN = 1.1
NOTABLE_SKIP_SHARE = 0.5


class Terminal:
    """Lines and progress bars; bars are drawn only where someone can see them."""

    def __init__(self, quiet=False):
        self._quiet = quiet
        self._bar = None
        self._standing = ""

    def say(self, text=""):
        if not self._quiet:
            with tqdm.external_write_mode(sys.stdout):
                print(text, flush=True)

    def brief(self, text):
        """A line that may lose its end where the terminal is narrower; files and pipes get all of it."""
        self.say(shortened(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)

    def warn(self, text):
        self.say(f"warning: {text}")

    def progress(self, done, total, text):
        """Draw a bar that stands at done of total."""
        if self._bar is None:
            self._bar = tqdm(total=total, disable=True if self._quiet else None, leave=False, dynamic_ncols=True)
        self._bar.total = total
        self._bar.set_description(text, refresh=False)
        self._bar.set_postfix_str(self._standing, refresh=False)
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
                if progress.record:
                    self._standing = standing_text(progress.record)
                yield progress
        finally:
            self._standing = ""
            self.close()


def shortened(text, width):
    """A line without those of its parts, between |, that a terminal has no room for."""
    while len(text) > width and " | " in text:
        text = text.rpartition(" | ")[0]
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def standing_text(record):
    """The best architecture of an epoch and its costs, for a progress bar."""
    costs = [f"{cost:.4g}" for cost in record.get("best_cost", {}).values()]
    return " ".join(["best", *costs, *record["best"].values()]) if "best" in record else ""


def costs_text(name, costs):
    """One line on the Costs of a space: how many terms, where they are from, and how they add up."""
    source, imported = ((costs.description or {}).get(key) for key in ("table", "imported_from"))
    line = f"{name}: {len(costs.terms)} modules in {costs.unit}" + (f" from {source}" if source else ", counted")
    if imported:
        line += f", imported from {imported}"
    if costs.error is None:
        line += "; sums of modules, uncalibrated: how far whole networks are from them is unknown"
    if costs.error:
        line += "; a whole network takes "
        line += "their sum" if costs.factor == 1 else f"{costs.factor:.3f} of their sum"
        line += f", ± {costs.error:.1%}"
    return line


def coverage_text(whole, cut, lacks):
    """How much of a space a latency table has, and all that it lacks."""
    total = whole + cut + len(lacks)
    line = f"{whole} of {total} modules are in the table, {cut} are sums of what is in it, {len(lacks)} are missing"
    return "\n".join([line + (":" if lacks else ""), *(f"  {lack.label}" for lack in lacks)])


def calibration_text(space, calibration, path):
    """What whole networks of a space told."""
    return (
        f"{space}: predictions are ± {calibration.error:.1%} (root mean square) on networks left out, of the "
        f"{calibration.networks} that were measured; kept in {path}"
    )


def validation_text(figures, costs, networks, folder):
    """How well predictions of fresh networks held. figures: {what: {statistic: number}}; costs: what predicted."""
    names = {"calibrated": "predicted", "uncalibrated": "plain sums", "noise_floor": "measured again"}
    lines = [f"{networks} fresh networks, against their measured latency:"]
    lines += [f"{'':16}    MAPE  within 5 %  within 10 %      RMSE  Kendall tau"]
    for key, name in names.items():
        one = figures[key]
        lines += [
            f"{name:16} {one['mape']:7.2%} {one['within_5_percent']:11.0%} {one['within_10_percent']:12.0%} "
            f"{one['rmse']:6.3g} {costs.unit} {one['kendall_tau']:12.3f}"
        ]
    stated = "unknown" if costs.error is None else f"± {costs.error:.1%}"
    return "\n".join([*lines, f"stated error of a prediction: {stated}", f"figures and picture: {folder}"])


def adapted_text(name, path, networks, costs, extremes):
    """What was predicted of a new device; extremes: the cost of the cheapest and of the dearest architecture."""
    cheapest, dearest = extremes
    return (
        f"{name}: all architectures take {cheapest:.4g} to {dearest:.4g} {costs.unit}, by {networks} measured ones; "
        f"± {costs.error:.1%} on networks left out\n{path}: the latency table, {len(costs.terms)} modules"
    )


def epoch_line(progress, constraints):
    """One line on an epoch; constraints: those of the search, for the units of its costs."""
    record = progress.record
    line = (
        f"{progress.phase:6} {progress.epoch:3}/{progress.epochs} {record['seconds']:6.1f} s  "
        f"loss {record['loss']:.3f}  error {record['error']:.3f}"
    )
    figure = next((one for one in ("reward", "objective") if one in record), None)
    if figure:
        line += f" | sampled: {figure} {record[figure]:.3f}"
        if "validation_error" in record:
            line += f"  error {record['validation_error']:.3f}"
        if "entropy" in record:
            line += f"  entropy {record['entropy']:.2f}"
        for one in constraints:
            line += f" | {one.name} {one.costs.unit}: best {record['best_cost'][one.name]:.4g}"
            if "expected_cost" in record:
                line += f"  expected {record['expected_cost'][one.name]:.4g}"
    return line


def collapse_text(record):
    """What an epoch's record tells of a search that is about to find little but skips, or ended by that; or None."""
    share = record.get("skip_share", 0)
    if record.get("stopped"):
        return f"the search ends here: {share:.0%} of the decisions would skip (search.stop_at_skip_share)"
    if share < NOTABLE_SKIP_SHARE:
        return None
    return (
        f"{share:.0%} of the decisions would skip, a known way for mixtures to fail: search.stop_at_skip_share=0.5 "
        "ends a search there, more epochs of warm-up (search.warmup_epochs) put it off"
    )


def summary_text(summary, choices, nodes=()):
    """The end of a run for people; nodes: of the space, each of which is shown in one line."""
    samples = summary["samples"]
    lines = ["", f"architecture of {summary['space']}:", *architecture_lines(choices, nodes)]
    rows = []
    if summary["validation_accuracy"] is not None:
        note = f"with the weights of the search, {samples['validation']} images"
        if summary.get("recalibrated_accuracy") is not None:
            note += f"; {summary['recalibrated_accuracy']:.2%} by running statistics"
        rows += [("validation accuracy", f"{summary['validation_accuracy']:.2%}", note)]
    rows += [("test accuracy", f"{summary['test_accuracy']:.2%}", f"after training, {samples['test']} images")]
    for name, cost in summary["costs"].items():
        bound = "" if cost["bound"] is None else f"bound {cost['bound']:.4g} {cost['unit']}"
        rows += [(f"{name}, predicted", _figure(cost["predicted"], cost["unit"], cost["predicted_error"]), bound)]
    measured = summary["measured_latency"]
    if measured:
        low, high = measured["interval"] or (0.0, 2 * measured["spread"])
        device = f"on {measured['device']}, batch {measured['batch']}"
        if "latency" in summary["costs"]:
            over = measured["median"] / summary["costs"]["latency"]["predicted"] - 1
            device = f"{abs(over):.1%} {'above' if over > 0 else 'below'} the prediction; {device}"
            bound = summary["costs"]["latency"]["bound"]
            if bound is not None and measured["median"] > bound:
                device = f"{measured['median'] / bound - 1:.1%} OVER THE BOUND, {device}"
        if measured["slowdown"] > NOTABLE_SLOWDOWN:
            device += f"; other work slowed it {measured['slowdown']:.1f} x, which is taken out"
        rows += [
            (
                "latency, measured",
                _figure(measured["median"], measured["unit"], (high - low) / 2 / measured["median"]),
                device,
            )
        ]
    else:
        rows += [("latency, measured", "not here", "the latency table is of another device")]
    lines += ["", *(f"{name:20} {figure:20} {note}".rstrip() for name, figure, note in rows)]
    lines += ["", f"run folder: {summary['run_dir']}", "next:", *(f"  {command}" for command in summary["next"])]
    return "\n".join(lines)


def architecture_lines(choices, nodes):
    """An architecture for people: a line a decision, and one for all edges that a node keeps."""
    node_of = {edge: node.name for node in nodes for edge in node.edges}
    shown = {}
    for name, option in choices.items():
        node = node_of.get(name)
        edge = name if node is None else f"{name.removeprefix(node).strip('_')} {option}"
        shown.setdefault(node or name, []).append(option if node is None else edge)
    width = max(map(len, shown), default=0)
    return [f"  {name:{width}}  {', '.join(options)}" for name, options in shown.items()]


def _figure(value, unit, relative_error):
    error = " ± unknown" if relative_error is None else f" ± {relative_error:.1%}" if relative_error else ""
    return f"{value:.4g} {unit}{error}"
