"""Tables as lines of JSON: alike for SQLite and PostgreSQL, so that one restores what the other backed up."""

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from service.backup.archive import BackupError
from service.clock import Clock
from service.store import runs as run_store
from service.store.dispatch import MADE_UP
from service.store.schema import metadata, rate_limits, runs, turns, workers

_OF_PROCESSES: Final = frozenset({workers.name, rate_limits.name})
"""Tables that only running processes need."""
_AT_ONCE: Final = 1000
TABLES: Final = tuple(table for table in metadata.sorted_tables if table.name not in _OF_PROCESSES)
"""In an order in which rows can be inserted."""


def creation(dialect: str) -> list[str]:
    """Return the statements that make today's tables."""
    statements: list[str] = []

    def note(statement: Any, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)).strip())

    engine = sa.create_mock_engine(f"{dialect}://", note)
    metadata.create_all(engine, checkfirst=False)
    return statements


def make(connection: sa.Connection, statements: bytes) -> sa.MetaData:
    """Make the tables of an earlier version, empty, and return them."""
    for statement in json.loads(statements):
        connection.execute(sa.DDL(str(statement).replace("%", "%%")))  # type: ignore[no-untyped-call]  # SQLAlchemy's
    made = sa.MetaData()
    made.reflect(connection)
    return made


def dump(connection: sa.Connection, table: sa.Table, place: Path) -> None:
    """Write a table into a file: the names of its columns, then a line for each row."""
    binary = [index for index, column in enumerate(table.c) if isinstance(column.type, sa.LargeBinary)]
    with place.open("x", encoding="utf-8") as file:
        file.write(json.dumps([column.name for column in table.c]) + "\n")
        for row in connection.execution_options(yield_per=_AT_ONCE).execute(sa.select(table)):
            values = list(row)
            for index in binary:
                values[index] = base64.b64encode(values[index]).decode()
            file.write(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n")


def load(connection: sa.Connection, table: sa.Table, file: IO[bytes]) -> int:
    """Insert a table's dump; return the number of rows.

    Raises:
        BackupError: It is not this table's.
    """
    lines = iter(file)
    names = json.loads(next(lines, b"null"))
    if names != [column.name for column in table.c]:
        raise BackupError(f"the back-up's table {table.name} is not that of its schema version; use another back-up")
    # Named by number: `key` and the like are no names for parameters. None becomes NULL, not JSON's null.
    kinds = {c.name: sa.JSON(none_as_null=True) if isinstance(c.type, sa.JSON) else c.type for c in table.c}
    values = {name: sa.bindparam(f"p{index}", type_=kinds[name]) for index, name in enumerate(names)}
    statement = sa.insert(table).values(values)
    number = 0
    while batch := list(itertools.islice(_rows(table, lines), _AT_ONCE)):
        connection.execute(statement, batch)
        number += len(batch)
    return number


def _rows(table: sa.Table, lines: Iterator[bytes]) -> Iterator[dict[str, object]]:
    binary = [index for index, column in enumerate(table.c) if isinstance(column.type, sa.LargeBinary)]
    for line in lines:
        values = json.loads(line)
        for index in binary:
            values[index] = base64.b64decode(values[index])
        yield {f"p{index}": value for index, value in enumerate(values)}


def queue_again(connection: sa.Connection, clock: Clock) -> int:
    """Queue the turns that had not ended: the back-up has no queue. Return their number.

    What one of them pushed after the back-up is found on its branch and not done again: a further attempt looks for it,
    so none of them may be the first.
    """
    still = sa.and_(turns.c.status.notin_(run_store.FINAL), turns.c.executor.is_distinct_from(MADE_UP))
    attempt = sa.case((turns.c.attempt < 1, 1), else_=turns.c.attempt)
    again = {"status": "queued", "dispatched_at": None, "executor": None, "attempt": attempt}
    number = connection.execute(sa.update(turns).where(still).values(again)).rowcount
    waiting = sa.select(turns.c.run_id).where(turns.c.status == "queued")
    open_again = (runs.c.id.in_(waiting), runs.c.status != "queued")
    connection.execute(sa.update(runs).where(*open_again).values(status="queued", updated_at=clock()))
    return number
