"""Where a run stands, in words."""

from nnas.reports.records import load_run, title
from nnas.reports.words import duration, result

PHASES = {"search": "the search", "train": "the training"}


def status_text(path, holder):
    """Of a run folder. holder: the process that works in it, in words, or None."""
    run = load_run(path)
    if holder:
        state = f"running: {holder}"
    else:
        state = "finished" if run.summary else f"stopped, nobody works in it; nnas resume run_dir={path} goes on"
    lines = [title(run), f"state: {state}"]
    for section, done in (("search", run.epochs("warmup", "search")), ("train", run.epochs("train"))):
        planned = _planned(run.config.get(section))
        if planned:
            line = f"{PHASES[section]}: {len(done)} of {planned} epochs"
            if done and len(done) < planned:
                # Of the newest epochs, since a warm-up has others.
                newest = [record["seconds"] for record in done[-5:]]
                line += f", about {duration((planned - len(done)) * sum(newest) / len(newest))} more"
            lines.append(line)
    lines += _standing(run)
    lines.append(result(run))
    return "\n".join(lines)


def _planned(section):
    numbers = [(section or {}).get(key) for key in ("warmup_epochs", "epochs")]
    return sum(number for number in numbers if isinstance(number, int))


def _standing(run):
    """Lines on the best architecture of the newest epoch of a search."""
    newest = next((record for record in reversed(run.records) if "best_cost" in record), None)
    if newest is None:
        return []
    costs = ", ".join(
        f"{name} {cost:.4g} {run.costs[name].unit}" if name in run.costs else f"{name} {cost:.4g}"
        for name, cost in newest["best_cost"].items()
    )
    choices = run.architecture.choices if run.architecture else newest.get("best") or {}
    return [f"best after epoch {newest['epoch']}: {costs}", *(f"  {name}  {one}" for name, one in choices.items())]
