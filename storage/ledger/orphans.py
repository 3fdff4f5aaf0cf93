"""Actions whose process died before it could say what became of them."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.ledger.moves import NOT_SENT, UNKNOWN, Move, Outcome, make_within
from storage.ledger.owner import Owner, is_dead
from storage.records import Action, ActionError
from storage.times import to_us

HOPELESS_AFTER: Final = timedelta(hours=1)
"""A request has a deadline of seconds: one this old has no sender any more, even where nobody can look."""

CRASHED: Final = "crashed"

_ENDED: Final = {
    "prepared": (NOT_SENT, "The process that was about to send it ended before it sent anything."),
    "sending": (UNKNOWN, "The process that was sending it ended before it heard the answer."),
}


def adopt(connection: sqlite3.Connection, at: datetime) -> tuple[Action, ...]:
    """Settle every action whose owner is dead; those settled, oldest first."""
    if not _under_way(connection):
        return ()
    with immediate(connection):
        return tuple(
            _settle(connection, action_id, *_ENDED[state], at)
            for action_id, state, owner, begun_us in _under_way(connection)
            if _is_orphan(owner, begun_us, to_us(at))
        )


def _under_way(connection: sqlite3.Connection) -> list[tuple[str, str, Owner, int]]:
    found = connection.execute(
        "SELECT action_id, state, coalesce(sending_us, created_us), owner_pid, owner_started, owner_boot,"
        " owner_namespace FROM actions WHERE state IN ('prepared', 'sending') ORDER BY seq"
    )
    return [(action_id, state, Owner(*owner), begun_us) for action_id, state, begun_us, *owner in found.fetchall()]


def _is_orphan(owner: Owner, begun_us: int, now_us: int) -> bool:
    dead = is_dead(owner)
    if dead is None:
        return now_us - begun_us > HOPELESS_AFTER // timedelta(microseconds=1)
    return dead


def _settle(connection: sqlite3.Connection, action_id: str, move: Move, message: str, at: datetime) -> Action:
    return make_within(connection, action_id, move, Outcome(error=ActionError(CRASHED, message)), at)
