"""What moved since somebody last looked: for telling people, once the picture itself is up to date."""

import sqlite3
from datetime import datetime
from typing import Any, Final

from storage.database import immediate, snapshot
from storage.records.following import Mark, Moves, RunMove
from storage.times import from_us, to_us

CAP: Final = 1_000
"""Moves given at a time, the newest: nobody is told of more one by one."""

_RUN: Final = "r.run_id, r.repository, r.branch"
_REST: Final = "r.active_since_us, EXISTS (SELECT 1 FROM pins AS p WHERE p.run_id = r.run_id)"


def mark(connection: sqlite3.Connection) -> Mark:
    """The mark that was kept; where there is none, everything that is held now counts as seen."""
    with snapshot(connection):
        kept = connection.execute("SELECT transition_id, run, kept_us FROM mark").fetchone()
        if kept is None:
            return _mark(connection)
        transition, run, kept_us = kept
        return Mark(transition, run, from_us(kept_us))


def keep(connection: sqlite3.Connection, here: Mark, at: datetime) -> None:
    """Keep a mark for whoever looks next, in this process or a later one; it never goes back."""
    with immediate(connection):
        connection.execute(
            "INSERT INTO mark (one, transition_id, run, kept_us) VALUES (1, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET"
            " transition_id = max(transition_id, excluded.transition_id), run = max(run, excluded.run),"
            " kept_us = max(kept_us, excluded.kept_us)"
            " WHERE excluded.transition_id > transition_id OR excluded.run > mark.run",
            (here.transition, here.run, to_us(at)),
        )


def moves(connection: sqlite3.Connection, after: Mark, since: datetime) -> Moves:
    """What moved after the mark; of runs first seen after it, those that came to be as they are since then."""
    with snapshot(connection):
        here = _mark(connection)
        moved = connection.execute(
            f"SELECT {_RUN}, t.old, t.new, t.at_us, {_REST} FROM transitions AS t JOIN runs AS r ON r.id = t.run"  # noqa: S608 — built from constants; values are bound
            " WHERE t.id > ? ORDER BY t.id DESC LIMIT ?",
            (after.transition, CAP),
        ).fetchall()
        # Backfilled history is new to the cache, and no news.
        first_seen = connection.execute(
            f"SELECT {_RUN}, NULL, r.first_status, r.first_at_us, {_REST} FROM runs AS r"  # noqa: S608 — as above
            " WHERE r.id > ? AND r.first_at_us >= ? ORDER BY r.id DESC LIMIT ?",
            (after.run, to_us(since), CAP),
        ).fetchall()
    found = sorted((*first_seen, *moved), key=lambda values: values[5])
    return Moves(tuple(_move(values) for values in found), here)


def _mark(connection: sqlite3.Connection) -> Mark:
    (transition,) = connection.execute("SELECT coalesce(max(id), 0) FROM transitions").fetchone()
    (run,) = connection.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
    return Mark(transition, run)


def _move(values: tuple[Any, ...]) -> RunMove:
    run_id, repository, branch, old, new, at_us, active_us, is_pinned = values
    return RunMove(run_id, repository, branch, old, new, from_us(at_us), from_us(active_us), bool(is_pinned))
