"""A database: its connection, its transactions, its schema, and copies of it while it is in use."""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from storage.errors import DatabaseDamagedError, DatabaseNewerError, primary_code, translate_errors
from storage.private_file import make_private, opening
from storage.values import Value, bound, sqlite_text

if TYPE_CHECKING:
    from sqlite_utils import Database

BUSY_WAIT_S: Final = 10.0
"""How long a statement waits for another process's transaction."""
_LOOK_AGAIN_S: Final = 0.01
_CHUNK: Final = 500

DURABLE: Final[Mapping[str, str | int]] = {
    # Not WAL: its reset has a rare bug in the SQLite versions of most systems.
    "journal_mode": "DELETE",
    # EXTRA syncs the folder too: otherwise a power cut can bring back the journal, and with it the earlier state.
    "synchronous": "EXTRA",
    # Only macOS knows the difference: without it, a sync ends before the disk has written.
    "fullfsync": 1,
    "cache_size": -2000,
    "mmap_size": 0,
    "foreign_keys": 1,
}
"""The settings for a file that cannot be rebuilt: durability before speed."""
_COPY_FIX: Final = "Restore it from an earlier copy, or save its readable parts with `sqlite3 FILE .recover`."


class Schema(Struct, frozen=True):
    """The tables of a file that cannot be made again, as migrations, and the fixes if it cannot be used."""

    name: str
    steps: Mapping[str, tuple[str, ...]]
    """SQL statements by the migration's name, in order; a migration that was released never changes."""
    newer_fix: str
    damage_fix: str


def connect(path: Path, pragmas: Mapping[str, str | int]) -> sqlite3.Connection:
    """A connection without implicit transactions, with these pragmas set."""
    connection = sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)
    try:
        for name, value in pragmas.items():
            set_pragma(connection, name, value)
    except BaseException:
        connection.close()
        raise
    return connection


def is_busy(error: sqlite3.OperationalError) -> bool:
    return primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def set_pragma(connection: sqlite3.Connection, name: str, value: str | int, wait_s: float = BUSY_WAIT_S) -> None:
    """Set a pragma; wait while the file is busy: SQLite itself does not wait for the lock to begin or end a WAL."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_AGAIN_S)
        else:
            return


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start; committed as a whole, or rolled back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full or failing disk may have caused a rollback already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads of one snapshot; nested ones share the outer snapshot."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def execute(connection: sqlite3.Connection, sql: str, *values: Value) -> sqlite3.Cursor:
    return connection.execute(sql, tuple(map(bound, values)))


def scalar(connection: sqlite3.Connection, sql: str, *values: Value) -> Any:
    """The first value of the first row; None: there is no row."""
    row = execute(connection, sql, *values).fetchone()
    return None if row is None else row[0]


def column(connection: sqlite3.Connection, sql: str, *values: Value) -> list[Any]:
    return [value for (value,) in execute(connection, sql, *values).fetchall()]


def select_in(connection: sqlite3.Connection, sql: str, texts: Sequence[str], *values: Value) -> Iterator[Any]:
    """The rows of a statement with one `IN (?)`, some hundred texts at a time. JSON would cut a text at a NUL."""
    for start in range(0, len(texts), _CHUNK):
        some = [*map(sqlite_text, texts[start : start + _CHUNK])]
        marked = sql.replace("(?)", f"({', '.join('?' * len(some))})")
        yield from connection.execute(marked, (*map(bound, values), *some)).fetchall()


def make_fast(connection: sqlite3.Connection) -> None:
    """Trade durability for speed: later writes need not outlive the process."""
    for pragma in ("synchronous = OFF", "journal_mode = MEMORY"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes after any other connection committed."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def check_integrity(connection: sqlite3.Connection, path: Path, damage_fix: str) -> None:
    """Check the whole file for damage; `quick_check` misses some."""
    if (verdict := scalar(connection, "PRAGMA integrity_check(1)")) != "ok":
        raise DatabaseDamagedError(f"The database {path} is damaged ({verdict}). {damage_fix}", path=path)


def open_durable(path: Path, schema: Schema) -> sqlite3.Connection:
    """The connection to a file that cannot be made again, created or migrated where needed.

    Raises `sqlite3.Error` if it cannot be opened.
    """
    with opening(path):
        make_private(path)
        connection = connect(path, DURABLE)
        try:
            migrate(connection, schema, path)
            # At each start: these files are small.
            check_integrity(connection, path, schema.damage_fix)
        except BaseException:
            connection.close()
            raise
    return connection


def migrate(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    """Apply missing migrations; a file with one that this program does not know is newer than it."""
    if not _missing(connection, schema, path):
        return
    # Imported here: it would take a third of a start without migrations.
    from sqlite_utils import Database, Migrations

    migrations = Migrations(schema.name)
    for name, statements in schema.steps.items():

        @migrations(name=name)
        def apply(database: "Database", statements: tuple[str, ...] = statements) -> None:
            for statement in statements:
                database.execute(statement)

    # Simultaneous first starts: the second process finds everything applied.
    with immediate(connection):
        if _missing(connection, schema, path):
            migrations.apply(Database(connection, execute_plugins=False, recursive_triggers=False))


def _missing(connection: sqlite3.Connection, schema: Schema, path: Path) -> list[str]:
    if scalar(connection, "SELECT 1 FROM sqlite_master WHERE name = '_sqlite_migrations'") is None:
        return list(schema.steps)
    applied = {*column(connection, "SELECT name FROM _sqlite_migrations WHERE migration_set = ?", schema.name)}
    if unknown := sorted(applied - schema.steps.keys()):
        text = f"A newer Runwarden wrote {path} ({', '.join(unknown)}). {schema.newer_fix}"
        raise DatabaseNewerError(text, path=path)
    return [name for name in schema.steps if name not in applied]


def copy_database(source: Path, target: Path) -> None:
    """Copy a database, while others may write to it, into a new file that only its owner can read.

    Raises `FileExistsError` if the target exists already. After any error, no target is left behind.
    """
    partial = target.with_name(f".{target.name}.part")
    if target.exists():
        raise FileExistsError(target)
    partial.unlink(missing_ok=True)
    make_private(partial)
    try:
        with translate_errors(source, _COPY_FIX), closing(connect(source, {})) as reading:
            reading.execute("VACUUM INTO ?", (str(partial),))
        with translate_errors(partial, _COPY_FIX), closing(connect(partial, {})) as copy:
            check_integrity(copy, source, _COPY_FIX)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
