"""Reading a ledger that must not be written: a newer Runwarden's, or a damaged one."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from storage import database
from storage.errors import DatabaseDamagedError, StorageError
from storage.ledger.opening import SCHEMA
from storage.ledger.queries import COLUMNS


def connect_to_read(path: Path, problem: StorageError) -> sqlite3.Connection:
    """A connection to a ledger that must not be written: to the file itself, or to a copy of what damage left of it.

    Raises:
        StorageError: Nothing of it can be read; the problem itself.
    """
    try:
        return _salvaged(path) if isinstance(problem, DatabaseDamagedError) else _as_it_is(path)
    except sqlite3.Error as error:
        raise problem from error


def _as_it_is(path: Path) -> sqlite3.Connection:
    connection = _read_only(path)
    try:
        # A newer program may have left out what this one reads.
        connection.execute(f"SELECT {COLUMNS} FROM actions LIMIT 0")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=database.BUSY_WAIT_S, isolation_level=None
    )


def _salvaged(path: Path) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.migrate(copy, SCHEMA, path)
        with closing(_read_only(path)) as damaged:
            for table in ("actions", "audit"):
                _salvage(damaged, copy, table)
        if copy.execute("SELECT 1 FROM actions").fetchone() is None:
            raise sqlite3.DatabaseError("nothing is left")
    except sqlite3.Error:
        copy.close()
        raise
    return copy


def _salvage(damaged: sqlite3.Connection, copy: sqlite3.Connection, table: str) -> None:
    known = [name for _, name, *_ in copy.execute(f"PRAGMA table_info({table})").fetchall()]
    there = {name for _, name, *_ in damaged.execute(f"PRAGMA table_info({table})").fetchall()}
    names = [name for name in known if name in there]
    insert = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    # From both ends: each walk stops at the first page that cannot be read.
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error):
            for row in damaged.execute(f"SELECT {', '.join(names)} FROM {table} NOT INDEXED ORDER BY seq {order}"):
                with suppress(sqlite3.IntegrityError):
                    copy.execute(insert, row)
