"""Opening the ledger's file: durable before it is fast, and never rebuilt, since nobody else has what it holds."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from storage import database
from storage.errors import DatabaseDamagedError
from storage.ledger.schema import SCHEMA
from storage.private_file import make_private, opening

DAMAGE_CURE: Final = (
    "It is the only record of what was sent, and is never rebuilt by itself: restore it from a backup, or save what"
    " can be saved with `sqlite3 FILE .recover`. To go on without it, move it away yourself, and first check by hand"
    " every organization and run whose creation was under way."
)

PRAGMAS: Final[Mapping[str, str | int]] = {
    # No WAL: its reset has a rare bug in the SQLite versions that most systems have.
    "journal_mode": "DELETE",
    # FULL, and the folder too: without that a power cut can bring back the journal, and with it the state before.
    "synchronous": "EXTRA",
    "cache_size": -2000,
    "mmap_size": 0,
    "foreign_keys": 1,
}


def connect(path: Path) -> sqlite3.Connection:
    """The ledger's connection, its file made or migrated where needed.

    Raises:
        StorageError: It is damaged, or a newer Runwarden wrote it.
        sqlite3.Error: It cannot be opened.
    """
    with opening(path):
        make_private(path)
        connection = database.connect(path, PRAGMAS)
        try:
            database.migrate(connection, SCHEMA, path)
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    # The whole check, at each start: quick_check misses damage, and a ledger is small.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise DatabaseDamagedError(f"The database {path} is damaged ({verdict}). {DAMAGE_CURE}", path=path)
