"""Reading the ledger."""

import sqlite3
from collections.abc import Collection
from typing import Final

from storage.ledger import rows
from storage.ledger.errors import AmbiguousActionError
from storage.ledger.identity import PREFIX
from storage.records import Action, ActionKind, ActionState
from storage.storable import storable

_TWO: Final = 2


def action(connection: sqlite3.Connection, id_or_prefix: str) -> Action | None:
    """The action with this id, or the only one whose id begins like this, `act_` or not; None: there is none.

    Raises:
        AmbiguousActionError: More than one id begins like this.
    """
    wanted = PREFIX + storable(id_or_prefix).strip().removeprefix(PREFIX).upper()
    found = rows.select(
        connection, "WHERE substr(action_id, 1, ?) = ? ORDER BY seq DESC LIMIT ?", (len(wanted), wanted, _TWO)
    )
    if len(found) == _TWO:
        raise AmbiguousActionError(id_or_prefix)
    return found[0] if found else None


def actions(
    connection: sqlite3.Connection,
    kinds: Collection[ActionKind] | None,
    states: Collection[ActionState] | None,
    limit: int,
) -> tuple[Action, ...]:
    """Actions, newest first; None: of every kind, in every state."""
    conditions = ["1"]
    parameters: list[str | int] = []
    for column, values in (("kind", kinds), ("state", states)):
        if values is not None:
            conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
            parameters.extend(values)
    rest = f"WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT ?"
    return rows.select(connection, rest, (*parameters, max(0, limit)))


def for_run(connection: sqlite3.Connection, run_id: str) -> tuple[Action, ...]:
    """The starts and continuations that made the run or were meant for it, oldest first."""
    wanted = storable(run_id)
    return rows.select(
        connection,
        "WHERE kind IN ('run.start', 'run.continue') AND (subject = ? OR (state = 'confirmed' AND result_id = ?))"
        " ORDER BY seq",
        (wanted, wanted),
    )


def organizations(connection: sqlite3.Connection, subject: str | None = None) -> tuple[Action, ...]:
    """Every attempt to create an organization, newest first; those for one subject, where one is given."""
    if subject is None:
        return rows.select(connection, "WHERE kind = 'organization.create' ORDER BY seq DESC")
    return rows.select(
        connection, "WHERE subject = ? AND kind = 'organization.create' ORDER BY seq DESC", (storable(subject),)
    )
