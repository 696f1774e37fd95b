"""The commands on the files of runs alone: `report`, `status`, `compare`."""

from omegaconf import OmegaConf

from nnas.reports.comparison import checked_reference, compare
from nnas.reports.report import write_report
from nnas.reports.status import status_text
from nnas.rundir import RunFolder, holder


def report(config, terminal):
    """Write the report of a run, finished or not."""
    terminal.say(f"report: {write_report(str(config.run_dir))}")


def status(config, terminal):
    """Say where a run stands."""
    run = RunFolder(str(config.run_dir))
    terminal.say(status_text(run.path, holder(run) if run.path.is_dir() else None))


def compare_runs(config, terminal):
    """Compare runs, in a table for the terminal and a page."""
    settings = OmegaConf.to_container(config)
    runs = settings["runs"] if isinstance(settings["runs"], list) else [settings["runs"]]
    reference = checked_reference(settings["reference"])
    text, page = compare([str(one) for one in runs], str(settings["folder"] or runs[0]), reference)
    terminal.say(f"{text}\n\ncomparison: {page}")
