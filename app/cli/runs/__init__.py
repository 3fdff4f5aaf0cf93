"""`runwarden runs`: listing, showing, starting, waiting for and exporting runs, and what they did."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from app.api.errors import ApiError
from app.cli.context import Invocation
from app.cli.documents import RunDocument, action_document, badge, views
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Format, Output
from app.text import safe_block
from app.times import exact_ago, rfc3339, span
from storage.records import Action

if TYPE_CHECKING:
    from app.engine import Engine


_COMMANDS: Final = {
    "list": ("app.cli.runs.listing:list_runs", "List runs, newest first."),
    "show": ("app.cli.runs:show", "Show one run: fields, timeline, what was sent from here."),
    "start": ("app.cli.runs.start:start", "Start a run."),
    "continue": ("app.cli.runs.start:continue_run", "Continue a run's conversation."),
    "retry": ("app.cli.runs.retry:retry", "Try failed runs again."),
    "wait": ("app.cli.runs.wait:wait", "Wait until runs have ended."),
    "view": ("app.cli.runs.results:view", "Show a run turn by turn."),
    "log": ("app.cli.runs.log:log", "Print what a turn's agent printed."),
    "diff": ("app.cli.runs.changes:diff", "Print what a run changed, as a patch."),
    "review": ("app.cli.runs.changes:review", "Print what a run found."),
    "apply": ("app.cli.runs.changes:apply", "Apply what a run changed to a checkout."),
    "checkout": ("app.cli.runs.changes:checkout", "Check a run's branch out in a new folder."),
    "cancel": ("app.cli.runs.results:cancel", "Cancel a run that is queued or working."),
    "open": ("app.cli.runs.results:open_", "Open a run in the browser."),
    "sync": ("app.cli.runs.sync:sync", "Fetch the history that is missing."),
    "export": ("app.cli.runs.listing:export", "Write every run that matches to a file."),
}


@click.group(cls=CommandGroup, elsewhere=_COMMANDS)
def runs() -> None:
    """List, show, start, continue, retry, wait for and export runs, and take over what they did."""


@click.command("show", cls=FactCommand)
@click.argument("run_id")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def show(invocation: Invocation, *, run_id: str, cached: bool) -> int:
    """Show one run as the list has it: its fields, its observed timeline, and the instructions sent from here.

    What it did, turn by turn, is `runs view`. RUN_ID may be abbreviated, as long as it is unique.
    """
    async with invocation.engine(needs_token=not cached) as engine:
        asked_at = engine.clock()
        view = await _view(engine, run_id, cached=cached)
        said = await engine.ledger.for_run(view.run.run_id)
    # If the service did not show the run just now, the facts are those of the last time it did.
    is_live = view.presence == "lost" or (view.detail is not None and view.detail.last_seen_at >= asked_at)
    document = {
        "run": view.document(),
        "conversation": [_turn(action) for action in said],
        "as_of": rfc3339(view.detail.last_seen_at if view.detail else view.now - view.ahead),
        "source": "live" if is_live and not cached else "cache",
    }
    output = invocation.output
    output.record(document, _pairs(view, for_people=output.format is Format.TABLE))
    _tell_story(output, view, said)
    if output.format is Format.TABLE and not is_live and not cached:
        output.note("The service did not show this run just now: it is as it was last seen.")
    return Exit.DONE


async def _view(engine: "Engine", run_id: str, *, cached: bool) -> RunDocument:
    from app.cli.runs.listing import CACHED_HINT
    from app.cli.runs.lookup import RunLookup

    lookup = RunLookup(engine)
    try:
        run = await lookup.cached(run_id) if cached else await lookup.current(run_id)
    except ApiError as error:
        raise CommandFailedError(of_api_error(error, hint=CACHED_HINT)) from error
    return (await views(engine, [run]))[0]


def _pairs(view: RunDocument, *, for_people: bool) -> list[tuple[str, str]]:
    run = view.run
    pairs = [
        ("run_id", run.run_id),
        ("status", badge(run.status) if for_people else run.status),
        ("repository", run.repository.label),
        ("branch_name", run.branch_name),
        ("created_at", rfc3339(run.created_at) or "unreadable"),
        ("updated_at", rfc3339(run.updated_at) or "unreadable"),
        ("took", view.took),
        ("state", view.presence + (", stuck" if view.is_stuck else "")),
    ]
    if view.detail:
        seen_at = view.detail.last_seen_at
        ago = exact_ago(seen_at + view.ahead, view.now)
        pairs.append(("last seen", ago) if for_people else ("last_seen_at", rfc3339(seen_at) or ""))
    if view.continues:
        pairs.append(("continues", view.continues))
    return pairs


def _turn(action: Action) -> dict[str, object]:
    return {**action_document(action), "instructions": json.loads(action.body_json).get("instructions")}


def _tell_story(output: Output, view: RunDocument, said: Sequence[Action]) -> None:
    if output.format is not Format.TABLE:
        return
    transitions = view.detail.transitions if view.detail else ()
    if transitions:
        output.text("")
        output.text("timeline, as observed")
    ends = [each.at for each in transitions[1:]] + [view.now]
    for each, end in zip(transitions, ends, strict=True):
        took = span((end - each.at).total_seconds(), pads_hours=False)
        lasted = "" if view.detail and each.new in view.detail.final_statuses and end is view.now else f" for {took}"
        output.text(f"  {rfc3339(each.at)}  {badge(each.new)}{lasted}")
    if said:
        output.text("")
        output.text("conversation, as sent from here")
    for action in said:
        output.text(f"  {rfc3339(action.created_at)}  {action.kind}  {action.state}  {action.action_id}")
        for line in safe_block(json.loads(action.body_json).get("instructions") or ""):
            output.text(f"    {line}")
