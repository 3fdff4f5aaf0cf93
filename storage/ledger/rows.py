"""A row of the ledger as an action."""

import sqlite3
from typing import Any, Final

from storage.records import Action, ActionError
from storage.times import from_us, from_us_or_none

COLUMNS: Final = (
    "action_id, kind, subject, key, path, body_json, actor, state, created_us, sending_us, settled_us,"
    " error_kind, error_message, error_status, error_code, response_json, result_id, resolution, superseded_by"
)


def select(connection: sqlite3.Connection, rest: str, parameters: tuple[str | int, ...] = ()) -> tuple[Action, ...]:
    """The actions that the rest of a SELECT (WHERE, ORDER BY, LIMIT) picks."""
    found = connection.execute(f"SELECT {COLUMNS} FROM actions {rest}", parameters)  # noqa: S608 — built from constants; values are bound
    names = [description[0] for description in found.description]
    return tuple(_action(dict(zip(names, values, strict=True))) for values in found.fetchall())


def by_id(connection: sqlite3.Connection, action_id: str) -> Action | None:
    """The action with exactly this id; None: there is none."""
    return next(iter(select(connection, "WHERE action_id = ?", (action_id,))), None)


def _action(row: dict[str, Any]) -> Action:
    return Action(
        action_id=row["action_id"],
        kind=row["kind"],
        subject=row["subject"],
        key=row["key"],
        path=row["path"],
        body_json=row["body_json"],
        actor=row["actor"],
        state=row["state"],
        created_at=from_us(row["created_us"]),
        sending_at=from_us_or_none(row["sending_us"]),
        settled_at=from_us_or_none(row["settled_us"]),
        error=_error(row),
        response_json=row["response_json"],
        result_id=row["result_id"],
        resolution=row["resolution"],
        superseded_by=row["superseded_by"],
    )


def _error(row: dict[str, Any]) -> ActionError | None:
    # What made it unknown is no reason any more, once it is known to be done.
    if row["error_kind"] is None or row["state"] == "confirmed":
        return None
    return ActionError(
        kind=row["error_kind"],
        message=row["error_message"],
        http_status=row["error_status"],
        error_code=row["error_code"],
    )
