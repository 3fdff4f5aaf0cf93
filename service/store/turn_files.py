"""Turn files: logs and diffs of turns in the database, for those whose data folder is on another machine."""

import zlib
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from service.store.runs import FINAL
from service.store.schema import turn_files, turns

LARGEST: Final = 16 << 20
"""What is kept of one file; a larger diff can still be had from the repository, by its commit."""


def put(connection: sa.Connection, run_id: str, number: int, kind: str, file: Path) -> None:
    """Keep a file, in place of the one kept before."""
    with file.open("rb") as source:
        content = zlib.compress(source.read(LARGEST))
    connection.execute(sa.delete(turn_files).where(*_is(run_id, number, kind)))
    values = {"run_id": run_id, "number": number, "kind": kind, "content": content}
    connection.execute(sa.insert(turn_files).values(values))


def text(connection: sa.Connection, run_id: str, number: int, kind: str) -> str | None:
    """Return a kept file as text; None when there is none."""
    query = sa.select(turn_files.c.content).where(*_is(run_id, number, kind))
    content = connection.execute(query).scalar()
    return None if content is None else zlib.decompress(content).decode("utf-8", "replace")


def count_ended(connection: sa.Connection, before: int) -> int:
    """Return how many files are kept of turns that ended before an instant (microseconds), open runs left out."""
    return connection.execute(sa.select(sa.func.count()).select_from(_ended(before).subquery())).scalar_one()


def remove_ended(connection: sa.Connection, before: int, limit: int) -> int:
    """Remove up to `limit` files of turns that ended before an instant; return how many."""
    key = sa.tuple_(turn_files.c.run_id, turn_files.c.number, turn_files.c.kind)
    return connection.execute(sa.delete(turn_files).where(key.in_(_ended(before).limit(limit)))).rowcount


def _ended(before: int) -> sa.Select[tuple[str, int, str]]:
    still_open = sa.select(turns.c.run_id).where(turns.c.status.notin_(FINAL))
    return (
        sa.select(turn_files.c.run_id, turn_files.c.number, turn_files.c.kind)
        .join(turns, sa.and_(turns.c.run_id == turn_files.c.run_id, turns.c.number == turn_files.c.number))
        .where(turns.c.finished_at < before, turn_files.c.run_id.not_in(still_open))
    )


def _is(run_id: str, number: int, kind: str) -> tuple[sa.ColumnElement[bool], ...]:
    return turn_files.c.run_id == run_id, turn_files.c.number == number, turn_files.c.kind == kind
