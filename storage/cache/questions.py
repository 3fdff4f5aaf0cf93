"""What failed runs are about, as the service told it last: what agents ask, and which runs were cancelled."""

import json
import sqlite3
from typing import Final

from storage.cache.coverage import noted
from storage.database import immediate
from storage.records.results import FailureFacts, OpenQuestion
from storage.values import sqlite_text

DUE: Final = "questions_due"


def due(connection: sqlite3.Connection) -> int:
    """A number if runs failed since the facts were stored, larger with each such change; 0: none did."""
    return noted(connection, DUE) or 0


def store(connection: sqlite3.Connection, told: FailureFacts, asked_for: int) -> None:
    """Replace the facts; further ones are due only if runs failed since `due` returned `asked_for`."""
    rows = [(sqlite_text(one.run_id), sqlite_text(one.question), json.dumps(one.choices)) for one in told.questions]
    with immediate(connection):
        connection.execute("DELETE FROM questions")
        connection.executemany("INSERT OR REPLACE INTO questions VALUES (?, ?, ?)", rows)
        connection.execute("DELETE FROM cancelled")
        cancelled = [(sqlite_text(run_id),) for run_id in told.cancelled]
        connection.executemany("INSERT OR IGNORE INTO cancelled VALUES (?)", cancelled)
        connection.execute("DELETE FROM notes WHERE name = ? AND value = ?", (DUE, asked_for))


def of_failed_runs(connection: sqlite3.Connection) -> dict[str, OpenQuestion]:
    """The questions by their runs, without runs that went on since."""
    found = connection.execute(
        "SELECT q.run_id, q.question, q.choices_json FROM questions AS q JOIN runs AS r"
        " ON r.run_id = q.run_id WHERE r.status = 'failed'"
    )
    return {run_id: OpenQuestion(run_id, question, tuple(json.loads(choices))) for run_id, question, choices in found}


def note_cancelled(connection: sqlite3.Connection, run_id: str) -> None:
    """Store that a run was cancelled from here; what the service tells replaces it."""
    with immediate(connection):
        connection.execute("INSERT OR IGNORE INTO cancelled VALUES (?)", (sqlite_text(run_id),))


def cancelled_runs(connection: sqlite3.Connection) -> frozenset[str]:
    """The runs that somebody cancelled, without those that went on since."""
    sql = "SELECT run_id FROM cancelled JOIN runs USING (run_id) WHERE runs.status = 'failed'"
    return frozenset(run_id for (run_id,) in connection.execute(sql))
