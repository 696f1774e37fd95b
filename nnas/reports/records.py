"""The files of a run as one value, and what reports take from it."""

from dataclasses import dataclass, replace
from pathlib import Path

from nnas.costs import load_costs
from nnas.errors import NnasError
from nnas.files import parse_json, read_bytes, read_json, read_yaml
from nnas.rundir import RunFolder
from nnas.space import Architecture, are_chosen

MOST_SAMPLES = 400_000  # architectures that were judged; more are left out, the earliest first


@dataclass(frozen=True)
class Run:
    """config, decisions, inputs, summary: as in the files; None or empty where there is none yet. costs: {constraint:
    Costs}. records: of metrics.jsonl. architecture: Architecture or None."""

    path: Path
    config: dict
    decisions: list
    costs: dict
    inputs: dict
    records: list
    architecture: Architecture
    summary: dict

    @property
    def measured(self):
        """The measured latency, as in summary.json, or None."""
        return (self.summary or {}).get("measured_latency")

    @property
    def predictions(self):
        """{constraint: {predicted, predicted_error, unit, bound}}, of summary.json, or as far as known."""
        if self.summary:
            return self.summary["costs"]
        if not self.architecture:
            return {}
        return {
            name: {"predicted": one["value"], "predicted_error": one.get("error"), "unit": one["unit"], "bound": None}
            for name, one in self.architecture.predicted.items()
        }

    @property
    def device(self):
        """The device that the latency is of, in words, or None."""
        if self.measured:
            return self.measured["device"]
        for costs in self.costs.values():
            device = (costs.description or {}).get("device")
            if device:
                return ", ".join(str(device[key]) for key in ("processor", "backend") if key in device)
        return None

    def epochs(self, *phases):
        """The records of epochs of these phases."""
        return [record for record in self.records if record["phase"] in phases and "epoch" in record]


def load_run(path):
    """The Run of a folder, finished or not; NnasError where it is none."""
    folder = RunFolder(path)
    if not folder.config.exists():
        raise NnasError(f"run_dir={path}: it is no run folder: it has no {folder.config.name}")
    space = read_json(folder.space, "the space of a run") if folder.space.exists() else {"decisions": []}
    return Run(
        path=Path(path),
        config=read_yaml(folder.config, "the configuration of a run"),
        decisions=space["decisions"],
        costs=load_costs(folder.costs) if folder.costs.exists() else {},
        inputs=read_json(folder.inputs, "what a run reads") if folder.inputs.exists() else {},
        records=folder.records(),
        architecture=Architecture.load(folder.architecture) if folder.architecture.exists() else None,
        summary=read_json(folder.summary, "the summary of a run") if folder.summary.exists() else None,
    )


def judged(run):
    """The different architectures that a search judged, as {choices, accuracy, costs, times}; accuracy: the mean over
    the times, each on one minibatch of validation samples with the shared weights of that time."""
    path = RunFolder(run.path).samples
    if not path.exists():
        return []
    what, found, count = "the samples of a run", {}, 0
    names = [decision["name"] for decision in run.decisions]
    options = [decision["options"] for decision in run.decisions]
    for line in reversed(read_bytes(path, what).split(b"\n")[:-1]):
        columns = parse_json(line, path, what)
        for place, numbers in enumerate(columns["choices"]):
            one = found.setdefault(
                tuple(numbers),
                {
                    "choices": {
                        name: those[number]
                        for name, those, number in zip(names, options, numbers, strict=True)
                        if number is not None
                    },
                    "costs": {name: costs[place] for name, costs in columns["cost"].items()},
                    "accuracy": 0.0,
                    "times": 0,
                },
            )
            one["times"] += 1
            one["accuracy"] += (columns["accuracy"][place] - one["accuracy"]) / one["times"]
        count += len(columns["choices"])
        if count >= MOST_SAMPLES:
            break
    return list(found.values())


def front(points):
    """Of (cost, accuracy) pairs those that no other one equals or beats in both, by rising cost."""
    found = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or accuracy > found[-1][1]:
            found.append((cost, accuracy))
    return found


def blocks(run, constraint):
    """The parts of the found network in order, as {block, option, cost, others}; option: '' of what is no choice.

    others: {option: cost} of what was not chosen. Costs are in the unit of the constraint and add up to the prediction;
    a decision whose option costs nothing stands there with 0."""
    costs, choices = run.costs[constraint], run.architecture.choices
    slots = []
    for term in costs.terms:
        name, is_choice, option = term.label.partition(": ")[2].rpartition(" = ")
        block = name if is_choice else option
        option = option if is_choice else ""
        same = slots and slots[-1]["block"] == block and option not in slots[-1]["options"]
        if not (is_choice and same):
            slots.append({"block": block, "options": {}, "chosen": None})
        slot = slots[-1]
        slot["options"][option] = costs.factor * term.cost
        if are_chosen(term.when, choices):
            slot["chosen"] = option
    there = {slot["block"] for slot in slots if slot["chosen"] is not None}
    found, seen = [], {}
    for slot in slots:
        block, options, chosen = slot["block"], slot["options"], slot["chosen"]
        if chosen is None:
            if block in there or block not in choices:
                continue
            there.add(block)
            chosen = choices[block]
        seen[block] = seen.get(block, 0) + 1
        found.append(
            {
                "block": block if seen[block] == 1 else f"{block} ({seen[block]})",
                "option": chosen,
                "cost": options.get(chosen, 0.0),
                "others": {option: cost for option, cost in options.items() if option != chosen},
            }
        )
    return found


def cost_of(run, constraint, decision):
    """What the option of a decision costs at all its sites, in the unit of the constraint."""
    costs = run.costs[constraint]
    own = tuple(term for term in costs.terms if decision in dict(term.when))
    return replace(costs, terms=own).cost(run.architecture.choices)


def title(run):
    """What was searched or trained, on what, for which device, in words."""
    command = run.config.get("command")
    space = (run.config.get("space") or {}).get("name") or (run.summary or {}).get("space") or "a space"
    how = ((run.config.get("searcher") or {}).get("_target_") or "").rpartition(".")[2]
    data = (run.inputs.get("data") or {}).get("kind")
    words = [f"{space} searched by {how}" if command == "search" and how else f"an architecture of {space} trained"]
    words += [f"on {data}"] if data else []
    words += [f"for {run.device}"] if run.device else []
    return " ".join(words)
