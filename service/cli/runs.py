"""`run`: a run's turns, their logs and diffs; cancelling and deleting one."""

from typing import TYPE_CHECKING, Literal

import click

from service.cli.deletion import delete_run
from service.cli.output import AdminContext, admin_command
from service.clock import now_micros, rfc3339
from service.setup import SetupError
from service.store import postings, runs, turns
from service.store.results import TurnResults
from service.store.runs import Run
from service.store.turns import Turn

if TYPE_CHECKING:
    from sqlalchemy import Connection


class _RunGroup(click.Group):
    """A group for which `run ID` means `run show ID`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = args[0] in self.commands
        return super().resolve_command(ctx, args if named else ["show", *args])


@click.group("run", cls=_RunGroup)
def run() -> None:
    """Show a run's turns, its log or its diff (`run ID`); cancel or delete a run."""


run.add_command(delete_run)


@run.command("cancel")
@click.argument("run_id")
@admin_command
def cancel(admin: AdminContext, run_id: str) -> None:
    """End an active run as failed; what works on it is interrupted, and nothing of it is pushed."""
    with admin.change("run.cancel") as change:
        found = _found(change.connection, run_id)
        change.target, change.organization_id = run_id, found.organization_id
        if not turns.cancel(change.connection, run_id, "cancelled by the operator", now_micros()):
            raise SetupError(f"the run {run_id} has ended already: it is {found.status}")
        ended = _found(change.connection, run_id)
    admin.show({"run_id": run_id, "status": ended.status}, [f"{run_id}  {ended.status}: cancelled"])


def _found(connection: "Connection", run_id: str) -> Run:
    found = runs.by_id(connection, run_id)
    if found is None:
        raise SetupError(f"there is no run {run_id!r} in this service; list them with: runwarden runs list")
    return found


@run.command("show")
@click.argument("run_id")
@click.option("--log", "what", flag_value="log", help="What happened, turn by turn.")
@click.option("--diff", "what", flag_value="diff", help="What each turn committed.")
@click.option("--turn", "number", type=click.IntRange(1), help="This turn alone.")
@admin_command
def show(admin: AdminContext, run_id: str, what: Literal["log", "diff"] | None, number: int | None) -> None:
    """Show a run's turns, its log or its diff."""
    with admin.read() as connection:
        run = _found(connection, run_id)
        found = [turn for turn in turns.of(connection, run_id) if number in {None, turn.number}]
        posted = [one.document() for one in postings.of_run(connection, run_id)]
        if not found:
            raise SetupError(f"the run {run_id} has no turn {number}; it has {run.turn}")
        results = TurnResults(admin.folder)
        keys = [(turn.run_id, turn.number) for turn in found]
        kept = [] if what is None else [results.text_here(connection, key, what) for key in keys]
    documents = [_document(turn) for turn in found]
    texts = [_line(turn) for turn in found]
    if what is not None:
        documents = [one | {what: text} for one, text in zip(documents, kept, strict=True)]
        texts = [text or _absence(turn, what) for turn, text in zip(found, kept, strict=True)]
    head = {"run_id": run.id, "status": run.status, "branch_name": run.branch, "agent": run.agent}
    if what is None:
        texts += [f"{one['kind']}  {one['state']}  {one['url'] or ''}  {one['reason'] or ''}" for one in posted]
    admin.show(head | {"turns": documents, "postings": posted}, texts)


def _absence(turn: Turn, what: str) -> str:
    kept = "nothing changed, it was pruned, or it is kept on the worker's machine"
    reason = "not executed yet" if turn.attempt == 0 else kept
    return f"turn {turn.number}  {turn.status}: no {what} here ({reason})"


def _document(turn: Turn) -> dict[str, object]:
    return {
        "turn": turn.number,
        "status": turn.status,
        "attempt": turn.attempt,
        "commit": turn.commit_sha,
        "summary": turn.summary,
        "failure": turn.failure,
        "outcome": turn.outcome,
        "reason": turn.reason,
        "caller": turn.caller,
        "finished_at": None if turn.finished_at is None else rfc3339(turn.finished_at),
    }


def _line(turn: Turn) -> str:
    state = turn.outcome or turn.status
    return f"turn {turn.number}  {state}  {turn.commit_sha or '-'}  {turn.reason or turn.summary or ''}"
