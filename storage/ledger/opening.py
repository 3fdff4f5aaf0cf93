"""The ledger's file: its tables, how it is opened to write, and how to read from one that must not be written.

It is durable before it is fast, and never rebuilt, since it is the only record.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage import database
from storage.database import Schema
from storage.errors import DatabaseDamagedError, StorageError
from storage.ledger.queries import COLUMNS
from storage.private_file import make_private, opening

if TYPE_CHECKING:
    from sqlite_utils import Database


_FIRST_COLUMNS: Final = {
    "seq": int,
    "action_id": str,
    "kind": str,
    "subject": str,
    "key": str,
    "path": str,
    "body_json": str,
    "actor": str,
    "state": str,
    "created_us": int,
    "sending_us": int,
    "settled_us": int,
    "error_kind": str,
    "error_message": str,
    "error_status": int,
    "error_code": str,
    "response_json": str,
    "result_id": str,
    "resolution": str,
    "superseded_by": str,
    "owner_pid": int,
    "owner_started": str,
    "owner_boot": str,
    "owner_namespace": str,
}
_FIRST_REQUIRED: Final = {
    "action_id",
    "kind",
    "subject",
    "key",
    "path",
    "body_json",
    "actor",
    "state",
    "created_us",
    "owner_pid",
    "owner_started",
    "owner_boot",
    "owner_namespace",
}


def _first(db: "Database") -> None:
    db.table("actions", strict=True).create(_FIRST_COLUMNS, pk="seq", not_null=_FIRST_REQUIRED)
    actions = db.table("actions")
    actions.create_index(["action_id"], unique=True)
    actions.create_index(["key"], unique=True)
    actions.create_index(["result_id"])
    actions.create_index(["subject", "kind"])
    db.execute(
        "CREATE UNIQUE INDEX actions_open_subject ON actions (kind, subject)"
        " WHERE subject <> '' AND state IN ('prepared', 'sending', 'unknown') AND resolution IS NULL"
    )


def _author(db: "Database") -> None:
    actions = db.table("actions")
    for column in ("base_url", "user", "host", "surface"):
        actions.add_column(column, str)
    # An action that certainly had no effect leaves its key free.
    db.execute("DROP INDEX idx_actions_key")
    db.execute(
        "CREATE UNIQUE INDEX actions_used_key ON actions (key)"
        " WHERE state NOT IN ('not_sent', 'rejected', 'not_created')"
    )
    actions.create_index(["key"])
    db.execute("CREATE INDEX actions_under_way ON actions (state) WHERE state IN ('prepared', 'sending')")
    db.execute("CREATE INDEX actions_unresolved ON actions (seq) WHERE state = 'unknown' AND resolution IS NULL")
    db.execute("CREATE INDEX actions_superseded ON actions (superseded_by) WHERE superseded_by IS NOT NULL")
    columns = {"seq": int, "at_us": int, "action_id": str, "transition": str, "detail": str}
    db.table("audit", strict=True).create(
        {**columns, "user": str, "host": str, "surface": str},
        pk="seq",
        not_null={"at_us", "action_id", "transition"},
    )
    db.table("audit").create_index(["action_id"])
    for change in ("UPDATE", "DELETE"):
        db.execute(
            f"CREATE TRIGGER audit_refuses_{change.lower()} BEFORE {change} ON audit"
            " BEGIN SELECT raise(ABORT, 'the audit is only ever added to'); END"
        )


SCHEMA: Final = Schema(
    name="ledger",
    steps={"0001_first": _first, "0002_author": _author},
    newer_cure="Install that version again: the ledger must not be written by a program that does not know all of it.",
)


DAMAGE_CURE: Final = (
    "It is the only record of what was sent, and is never rebuilt by itself: restore it from a backup, or save what"
    " can be saved with `sqlite3 FILE .recover`. To go on without it, move it away yourself, and first check by hand"
    " every organization and run whose creation was under way."
)

PRAGMAS: Final[Mapping[str, str | int]] = {
    # Not WAL: its reset has a rare bug in the SQLite versions of most systems.
    "journal_mode": "DELETE",
    # EXTRA syncs the folder too: otherwise a power cut can bring back the journal, and with it the earlier state.
    "synchronous": "EXTRA",
    "cache_size": -2000,
    "mmap_size": 0,
    "foreign_keys": 1,
}


def connect(path: Path) -> sqlite3.Connection:
    """The ledger's connection, its file created or migrated where needed; raises as `connect_precious`."""
    return connect_precious(path, SCHEMA, DAMAGE_CURE)


def connect_precious(path: Path, schema: Schema, damage_cure: str) -> sqlite3.Connection:
    """The connection to a file that cannot be made again, created or migrated where needed.

    Raises:
        StorageError: It is damaged, or a newer Runwarden wrote it.
        sqlite3.Error: It cannot be opened.
    """
    with opening(path):
        make_private(path)
        connection = database.connect(path, PRAGMAS)
        try:
            database.migrate(connection, schema, path)
            _check(connection, path, damage_cure)
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, damage_cure: str) -> None:
    # The full check is made at each start: quick_check misses some damage, and these files are small.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise DatabaseDamagedError(f"The database {path} is damaged ({verdict}). {damage_cure}", path=path)


def connect_to_read(path: Path, problem: StorageError) -> sqlite3.Connection:
    """A connection to a ledger that must not be written: a newer Runwarden's, or a copy of a damaged one's rows.

    Raises:
        StorageError: `problem` itself: nothing of the file can be read.
    """
    try:
        return _salvaged(path) if isinstance(problem, DatabaseDamagedError) else _as_it_is(path)
    except sqlite3.Error as error:
        raise problem from error


def _as_it_is(path: Path) -> sqlite3.Connection:
    connection = _read_only(path)
    try:
        # A newer program may have dropped columns that this one reads.
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
    # Reading from both ends saves the most: each walk stops at the first page that cannot be read.
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error):
            for row in damaged.execute(f"SELECT {', '.join(names)} FROM {table} NOT INDEXED ORDER BY seq {order}"):
                with suppress(sqlite3.IntegrityError):
                    copy.execute(insert, row)
