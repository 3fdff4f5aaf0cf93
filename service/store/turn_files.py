"""Turn files: logs and diffs of turns in the database, for those whose data folder is on another machine."""

import zlib
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from service.store.schema import turn_files

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


def _is(run_id: str, number: int, kind: str) -> tuple[sa.ColumnElement[bool], ...]:
    return turn_files.c.run_id == run_id, turn_files.c.number == number, turn_files.c.kind == kind
