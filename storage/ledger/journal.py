"""The ledger as a journal: the newest writes that a filter lets through, and how many there are of each sort."""

import sqlite3

from storage.database import snapshot
from storage.ledger import rows
from storage.records import OPEN_STATES, Action
from storage.records.activity import ActivityFilter, Found
from storage.storable import storable
from storage.times import to_us

_TEXT = (
    "folded(kind || ' ' || state || ' ' || subject || ' ' || path || ' ' || actor || ' ' || action_id || ' '"
    " || coalesce(result_id, '') || ' ' || coalesce(error_kind, '') || ' ' || coalesce(error_message, '') || ' '"
    " || coalesce(error_status, '') || ' ' || coalesce(error_code, '') || ' ' || body_json)"
)
"""Everything that a person may have in mind, what was sent included."""


def journal(connection: sqlite3.Connection, wanted: ActivityFilter, limit: int) -> Found[Action]:
    """The newest actions that the filter lets through."""
    connection.create_function("folded", 1, str.casefold, deterministic=True)
    condition, parameters = _where(wanted)
    with snapshot(connection):
        newest = rows.select(connection, f"WHERE {condition} ORDER BY seq DESC LIMIT ?", (*parameters, max(0, limit)))
        (matching,) = connection.execute(f"SELECT count(*) FROM actions WHERE {condition}", parameters).fetchone()  # noqa: S608 — built from constants; values are bound
        tally = connection.execute("SELECT kind, state, count(*) FROM actions GROUP BY 1, 2").fetchall()
    return Found(newest, int(matching), {(kind, state): count for kind, state, count in tally})


def _where(wanted: ActivityFilter) -> tuple[str, tuple[str | int, ...]]:
    conditions = ["1"]
    parameters: list[str | int] = []
    for column, values in (("kind", wanted.kinds), ("state", wanted.outcomes)):
        if values:
            conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
            parameters += map(storable, values)
    if wanted.is_open:
        conditions.append(f"resolution IS NULL AND state IN ({', '.join('?' * len(OPEN_STATES))})")
        parameters += sorted(OPEN_STATES)
    if wanted.since is not None:
        conditions.append("coalesce(settled_us, created_us) >= ?")
        parameters.append(to_us(wanted.since))
    for word in wanted.words:
        conditions.append(f"instr({_TEXT}, ?) > 0")
        parameters.append(storable(word))
    return " AND ".join(conditions), tuple(parameters)
