"""The database: SQLite in the data folder or PostgreSQL by URL, with one way to read and one way to write."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from service.store.schema import VERSION, meta, metadata

_MIGRATION_LOCK = 0x52754E


class DatabaseError(Exception):
    """The database cannot be used; the text names the cure."""


class Database:
    """One engine with two doors: `read()` sees a snapshot, `write()` holds the write lock from its first statement."""

    def __init__(self, url: str) -> None:
        self.url = sa.make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            _create_private(Path(str(self.url.database)))
        self.engine = sa.create_engine(self.url, pool_size=8, max_overflow=32, pool_pre_ping=not self.is_sqlite)
        self._writing = self.engine.execution_options(runwarden_writes=True)
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction for reading."""
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that commits at the end of the block and rolls back when the block raises."""
        with self._writing.begin() as connection:
            yield connection

    def migrate(self) -> None:
        """Bring the schema to this program's version; simultaneous first starts wait for each other.

        Raises:
            DatabaseError: A newer program has been here.
        """
        with self.write() as connection:
            if not self.is_sqlite:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            found = self._version(connection)
            if found is None:
                metadata.create_all(connection)
                connection.execute(sa.insert(meta).values(key="schema_version", value=str(VERSION)))
            elif found != VERSION:
                raise DatabaseError(
                    f"the database has schema version {found}, this program knows {VERSION}: "
                    "install the release that wrote it, or newer"
                )

    def _version(self, connection: sa.Connection) -> int | None:
        if not sa.inspect(connection).has_table(meta.name):
            return None
        value = connection.execute(sa.select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
        return None if value is None else int(value)

    def secret(self, name: str) -> bytes:
        """Return the random key kept under a name, made at first use and the same for every process."""
        with self.write() as connection:
            kept = connection.execute(sa.select(meta.c.value).where(meta.c.key == name)).scalar()
            if kept is None:
                kept = os.urandom(32).hex()
                connection.execute(sa.insert(meta).values(key=name, value=kept))
            return bytes.fromhex(kept)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _create_private(path: Path) -> None:
    # Created 0600 before SQLite opens it, so that its journals are born closed as well.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    for pragma in ("busy_timeout = 30000", "foreign_keys = ON", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A read that turns into a write fails at once in SQLite; writers take the lock first instead.
    writes = connection.get_execution_options().get("runwarden_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
