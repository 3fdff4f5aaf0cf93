"""`runwarden runs`: listing, showing, starting, waiting for and exporting runs, and their results."""

from typing import Final

from app.cli.options import CommandGroup

_COMMANDS: Final = {
    "list": ("app.runs.command_list:list_runs", "List runs, newest first."),
    "view": ("app.results.command_results:view", "Show a run: fields, timeline and turns."),
    "start": ("app.actions.command_start:start", "Start a run."),
    "continue": ("app.actions.command_start:continue_run", "Continue a run's conversation."),
    "say": ("app.actions.command_start:say", "Say something to an active run."),
    "retry": ("app.actions.command_many:retry", "Retry failed runs."),
    "wait": ("app.runs.command_wait:wait", "Wait until runs have ended."),
    "events": ("app.runs.command_wait:events", "Print changes of status as they are seen."),
    "log": ("app.results.command_results:log", "Print the log of a turn."),
    "diff": ("app.results.command_changes:diff", "Print a run's change as a patch."),
    "review": ("app.results.command_changes:review", "Print a run's review."),
    "artifacts": ("app.results.command_changes:artifacts", "List or save the files that a run's agent left."),
    "apply": ("app.results.command_changes:apply", "Apply a run's change to a checkout."),
    "checkout": ("app.results.command_changes:checkout", "Check a run's branch out in a new folder."),
    "cancel": ("app.actions.command_many:cancel", "Cancel runs that are queued or working."),
    "open": ("app.results.command_results:open_", "Open a run in the browser."),
    "sync": ("app.runs.command_wait:sync", "Fetch the history that is missing."),
    "export": ("app.runs.command_list:export", "Export runs that match to a file."),
    "show": ("app.results.command_results:show", ""),
}


runs = CommandGroup(
    "runs", elsewhere=_COMMANDS, help="List, start, continue, retry and wait for runs; show and apply their results."
)
