"""`runwarden actions list` and `actions export`: the ledger by kind, state, time and author."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args
from urllib.parse import unquote

import click

from app.cli.context import Invocation
from app.cli.exits import Exit
from app.cli.option_values import as_last_moment, as_moment
from app.cli.options import COUNT, OUT_OPTION, FactCommand, async_command
from app.cli.output import Format
from app.cli.output.documents import action_document, state_text
from app.cli.output.table import Column
from app.run_document import as_received
from app.times import exact_ago, rfc3339
from storage.records import Action, ActionFilter, ActionKind, ActionState, Surface
from storage.values import utc_now

if TYPE_CHECKING:
    from storage.ledger import Ledger

CHUNK: Final = 500
"""Actions per query of an export."""
TONES: Final = {"confirmed": "good", "rejected": "bad", "unknown": "warn", "sending": "busy", "not_sent": "dim"}

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--state", "states", multiple=True, type=click.Choice(get_args(ActionState)), help="Repeatable."),
    click.option("--kind", "kinds", multiple=True, type=click.Choice(get_args(ActionKind)), help="Repeatable."),
    click.option("--surface", "surfaces", multiple=True, type=click.Choice(get_args(Surface)), help="Repeatable."),
    click.option("--actor", metavar="NAME", help="Who asked: a login name, or NAME@HOST."),
    click.option(
        "--from", "since", callback=as_moment, metavar="TIME", help="Asked for then or later: RFC 3339, -2h, -7d."
    ),
    click.option("--to", "until", callback=as_last_moment, metavar="TIME", help="Asked for then or earlier."),
)


def filter_options(function: F) -> F:
    """Add the options that `list` and `export` share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("list", cls=FactCommand, short_help="List writes, newest first.")
@filter_options
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of actions.")
@async_command
async def list_actions(invocation: Invocation, /, *, limit: int, **filters: Any) -> int:
    """List writes, newest first; does not contact the service."""
    async with invocation.ledger() as ledger:
        found = await ledger.matching(ActionFilter(**filters), limit)
    now = utc_now()
    columns: tuple[Column[Action], ...] = (
        Column("state", state_text, "state", lambda a: a.state, tone=lambda a: TONES.get(a.state, "")),
        Column("kind", lambda a: a.kind, "kind"),
        Column("subject", subject, "subject", flexible=True),
        Column("asked", lambda a: exact_ago(a.created_at, now), "created_at", lambda a: rfc3339(a.created_at)),
        Column("made", lambda a: a.result_id or "", "result_id", flexible=True),
        Column("action", lambda a: a.action_id, "action_id"),
    )
    entries = [action_document(action) for action in found]
    invocation.output.listing("actions", entries, found, columns, empty="No write matches.")
    return Exit.DONE


@click.command("export", cls=FactCommand, short_help="Export the writes that match, as an audit.")
@filter_options
@OUT_OPTION
@async_command
async def export(invocation: Invocation, /, *, out: Path | None, **filters: Any) -> int:
    """Export the writes that match, newest first, as NDJSON unless --output says otherwise.

    Each says who asked, on which machine and by which part of the program, when, what for, which service it went to,
    and what became of it. Does not contact the service.
    """
    invocation.asked_format = invocation.asked_format or Format.NDJSON
    async with invocation.ledger() as ledger:
        with invocation.exporting(out, "actions", COLUMNS) as rows:
            async for found in _pages(ledger, ActionFilter(**filters)):
                steps = [await _steps(ledger, action) for action in found]
                entries = [{**action_document(action), "steps": its} for action, its in zip(found, steps, strict=True)]
                rows.add(entries, found)
                rows.flush()
            rows.end()
    return Exit.DONE


async def _pages(ledger: "Ledger", wanted: ActionFilter) -> AsyncIterator[tuple[Action, ...]]:
    last: str | None = None
    while found := await ledger.matching(wanted, CHUNK, last):
        yield found
        last = found[-1].action_id


async def _steps(ledger: "Ledger", action: Action) -> list[dict[str, object]]:
    """The steps of the action, with their authors, oldest first."""
    return [
        {
            "at": rfc3339(step.at),
            "step": step.transition,
            "detail": step.detail,
            "user": step.author.user,
            "host": step.author.host,
            "surface": step.author.surface,
        }
        for step in await ledger.audit(action.action_id)
    ]


def subject(action: Action) -> str:
    """The subject of the write, in a few words."""
    if action.subject:
        return action.subject
    if action.kind == "agent.start":
        return unquote(action.path.split("/")[-2])
    body = as_received(action.body_json)
    return str(body.get("project_path") or body.get("project_id") or body.get("instructions") or action.path)


def _of(read: Callable[[Action], object]) -> Callable[[Action], str]:
    return lambda action: str(read(action) or "")


_FACTS: Final[tuple[tuple[str, Callable[[Action], object]], ...]] = (
    ("created_at", lambda a: rfc3339(a.created_at)),
    ("user", lambda a: a.author.user),
    ("host", lambda a: a.author.host),
    ("surface", lambda a: a.author.surface),
    ("actor", lambda a: a.actor),
    ("kind", lambda a: a.kind),
    ("subject", subject),
    ("base_url", lambda a: a.base_url),
    ("path", lambda a: a.path),
    ("body", lambda a: a.body_json),
    ("state", lambda a: a.state),
    ("resolution", lambda a: a.resolution),
    ("result_id", lambda a: a.result_id),
    ("error", lambda a: a.error and a.error.kind),
    ("http_status", lambda a: a.error and a.error.http_status),
    ("message", lambda a: a.error and a.error.message),
    ("sending_at", lambda a: rfc3339(a.sending_at)),
    ("settled_at", lambda a: rfc3339(a.settled_at)),
    ("key", lambda a: a.key),
    ("superseded_by", lambda a: a.superseded_by),
    ("action_id", lambda a: a.action_id),
)
COLUMNS: Final = tuple(Column(name, _of(read), name) for name, read in _FACTS)
