"""Opening the cache's file; a damaged one, or one of another layout, is set aside, for the service has everything."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from storage.cache.schema import LAYOUT, create, layout_of
from storage.database import connect, immediate, is_busy, set_pragma
from storage.errors import DatabaseBusyError, primary_code, translate_errors
from storage.private_file import make_private, move_aside, opening

DAMAGE_FIX: Final = "Start Runwarden again: the file is then moved aside, and everything is fetched again."

PRAGMAS: Final[Mapping[str, str | int]] = {
    "journal_mode": "WAL",
    "synchronous": "NORMAL",
    # 2 MB: with a larger page cache, a process that runs for days grows by it.
    "cache_size": -2000,
    "mmap_size": 0,
    # In memory, sorting a million runs for an index would take 100 MB.
    "temp_store": "FILE",
    # Four times the usual: index pages that every batch changes are then copied back once for many batches.
    "wal_autocheckpoint": 4000,
    # If a long batch grew the WAL beyond this size, it is truncated to it.
    "journal_size_limit": 16 * 1024 * 1024,
}

connect_writer: Final = partial(connect, pragmas=PRAGMAS)
connect_reader: Final = partial(connect, pragmas={**PRAGMAS, "query_only": 1})

_DAMAGED: Final = ".damaged"
"""Ends the name of the file that marks a cache as damaged."""
_IN_USE_WAIT_S: Final = 2.0
"""How long to wait until a cache of another layout is no longer in use: a first frame reads it only for a moment."""


class SetAside(Struct, frozen=True):
    """A cache that was replaced by an empty one."""

    path: Path
    is_damaged: bool
    """Whether the cache was damaged; otherwise another version of Runwarden created its layout."""

    def __str__(self) -> str:
        reason = "was made by another version of Runwarden"
        if self.is_damaged:
            reason = "was damaged"
        return f"The cache {reason}. It is now {self.path}, and the runs are fetched again."


def prepare(path: Path, now: datetime) -> SetAside | None:
    """Create the cache's file if it is missing, and replace one that cannot be used; return the file set aside.

    Raises `DatabaseBusyError` if a Runwarden of another version has it open.
    """
    mark = path.with_name(path.name + _DAMAGED)
    with opening(path), translate_errors(path, DAMAGE_FIX):
        is_damaged = mark.exists()
        if not is_damaged:
            try:
                make_private(path)
                if _lay_out_if_empty(path) == LAYOUT:
                    return None
                # Copies the WAL into the file and removes it, which SQLite does only while no other connection is open:
                # another process would continue to write to the file after it was moved aside.
                with closing(connect(path, {})) as connection:
                    try:
                        set_pragma(connection, "journal_mode", "DELETE", _IN_USE_WAIT_S)
                    except sqlite3.OperationalError as error:
                        if not is_busy(error):
                            raise
                        text = f"A Runwarden of another version has {path} open. End it, then start this one again."
                        raise DatabaseBusyError(text, path=path) from error
            except sqlite3.Error as error:
                if primary_code(error) not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                    raise
                is_damaged = True
        aside = move_aside(path, "damaged" if is_damaged else "outdated", now.strftime("%Y%m%dT%H%M%S"))
        mark.unlink(missing_ok=True)
        make_private(path)
        _lay_out_if_empty(path)
        return SetAside(aside, is_damaged)


def is_held(path: Path) -> bool:
    """Whether another process holds the cache for longer than a moment."""
    if not path.exists():
        return False
    with closing(sqlite3.connect(path, timeout=2.0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return is_busy(error)
        except sqlite3.DatabaseError:
            pass  # The file is damaged, which opening it reports.
    return False


def mark_damaged(path: Path) -> None:
    """Mark the file as damaged, since the next opening may not read the damaged place."""
    # If the mark cannot be made, the next read of the damage tries again.
    with suppress(OSError):
        path.with_name(path.name + _DAMAGED).touch(mode=0o600)


def _lay_out_if_empty(path: Path) -> int:
    """Create this program's layout in a file that is empty; return the file's layout."""
    with closing(connect(path, PRAGMAS)) as connection:
        if layout_of(connection) != LAYOUT:
            with immediate(connection):
                if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
                    create(connection)
        return layout_of(connection)
