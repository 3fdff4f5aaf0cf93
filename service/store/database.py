"""The database: SQLite in the data folder or PostgreSQL by URL, with one way to read and one way to write."""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import event

from service import how_to_add
from service.clock import SECOND_MICROS, Clock, now_micros
from service.store.migrations import DatabaseError, check, migrate, version
from service.store.rows import insert_new
from service.store.schema import VERSION, meta

DATABASE_DOWN: Final = (sa.exc.OperationalError, sa.exc.InternalError, sa.exc.TimeoutError)
"""Raised while the database is down or shutting down, or after it closed a connection: a retry may succeed."""
_CANNOT_WRITE: Final = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "53100", "25006")
"""SQLite's names, and PostgreSQL's codes for a full disk and for a server that only reads."""
_FAULT_S: Final = 30.0
"""How long a failed write counts if no other fails: a worker writes every few seconds."""
_PAUSE_S: Final = 1.0
_NOT_YET: Final = re.compile(
    r'\A(?!.*FATAL)(.*connection refused|.*socket "[^"]*" failed: no such file)'
    "|the database system is |too many |connection slots|session is read-only",
    re.IGNORECASE | re.DOTALL,
)
"""Matches the error of connecting to a PostgreSQL that is down or full; it has no code, and may list two addresses."""
_SEVERAL: Final = re.compile(r"[^:]*://(?:[^:/]*(?::[^@]*)?@)?+[^/?]*,")
"""Matches libpq's form of several hosts, after a login as SQLAlchemy reads it, which may have commas."""
_logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_LOCKS: Final = 0x52754E
"""The first number of all advisory locks of this program; the second tells them apart."""
_MIGRATION: Final = 0
_CHANGE: Final = -1
"""The second number of the lock that `lock_subject` takes shared, and `lock_all` exclusively."""


class Database:
    """A database: `read()` sees a snapshot, `write()` holds SQLite's write lock from its first statement.

    PostgreSQL has no such lock; read rows that you are about to change `with_for_update()`.
    """

    def __init__(self, url: str) -> None:
        self.url = _checked_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            # Created 0600 before SQLite opens it, so that its journals get the same permissions.
            path = Path(str(self.url.database))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                path.touch(0o600)
            self.engine = sa.create_engine(self.url, pool_size=8, max_overflow=32)
            self._reading = self.engine
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            # Imported here, since psycopg is installed for PostgreSQL only.
            from service.store.postgresql import connector, replace_lost

            self._connect = connector(self.url)
            self.engine = sa.create_engine(self.url, creator=self._connect, pool_size=5, max_overflow=15)
            replace_lost(self.engine)
            self._reading = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self.shown = self.url.render_as_string(hide_password=True)
        """Its address without the password."""
        self.writing = self.engine.execution_options(runwarden_writes=True)
        """The engine whose transactions hold SQLite's write lock from their start."""
        self._write_fault, self._write_fault_at_s = "", 0.0

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self._reading.connect() as connection:
            yield connection
            # At a rollback, PostgreSQL's driver would forget the statements that it has prepared.
            if not connection.invalidated:
                connection.commit()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that commits at the end of the block and rolls back when the block raises."""
        try:
            with self.writing.begin() as connection:
                yield connection
        except sa.exc.OperationalError as error:
            kind = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None) or ""
            if kind.startswith(_CANNOT_WRITE):
                self._write_fault, self._write_fault_at_s = str(error.orig), time.monotonic()
            raise

    def transact(self, act: Callable[Concatenate[sa.Connection, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        with self.write() as connection:
            return act(connection, *arguments, **named)

    @property
    def write_fault(self) -> str:
        """Why this process could not write a moment ago, such as a full disk; a small write may still fit."""
        is_recent = time.monotonic() < self._write_fault_at_s + _FAULT_S
        return self._write_fault if is_recent else ""

    @contextmanager
    def one_process(self, task: int) -> Iterator[None]:
        """Let only one process at a time do a task; on SQLite there is only one worker anyway."""
        if self.is_sqlite:
            yield
            return
        with self.engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCKS, task)))
            yield

    def retry(self, act: Callable[[], T], given_up: threading.Event | None = None) -> T:
        """Call `act`, and retry it while the database is down; once `given_up` is set, raise the last error."""
        waits = False
        while True:
            try:
                return act()
            except DATABASE_DOWN as error:
                if not waits:
                    _logger.warning("work waits for the database: %s", getattr(error, "orig", None) or error)
                waits = True
                if (given_up or threading.Event()).wait(_PAUSE_S):
                    raise

    def connect_patiently(self, given_up: threading.Event) -> Any:
        """Open a separate connection to PostgreSQL; retry while it is down, until `given_up` is set."""
        while True:
            try:
                return self._connect()
            except self.engine.dialect.loaded_dbapi.OperationalError:
                if given_up.wait(_PAUSE_S):
                    raise

    def wait_until_there(self, given_up: threading.Event) -> None:
        """Wait while PostgreSQL is down, until `given_up` is set; any other fault is reported at first use."""
        waits = False
        while not self.is_sqlite and not given_up.is_set():
            try:
                self._connect().close()
                break
            except self.engine.dialect.loaded_dbapi.OperationalError as error:
                if not _NOT_YET.search(str(error)):
                    break
                if not waits:
                    _logger.warning("the start waits for the database: %s", error)
                waits = True
            given_up.wait(_PAUSE_S)

    def migrate(self) -> None:
        """Bring the schema to this program's version, or raise a `DatabaseError`; simultaneous first starts wait."""
        try:
            if not self.is_sqlite:
                with self.engine.connect() as connection:
                    encoding = connection.execute(sa.text("SHOW server_encoding")).scalar_one()
                if encoding != "UTF8":
                    # It cannot hold every text.
                    fix = f"create one with: createdb --encoding=UTF8 --template=template0 {self.url.database}"
                    raise DatabaseError(f"the database {self.shown} has the encoding {encoding}, not UTF8; {fix}")
                self._check_sessions()
            with self.read() as connection:
                # Read first: a reader does not wait for a writer, and usually there is nothing to migrate.
                if version(connection) == VERSION:
                    check(connection)
                    return
            with self.write() as connection:
                if not self.is_sqlite:
                    # A migration may take long, so its connection has no time limits, and is closed afterwards.
                    connection.detach()
                    connection.connection.dbapi_connection.answer_s = None  # type: ignore[union-attr]  # it is a BoundedConnection
                    connection.execute(sa.text("SET idle_in_transaction_session_timeout = 0"))
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCKS, _MIGRATION)))
                migrate(connection)
        except sa.exc.OperationalError as error:
            reason = f"cannot be used: {error.orig}; check that it exists and that we may use it"
            raise DatabaseError(f"the database {self.shown} {reason}") from error

    def _check_sessions(self) -> None:
        """Refuse a pooler that changes sessions between transactions: settings and LISTEN need a fixed one."""
        pid = sa.select(sa.func.pg_backend_pid())
        with self.engine.connect() as connection:
            before = connection.execute(pid).scalar_one()
            connection.rollback()
            # A pooler gives clients a made-up process id.
            if before == connection.connection.dbapi_connection.info.backend_pid:  # type: ignore[union-attr]  # the connection is open, so it has one
                return
            with self.engine.connect() as other:
                # This transaction gets the session that was returned last, if sessions are returned at all.
                other.execute(pid)
                if connection.execute(pid).scalar_one() == before:
                    return
        fix = "set its pool_mode = session for this database, or connect to PostgreSQL directly"
        raise DatabaseError(f"a connection pooler such as PgBouncer changes sessions between transactions: {fix}")

    def secret(self, name: str) -> bytes:
        """Return the random key of that name, the same in every process; it is created at first use."""
        with self.write() as connection:
            insert_new(connection, meta, {"key": name, "value": os.urandom(32).hex()})
            return bytes.fromhex(connection.execute(sa.select(meta.c.value).where(meta.c.key == name)).scalar_one())

    def close(self) -> None:
        self.engine.dispose()


def lock_subject(connection: sa.Connection, *subject: str) -> None:
    """Wait for other transactions on the same subject, so that a look-up stays valid; on SQLite all writers do."""
    if connection.dialect.name != "sqlite":
        # With the separator, each tuple has a distinct text. Workers use the form of the lock with two numbers.
        name = "\x1f".join(subject)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock_shared(_LOCKS, _CHANGE)))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(name, _LOCKS))))


def lock_all(connection: sa.Connection) -> None:
    """Wait for all `lock_subject` transactions and changes to organizations, and block new ones until the end."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCKS, _CHANGE)))
        connection.execute(sa.text("LOCK TABLE organizations IN SHARE ROW EXCLUSIVE MODE"))


def now_in(connection: sa.Connection, clock: Clock) -> int:
    """Return the present in microseconds by PostgreSQL's clock, which all machines share; on SQLite by `clock`."""
    if connection.dialect.name == "sqlite":
        return clock()
    seconds = sa.func.extract("epoch", sa.func.clock_timestamp())
    return int(connection.execute(sa.select(sa.cast(seconds * SECOND_MICROS, sa.BigInteger))).scalar_one())


class DatabaseClock:
    """The database server's clock, which all machines share; on SQLite this machine's clock.

    Between two calls of `sync` it advances with this process's monotonic clock.
    """

    def __init__(self, database: Database) -> None:
        self._is_shared = not database.is_sqlite
        self._offset = 0
        with database.read() as connection:
            self.sync(connection)

    def __call__(self) -> int:
        if self._is_shared:
            return self._offset + time.monotonic_ns() // 1000
        return now_micros()

    def sync(self, connection: sa.Connection) -> None:
        self._offset = now_in(connection, now_micros) - time.monotonic_ns() // 1000


def _checked_url(url: str) -> sa.URL:
    several = "postgresql://user@/name?host=host1:5432&host=host2:5432&target_session_attrs=read-write"
    form = f"the database's address must read postgresql://user@host/name, or, for several hosts, {several}"
    try:
        address = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise DatabaseError(form) from error
    if address.drivername == "sqlite":
        return address
    if address.drivername not in {"postgres", "postgresql", "postgresql+psycopg"}:
        raise DatabaseError(f"{address.drivername!r} is not a supported database; use postgresql://user@host/name")
    if _SEVERAL.match(url):
        # libpq's form, in which nothing would choose the host that accepts writes.
        raise DatabaseError(form)
    if find_spec("psycopg") is None:
        missing = "PostgreSQL needs the postgres extra, which is not installed"
        raise DatabaseError(f"{missing}; install it {how_to_add('postgres')}")
    return address.set(drivername="postgresql+psycopg")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    # secure_delete overwrites deleted content in the file.
    for pragma in ("busy_timeout = 30000", "foreign_keys = ON", "synchronous = FULL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    # In SQLite, a read transaction that starts to write may fail at once, so writers take the lock first.
    writes = connection.get_execution_options().get("runwarden_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
