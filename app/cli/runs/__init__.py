"""`runwarden runs`: listing, showing, starting, waiting for and exporting runs, and what they did."""

from typing import Final

import click

from app.cli.options import CommandGroup

_COMMANDS: Final = {
    "list": ("app.cli.runs.listing:list_runs", "List runs, newest first."),
    "view": ("app.cli.runs.results:view", "Show a run: fields, timeline and turns."),
    "start": ("app.cli.runs.start:start", "Start a run."),
    "continue": ("app.cli.runs.start:continue_run", "Continue a run's conversation."),
    "retry": ("app.cli.runs.retry:retry", "Retry failed runs."),
    "wait": ("app.cli.runs.wait:wait", "Wait until runs have ended."),
    "log": ("app.cli.runs.log:log", "Print what a turn's agent printed."),
    "diff": ("app.cli.runs.changes:diff", "Print what a run changed, as a patch."),
    "review": ("app.cli.runs.changes:review", "Print what a run found."),
    "apply": ("app.cli.runs.changes:apply", "Apply what a run changed to a checkout."),
    "checkout": ("app.cli.runs.changes:checkout", "Check a run's branch out in a new folder."),
    "cancel": ("app.cli.runs.results:cancel", "Cancel a run that is queued or working."),
    "open": ("app.cli.runs.results:open_", "Open a run in the browser."),
    "sync": ("app.cli.runs.sync:sync", "Fetch the history that is missing."),
    "export": ("app.cli.runs.listing:export", "Export runs that match to a file."),
    "show": ("app.cli.runs.results:show", ""),
}


@click.group(cls=CommandGroup, elsewhere=_COMMANDS)
def runs() -> None:
    """List, start, continue, retry and wait for runs; show and apply what they did."""
