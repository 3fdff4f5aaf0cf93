"""Reading the ledger: one action, a selection, the newest with all counts, and the audit."""

import json
import sqlite3
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

from storage.database import column, execute, scalar
from storage.errors import AmbiguousActionError
from storage.records import Action, ActionFailure, ActionFilter, AuditEntry, Author
from storage.records.action import UnknownSpan
from storage.values import Where, among, from_us, from_us_or_none, sqlite_text, to_us

COLUMNS: Final = (
    "action_id, kind, subject, key, path, body_json, actor, state, created_us, sending_us, settled_us,"
    " error_kind, error_message, error_status, error_code, response_json, result_id, resolution, superseded_by,"
    " base_url, user, host, surface"
)
_RESOLVED: Final = (
    "CASE WHEN resolution IS NOT NULL THEN (SELECT json_array(at_us, audit.user, audit.host, audit.surface) FROM audit"
    " WHERE audit.action_id = actions.action_id AND transition IN"
    " ('resolved_created', 'resolved_not_created', 'sent_again') ORDER BY audit.seq DESC LIMIT 1) END AS resolved"
)
"""When and by whom, as the audit has it."""
PREFIX: Final = "act_"
_ANY: Final = ActionFilter()
_UNRESOLVED: Final = "state = 'unknown' AND resolution IS NULL"
"""Spelt as in the index `actions_unresolved`: only then does SQLite see that the index answers it."""
_TEXT: Final = (
    "folded(kind || ' ' || state || ' ' || subject || ' ' || path || ' ' || actor || ' ' || action_id || ' '"
    " || coalesce(result_id, '') || ' ' || coalesce(error_kind, '') || ' ' || coalesce(error_message, '') || ' '"
    " || coalesce(error_status, '') || ' ' || coalesce(error_code, '') || ' ' || body_json)"
)
"""The searchable text, the sent body included."""


def select(connection: sqlite3.Connection, clauses: str, *parameters: str | int | None) -> tuple[Action, ...]:
    """The actions that the rest of a SELECT (WHERE, ORDER BY, LIMIT) picks."""
    cursor = execute(connection, f"SELECT {COLUMNS}, {_RESOLVED} FROM actions {clauses}", *parameters)
    names = [description[0] for description in cursor.description]
    chosen: list[Action] = []
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        kind, message, status, code = (row.pop(f"error_{name}") for name in ("kind", "message", "status", "code"))
        # A confirmed action keeps the error from before it was resolved, which no longer matters.
        has_failed = kind is not None and row["state"] != "confirmed"
        resolved_us, *resolver = json.loads(row.pop("resolved") or "[null]")
        chosen.append(
            Action(
                created_at=from_us(row.pop("created_us")),
                sending_at=from_us_or_none(row.pop("sending_us")),
                settled_at=from_us_or_none(row.pop("settled_us")),
                error=ActionFailure(kind, message, status, code) if has_failed else None,
                author=Author(row.pop("user"), row.pop("host"), row.pop("surface")),
                resolved_at=from_us_or_none(resolved_us),
                resolved_by=Author(*resolver),
                **row,
            )
        )
    return tuple(chosen)


def action(connection: sqlite3.Connection, id_or_prefix: str) -> Action | None:
    """The action with this id, or the only one whose id begins like this, with or without `act_`; or None."""
    prefix = PREFIX + sqlite_text(id_or_prefix).strip().removeprefix(PREFIX).upper()
    matches = select(connection, "WHERE substr(action_id, 1, ?) = ? LIMIT 2", len(prefix), prefix)
    if len(matches) > 1:
        raise AmbiguousActionError(f"More than one action's id begins with {id_or_prefix}: give more of it.")
    return matches[0] if matches else None


def actions(
    connection: sqlite3.Connection, filters: ActionFilter = _ANY, limit: int = 100, before: str | None = None
) -> tuple[Action, ...]:
    """The newest matching actions older than the action `before`."""
    condition = _condition(connection, filters)
    if before is not None:
        condition &= Where("seq < (SELECT seq FROM actions WHERE action_id = ?)", (before,))
    return select(connection, f"WHERE {condition.sql} ORDER BY seq DESC LIMIT ?", *condition.parameters, limit)


def count(connection: sqlite3.Connection, wanted: ActionFilter) -> int:
    condition = _condition(connection, wanted)
    return int(scalar(connection, f"SELECT count(*) FROM actions WHERE {condition.sql}", *condition.parameters))


def _condition(connection: sqlite3.Connection, wanted: ActionFilter) -> Where:
    condition = (
        Where() & among("kind", wanted.kinds) & among("state", wanted.states) & among("surface", wanted.surfaces)
    )
    if wanted.actor is not None:
        names = "? IN (actor, user, user || '@' || host, substr(actor, instr(actor, ':') + 1))"
        condition &= Where(names, (wanted.actor,))
    for comparison, moment in (("created_us >= ?", wanted.since), ("created_us <= ?", wanted.until)):
        if moment is not None:
            condition &= Where(comparison, (to_us(moment),))
    if wanted.is_unresolved:
        condition &= Where(_UNRESOLVED)
    if wanted.words:
        connection.create_function("folded", 1, str.casefold, deterministic=True)
    for word in wanted.words:
        condition &= Where(f"instr({_TEXT}, ?) > 0", (word,))
    return condition


def unresolved_actions(connection: sqlite3.Connection) -> tuple[Action, ...]:
    """The newest actions of unknown outcome; 100 at most."""
    return actions(connection, ActionFilter(is_unresolved=True))


def for_run(connection: sqlite3.Connection, run_id: str) -> tuple[Action, ...]:
    """The starts and continuations that made the run or were meant for it, oldest first."""
    return select(
        connection,
        "WHERE kind IN ('run.start', 'run.continue', 'agent.start')"
        " AND (subject = ?1 OR (state = 'confirmed' AND result_id = ?1)) ORDER BY seq",
        run_id,
    )


def results(connection: sqlite3.Connection, keys: Collection[str]) -> dict[str, str]:
    """The ids of the results under these keys, by key; a longer key counts if it continues with `-`."""
    # Two ranges of the index `actions_key`: `.` follows `-`.
    sql = (
        "SELECT value, result_id FROM json_each(?) JOIN actions"
        " ON actions.key = value OR (actions.key > value || '-' AND actions.key < value || '.')"
        " WHERE state = 'confirmed' AND result_id IS NOT NULL ORDER BY seq DESC"
    )
    return dict(execute(connection, sql, keys).fetchall())


def run_ids(connection: sqlite3.Connection) -> frozenset[str]:
    """Ids of all runs that actions targeted or created."""
    results = "SELECT result_id FROM actions WHERE result_id IS NOT NULL"
    return frozenset(column(connection, f"{results} UNION SELECT subject FROM actions WHERE subject <> ''"))


def agents(connection: sqlite3.Connection) -> dict[str, str]:
    """The named agents started from here, by execution id, which may also be a run's id."""
    rows = connection.execute(
        "SELECT result_id, path FROM actions WHERE kind = 'agent.start' AND state = 'confirmed'"
        " AND result_id IS NOT NULL ORDER BY seq DESC LIMIT 10000"
    )
    return {run_id: unquote(path.split("/")[-2]) for run_id, path in rows.fetchall()}


def organizations(connection: sqlite3.Connection) -> tuple[Action, ...]:
    """All attempts to create an organization, newest first."""
    return select(connection, "WHERE kind = 'organization.create' ORDER BY seq DESC")


def steps(connection: sqlite3.Connection, action_id: str) -> tuple[AuditEntry, ...]:
    """The action's audit: every step, oldest first."""
    sql = "SELECT at_us, action_id, transition, detail, user, host, surface FROM audit WHERE action_id = ? ORDER BY seq"
    rows = execute(connection, sql, action_id)
    return tuple(
        AuditEntry(from_us(at_us), action_id, transition, detail, Author(*by))
        for at_us, action_id, transition, detail, *by in rows.fetchall()
    )


def unknown_spans(connection: sqlite3.Connection) -> tuple[UnknownSpan, ...]:
    """The stretches in which outcomes were unknown, in the order in which they began."""
    began = "transition IN ('unknown', 'resolution_undone', 'reopened')"
    spans = connection.execute(
        "SELECT action_id, at_us, until_us FROM (SELECT seq, action_id, transition, at_us,"
        " lead(at_us) OVER (PARTITION BY action_id ORDER BY seq) AS until_us FROM audit WHERE transition IN"
        " ('unknown', 'resolution_undone', 'reopened', 'resolved_created', 'resolved_not_created', 'sent_again'))"
        f" WHERE {began} ORDER BY seq"
    ).fetchall()
    whose = f"WHERE action_id IN (SELECT action_id FROM audit WHERE {began})"
    actions = {action.action_id: action for action in select(connection, whose)}
    return tuple(
        UnknownSpan(actions[action_id], from_us(since_us), from_us_or_none(until_us))
        for action_id, since_us, until_us in spans
        if action_id in actions  # Damage may have taken the action and left its audit.
    )
