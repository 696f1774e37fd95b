"""The commands on the files of runs alone: `report`."""

from nnas.reports.report import write_report


def report(config, terminal):
    """Write the report of a run, finished or not."""
    terminal.say(f"report: {write_report(str(config.run_dir))}")
