"""Opening the cache's file; a damaged one is moved aside and replaced, since the service has everything."""

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from storage.cache.schema import SCHEMA
from storage.database import connect, migrate
from storage.errors import DatabaseDamagedError, storage_error
from storage.private_file import make_private, move_aside, opening

DAMAGE_CURE: Final = "Start Runwarden again: the file is then moved aside, and everything is fetched again."

PRAGMAS: Final[Mapping[str, str | int]] = {
    "journal_mode": "WAL",
    "synchronous": "NORMAL",
    # Small: a large page cache of the writer is what grew in a long soak.
    "cache_size": -2000,
    "mmap_size": 0,
    "temp_store": "MEMORY",
    # A WAL that one long batch made large is given back.
    "journal_size_limit": 16 * 1024 * 1024,
}


def prepare(path: Path, now: datetime) -> Path | None:
    """Make or migrate the cache's file.

    Returns:
        Where a damaged file was moved; None: it was sound, or new.

    Raises:
        StorageError: It cannot be opened, or a newer Runwarden wrote it.
    """
    with opening(path):
        aside = None
        if _mark(path).exists() or not _is_sound(path):
            aside = move_aside(path, now.strftime("%Y%m%dT%H%M%S"))
            _mark(path).unlink(missing_ok=True)
            _is_sound(path)
        return aside


def mark_damaged(path: Path) -> None:
    """Mark the file for the next opening: damage may lie where opening does not look."""
    # Without the mark the next read of the damage sets it.
    with suppress(OSError):
        _mark(path).touch(mode=0o600)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes."""
    return connect(path, PRAGMAS)


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads."""
    return connect(path, {**PRAGMAS, "query_only": 1})


def _mark(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _is_sound(path: Path) -> bool:
    """Whether the file opens as a cache; it is created or migrated if needed."""
    make_private(path)
    try:
        connection = connect(path, PRAGMAS)
        try:
            migrate(connection, SCHEMA, path)
        finally:
            connection.close()
    except sqlite3.Error as error:
        translated = storage_error(error, path, damage_cure=DAMAGE_CURE)
        if isinstance(translated, DatabaseDamagedError):
            return False
        if translated is None:
            raise
        raise translated from error
    return True
