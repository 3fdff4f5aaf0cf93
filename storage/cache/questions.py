"""What agents ask: the service's open questions, as it told them last."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from storage.cache.coverage import noted
from storage.database import immediate
from storage.records.results import OpenQuestion
from storage.values import sqlite_text

DUE: Final = "questions_due"


def due(connection: sqlite3.Connection) -> int:
    """A number if runs failed since the questions were stored, larger with each such change; 0: none did."""
    return noted(connection, DUE) or 0


def store(connection: sqlite3.Connection, questions: Sequence[OpenQuestion], asked_for: int) -> None:
    """Replace the questions; further ones are due only if runs failed since `due` returned `asked_for`."""
    rows = [(sqlite_text(one.run_id), sqlite_text(one.question), json.dumps(one.choices)) for one in questions]
    with immediate(connection):
        connection.execute("DELETE FROM questions")
        connection.executemany("INSERT OR REPLACE INTO questions VALUES (?, ?, ?)", rows)
        connection.execute("DELETE FROM notes WHERE name = ? AND value = ?", (DUE, asked_for))


def of_failed_runs(connection: sqlite3.Connection) -> dict[str, OpenQuestion]:
    """The questions by their runs, without runs that went on since."""
    found = connection.execute(
        "SELECT q.run_id, q.question, q.choices_json FROM questions AS q JOIN runs AS r"
        " ON r.run_id = q.run_id WHERE r.status = 'failed'"
    )
    return {run_id: OpenQuestion(run_id, question, tuple(json.loads(choices))) for run_id, question, choices in found}
