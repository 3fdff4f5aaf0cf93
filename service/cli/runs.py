"""`run`: what the API does not tell of a run, its log and its diff."""

from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import rfc3339
from service.setup import SetupError
from service.store import runs, turns
from service.store.turns import Turn


@click.command("run")
@click.argument("run_id")
@click.option("--log", "what", flag_value="log", help="What happened, turn by turn.")
@click.option("--diff", "what", flag_value="diff", help="What each turn committed.")
@administers
def command(desk: Desk, run_id: str, what: str | None) -> None:
    """Show a run's turns, its log or its diff."""
    with desk.read() as connection:
        run = runs.by_id(connection, run_id)
        found = turns.of(connection, run_id)
    if run is None:
        raise SetupError(f"there is no run {run_id!r} in {desk.folder.root}")
    documents = [_document(turn) for turn in found]
    if what is None:
        texts = [_line(turn) for turn in found]
    else:
        name = desk.folder.turn_log if what == "log" else desk.folder.turn_diff
        files = [name(run_id, turn.number) for turn in found]
        texts = [file.read_text("utf-8", "replace").rstrip("\n") if file.exists() else "" for file in files]
        documents = [one | {what: text} for one, text in zip(documents, texts, strict=True)]
    head = {"run_id": run.id, "status": run.status, "branch_name": run.branch, "agent": run.agent}
    desk.show(head | {"turns": documents}, texts)


def _document(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "status": turn.status,
        "attempt": turn.attempt,
        "commit": turn.commit_sha,
        "summary": turn.summary,
        "failure": turn.failure,
        "finished_at": None if turn.finished_at is None else rfc3339(turn.finished_at),
    }


def _line(turn: Turn) -> str:
    return f"turn {turn.number}  {turn.status}  {turn.commit_sha or '-'}  {turn.failure or turn.summary or ''}"
