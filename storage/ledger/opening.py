"""The ledger's file: its tables, and how to read from one that must not be written. It is never rebuilt."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from storage.database import BUSY_WAIT_S, Schema, migrate
from storage.errors import DatabaseDamagedError, StorageError
from storage.ledger.queries import COLUMNS

_TABLES: Final = (
    """CREATE TABLE actions (
        seq INTEGER PRIMARY KEY, action_id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, subject TEXT NOT NULL,
        key TEXT NOT NULL, path TEXT NOT NULL, body_json TEXT NOT NULL, actor TEXT NOT NULL, state TEXT NOT NULL,
        created_us INTEGER NOT NULL, sending_us INTEGER, settled_us INTEGER,
        error_kind TEXT, error_message TEXT, error_status INTEGER, error_code TEXT,
        response_json TEXT, result_id TEXT, resolution TEXT, superseded_by TEXT,
        base_url TEXT, user TEXT, host TEXT, surface TEXT, owner_json TEXT NOT NULL, owned_us INTEGER NOT NULL
    ) STRICT""",
    # An action that certainly had no effect leaves its key free.
    "CREATE UNIQUE INDEX actions_used_key ON actions (key) WHERE state NOT IN ('not_sent', 'rejected', 'not_created')",
    """CREATE UNIQUE INDEX actions_open_subject ON actions (kind, subject)
    WHERE subject <> '' AND state IN ('prepared', 'sending', 'unknown') AND resolution IS NULL""",
    "CREATE INDEX actions_key ON actions (key)",
    "CREATE INDEX actions_result_id ON actions (result_id)",
    "CREATE INDEX actions_subject ON actions (subject, kind)",
    "CREATE INDEX actions_under_way ON actions (state) WHERE state IN ('prepared', 'sending')",
    "CREATE INDEX actions_unresolved ON actions (seq) WHERE state = 'unknown' AND resolution IS NULL",
    "CREATE INDEX actions_superseded ON actions (superseded_by) WHERE superseded_by IS NOT NULL",
    """CREATE TABLE audit (
        seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, action_id TEXT NOT NULL, transition TEXT NOT NULL,
        detail TEXT, user TEXT, host TEXT, surface TEXT
    ) STRICT""",
    "CREATE INDEX audit_action_id ON audit (action_id)",
    """CREATE TRIGGER audit_refuses_update BEFORE UPDATE ON audit
    BEGIN SELECT raise(ABORT, 'the audit is only ever added to'); END""",
    """CREATE TRIGGER audit_refuses_delete BEFORE DELETE ON audit
    BEGIN SELECT raise(ABORT, 'the audit is only ever added to'); END""",
)
DAMAGE_CURE: Final = (
    "It is the only record of what was sent, and is never rebuilt by itself: restore it from a backup, or save its"
    " readable parts with `sqlite3 FILE .recover`. To continue without it, move it away, and first check by hand"
    " every organization and run whose creation was under way."
)
SCHEMA: Final = Schema(
    name="ledger",
    steps={"0001_ledger": _TABLES},
    newer_cure="Install that version again: the ledger must not be written by a program that does not know all of it.",
    damage_cure=DAMAGE_CURE,
    older_cure="Settle its open actions with that version, then move the file away; a new one is begun.",
)


def connect_to_read(path: Path, problem: StorageError) -> sqlite3.Connection:
    """A connection to a ledger that must not be written: another version's, or a copy of a damaged one's rows.

    Raises:
        StorageError: `problem` itself: nothing of the file can be read.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_WAIT_S, isolation_level=None)
        if not isinstance(problem, DatabaseDamagedError):
            # Another version may not have all columns that this one reads.
            connection.execute(f"SELECT {COLUMNS} FROM actions LIMIT 0")
            return connection
        copy = sqlite3.connect(":memory:", isolation_level=None)
        migrate(copy, SCHEMA, path)
        with closing(connection):
            for table in ("actions", "audit"):
                known = [name for _, name, *_ in copy.execute(f"PRAGMA table_info({table})").fetchall()]
                there = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()}
                names = [name for name in known if name in there]
                insert = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
                # Reading from both ends saves the most: each walk stops at the first page that cannot be read.
                for order in ("ASC", "DESC"):
                    with suppress(sqlite3.Error):
                        for row in connection.execute(
                            f"SELECT {', '.join(names)} FROM {table} NOT INDEXED ORDER BY seq {order}"
                        ):
                            with suppress(sqlite3.IntegrityError):
                                copy.execute(insert, row)
        if copy.execute("SELECT 1 FROM actions").fetchone() is None:
            raise problem
    except sqlite3.Error as error:
        raise problem from error
    return copy
