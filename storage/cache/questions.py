"""The service's last report on failed runs: their agents' questions, and cancelled runs."""

import json
import sqlite3
from collections.abc import Collection
from typing import Final

from storage.cache.coverage import load_note
from storage.cache.run_sql import RANK
from storage.database import execute
from storage.records import CANCELLED
from storage.records.results import FailureFacts, OpenQuestion

QUESTIONS_DUE: Final = "questions_due"
ADD_TO_STATUS: Final = """
INSERT INTO statuses (status, runs, is_final) VALUES (?, ?, ?)
ON CONFLICT (status) DO UPDATE SET runs = runs + excluded.runs
"""
"""Changes the number of runs with a status; binds the status, by how much, and whether a new status is final."""


def due(connection: sqlite3.Connection) -> int:
    """A number if runs failed since the facts were stored, larger with each such change; 0: none did."""
    return load_note(connection, QUESTIONS_DUE) or 0


def store(connection: sqlite3.Connection, facts: FailureFacts, asked_for: int) -> tuple[str, ...]:
    """Replace the facts, and return the ids of the runs that became `cancelled`.

    Further facts are due only if runs failed since `due` returned `asked_for`.
    """
    connection.execute("DELETE FROM questions")
    for open_question in facts.questions:
        values = open_question.run_id, open_question.question, json.dumps(open_question.choices)
        execute(connection, "INSERT OR REPLACE INTO questions VALUES (?, ?, ?)", *values)
    connection.execute("DELETE FROM notes WHERE name = ? AND value = ?", (QUESTIONS_DUE, asked_for))
    return mark_cancelled(connection, facts.cancelled)


def of_failed_runs(connection: sqlite3.Connection) -> dict[str, OpenQuestion]:
    """The questions by run, without runs that continued since."""
    rows = connection.execute(
        "SELECT q.run_id, q.question, q.choices_json FROM questions AS q JOIN runs AS r"
        " ON r.run_id = q.run_id WHERE r.status = 'failed'"
    )
    return {run_id: OpenQuestion(run_id, question, tuple(json.loads(choices))) for run_id, question, choices in rows}


def mark_cancelled(connection: sqlite3.Connection, run_ids: Collection[str]) -> tuple[str, ...]:
    """Set the status of failed runs among these to `cancelled`, within a transaction; return their ids."""
    failed = "SELECT id, run_id FROM runs WHERE status = 'failed' AND run_id IN (SELECT value FROM json_each(?))"
    runs = execute(connection, failed, run_ids).fetchall()
    for number, _ in runs:
        values = CANCELLED, number
        execute(connection, "UPDATE runs SET status = ? WHERE id = ?", *values)
        last = "(SELECT max(id) FROM transitions WHERE run = ?2)"
        # The run was already marked as cancelled, and the service updated it afterwards.
        execute(connection, f"DELETE FROM transitions WHERE id = {last} AND old = ?1", *values)
        if not execute(connection, f"UPDATE transitions SET new = ?1 WHERE id = {last}", *values).rowcount:
            execute(connection, "UPDATE runs SET first_status = ? WHERE id = ?", *values)
        connection.execute(RANK, (number,))
    if runs:
        connection.executemany(ADD_TO_STATUS, [("failed", -len(runs), True), (CANCELLED, len(runs), True)])
    return tuple(run_id for _, run_id in runs)
