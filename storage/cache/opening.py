"""Opening the cache's file; a damaged one, or one of another layout, is set aside, for the service has everything."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from storage.cache.schema import CARRIED, LAYOUT, create, layout_of
from storage.database import connect, immediate
from storage.errors import DatabaseBusyError, DatabaseDamagedError, storage_error
from storage.lazy_dataclass import dataclass
from storage.private_file import make_private, move_aside, opening

DAMAGE_CURE: Final = "Start Runwarden again: the file is then moved aside, and everything is fetched again."

PRAGMAS: Final[Mapping[str, str | int]] = {
    "journal_mode": "WAL",
    "synchronous": "NORMAL",
    # Small: a large page cache of the writer is what grew in a long soak.
    "cache_size": -2000,
    "mmap_size": 0,
    # In memory, making the index of an order would take 100 MB for a million runs.
    "temp_store": "FILE",
    # Four times as long as usual until it is copied back: pages of an index that every batch touches are copied once.
    "wal_autocheckpoint": 4000,
    # A WAL that one long batch made large is given back.
    "journal_size_limit": 16 * 1024 * 1024,
}

_IN_USE_WAIT_S: Final = 2.0
"""How long a cache of another layout may be in use before it is refused: a first frame reads for a moment."""
_RETRY_S: Final = 0.02

_Rows = list[tuple[str | int, ...]]


@dataclass(frozen=True, slots=True)
class SetAside:
    """A cache that was replaced by an empty one."""

    path: Path
    """Where it is now."""
    is_damaged: bool
    """False: it was sound, but another version of Runwarden laid it out."""

    def __str__(self) -> str:
        """Say what happened and what it costs."""
        why = "was damaged" if self.is_damaged else "was made by another version of Runwarden"
        return f"The cache {why}. It is now {self.path}, and the runs are fetched again."


def prepare(path: Path, now: datetime) -> SetAside | None:
    """Create the cache's file if it is missing, and replace one that cannot be used.

    Returns:
        What was set aside; None: it was sound, or new.

    Raises:
        DatabaseBusyError: A Runwarden of another version has it open.
        StorageError: It cannot be opened.
    """
    with opening(path), _translated(path):
        is_damaged, carried = _mark(path).exists(), dict[str, _Rows]()
        if not is_damaged:
            try:
                make_private(path)
                if _is_usable(path):
                    return None
                carried = _what_is_carried(path)
            except sqlite3.Error as error:
                if not _is_damage(error, path):
                    raise
                is_damaged = True
        aside = move_aside(path, "damaged" if is_damaged else "outdated", now.strftime("%Y%m%dT%H%M%S"))
        _mark(path).unlink(missing_ok=True)
        make_private(path)
        _is_usable(path)
        _carry(path, carried)
        return SetAside(aside, is_damaged)


def mark_damaged(path: Path) -> None:
    """Mark the file for the next opening: damage may be where opening does not read."""
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


def _is_usable(path: Path) -> bool:
    """Whether the file has this program's layout; an empty one is given it."""
    with closing(connect(path, PRAGMAS)) as connection:
        if layout_of(connection) != LAYOUT:
            with immediate(connection):
                if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
                    create(connection)
        return layout_of(connection) == LAYOUT


def _what_is_carried(path: Path) -> dict[str, _Rows]:
    """Rows that no service has, from a cache of another layout that no process has open.

    Raises:
        DatabaseBusyError: A process has it open: one that went on writing to a file moved aside would lose its lease.
    """
    with closing(connect(path, {})) as connection:
        _leave_wal(connection, path)
        carried: dict[str, _Rows] = {}
        for table, columns in CARRIED.items():
            # A layout without this table, or with other columns, has nothing to carry over.
            try:
                carried[table] = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    raise
        return carried


def _leave_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Put everything into the one file. SQLite does this only while no other connection is open."""
    deadline = time.monotonic() + _IN_USE_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        except sqlite3.OperationalError as error:
            # The primary code is in the lowest byte.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() < deadline:
                time.sleep(_RETRY_S)
                continue
            raise DatabaseBusyError(
                f"A Runwarden of another version has {path} open. End it, then start this one again.", path=path
            ) from error
        else:
            return


def _carry(path: Path, carried: Mapping[str, _Rows]) -> None:
    with closing(connect(path, PRAGMAS)) as connection, immediate(connection):
        for table, rows in carried.items():
            columns = CARRIED[table]
            marks = ", ".join("?" * len(columns.split(",")))
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)


def _is_damage(error: sqlite3.Error, path: Path) -> bool:
    return isinstance(storage_error(error, path, damage_cure=DAMAGE_CURE), DatabaseDamagedError)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        translated = storage_error(error, path, damage_cure=DAMAGE_CURE)
        if translated is None:
            raise
        raise translated from error
