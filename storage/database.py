"""A database: its connection, its transactions and its schema."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from storage.errors import DatabaseDamagedError, DatabaseNewerError, DatabaseOlderError

if TYPE_CHECKING:
    from sqlite_utils import Database

BUSY_WAIT_S: Final = 10.0
"""How long a statement waits for another process's transaction."""

T = TypeVar("T")

MigrationStep = Callable[["Database"], None]


class Schema(Struct, frozen=True):
    """A database's schema, as a list of migrations."""

    name: str
    steps: Mapping[str, MigrationStep]
    """By name, in order; a step that was released never changes."""
    newer_cure: str
    """The cure when a newer program wrote the file."""
    older_cure: str = "Move the file away; a new one is begun."
    """The cure when a program from before the first release wrote the file."""


def connect(path: Path, pragmas: Mapping[str, str | int]) -> sqlite3.Connection:
    """A connection without implicit transactions, with these pragmas set."""
    connection = sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)
    try:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start; committed as a whole, or rolled back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk or a failed one may have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads of one state; nested ones share the outer one."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def make_fleeting(connection: sqlite3.Connection) -> None:
    """Trade durability for speed: later writes need not outlive the process."""
    for pragma in ("synchronous = OFF", "journal_mode = MEMORY"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes after any other connection committed."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def check_integrity(connection: sqlite3.Connection, path: Path, damage_cure: str) -> None:
    """Check the whole file; `quick_check` misses some damage.

    Raises:
        DatabaseDamagedError: It is damaged.
    """
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise DatabaseDamagedError(f"The database {path} is damaged ({verdict}). {damage_cure}", path=path)


def migrate(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    """Apply missing steps.

    Raises:
        DatabaseNewerError, DatabaseOlderError: A step was applied that this program does not know.
    """
    if is_current(connection, schema, path):
        return
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    migrations = Migrations(schema.name)
    for name, step in schema.steps.items():
        migrations(name=name)(step)
    # Simultaneous first starts: the second process finds everything applied.
    with immediate(connection):
        if not is_current(connection, schema, path):
            migrations.apply(Database(connection, execute_plugins=False, recursive_triggers=False))


def is_current(connection: sqlite3.Connection, schema: Schema, path: Path) -> bool:
    """Whether every step is applied.

    Raises:
        DatabaseNewerError, DatabaseOlderError: A step was applied that this program does not know.
    """
    # Without sqlite-utils: its import would take a third of a start without migrations.
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = '_sqlite_migrations'").fetchone() is None:
        return False
    rows = connection.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (schema.name,))
    applied = {name for (name,) in rows.fetchall()}
    unknown = sorted(applied - schema.steps.keys())
    if unknown and unknown[0] < min(schema.steps):
        raise DatabaseOlderError(
            f"A Runwarden from before the first release wrote {path} ({', '.join(unknown)}). {schema.older_cure}",
            path=path,
        )
    if unknown:
        raise DatabaseNewerError(
            f"A newer Runwarden wrote {path} ({', '.join(unknown)}). {schema.newer_cure}", path=path
        )
    return applied == schema.steps.keys()
