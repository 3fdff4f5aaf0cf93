"""The ledger: every write is recorded here first. Its file is never rebuilt."""

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from msgspec.structs import replace

from storage.claims import this_process
from storage.database import BUSY_WAIT_S, Schema, migrate, open_durable
from storage.errors import DatabaseDamagedError, DatabaseNewerError, StorageError
from storage.ledger import queries, transitions
from storage.ledger.queries import COLUMNS
from storage.ledger.transitions import new_action_id
from storage.records import Action, ActionFailure, Author, SettledState
from storage.thread import DatabaseThread, ThreadedStore, reads, reads_counts, writes, writes_now
from storage.values import Clock, utc_now

_TABLES: Final = (
    """CREATE TABLE actions (
        seq INTEGER PRIMARY KEY, action_id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, subject TEXT NOT NULL,
        key TEXT NOT NULL, path TEXT NOT NULL, body_json TEXT NOT NULL, actor TEXT NOT NULL, state TEXT NOT NULL,
        created_us INTEGER NOT NULL, sending_us INTEGER, settled_us INTEGER,
        error_kind TEXT, error_message TEXT, error_status INTEGER, error_code TEXT,
        response_json TEXT, result_id TEXT, resolution TEXT, superseded_by TEXT,
        base_url TEXT, user TEXT, host TEXT, surface TEXT, owner_json TEXT NOT NULL, owned_us INTEGER NOT NULL
    ) STRICT""",
    # An action that certainly had no effect does not occupy its key.
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
DAMAGE_FIX: Final = (
    "It is the only record of what was sent, and is never rebuilt by itself: restore it from a backup, or save its"
    " readable parts with `sqlite3 FILE .recover`. To continue without it, move it away, and first check by hand"
    " every organization and run whose creation was under way."
)
SCHEMA: Final = Schema(
    name="ledger",
    steps={"0001_ledger": _TABLES},
    newer_fix="Install that version again: the ledger must not be written by a program that does not know all of it.",
    damage_fix=DAMAGE_FIX,
)


def connect_to_read(path: Path, problem: StorageError) -> sqlite3.Connection:
    """A connection to a ledger that must not be written: another version's, or a copy of a damaged one's rows.

    Raises `problem` itself if nothing of the file can be read.
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
                names_there = [name for _, name, *_ in copy.execute(f"PRAGMA table_info({table})").fetchall()]
                columns = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()}
                names = [name for name in names_there if name in columns]
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


MOVED_FIX: Final = "Put it back, or end Runwarden and start it again: a write in a lost ledger could be sent twice."
NO_AUTHOR: Final = Author()
_thread = partial(DatabaseThread, name="ledger", damage_fix=DAMAGE_FIX, moved_fix=MOVED_FIX)


@dataclass(eq=False)
class Ledger(ThreadedStore):
    """The actions of one profile, in one SQLite file that is on disk before any call returns."""

    author: Author = NO_AUTHOR

    @classmethod
    async def open(cls, path: Path, *, author: Author = NO_AUTHOR, clock: Clock = utc_now) -> Self:
        """Open the ledger, and create it if needed; `author` acts through it.

        A damaged ledger (it is never rebuilt), or one that another version wrote, can still be read: see `problem`.
        """
        try:
            thread = await _thread(path).start(partial(open_durable, path, SCHEMA))
            return cls(thread, thread, clock, author=author)
        except (DatabaseDamagedError, DatabaseNewerError) as problem:
            thread = await _thread(path).start(partial(connect_to_read, path, problem))
            return cls(thread, thread, clock, problem, author)

    # The program's transitions

    async def prepare(self, entry: Action, *, again: bool = True, supersedes: str | None = None) -> Action:
        """Enter an action, owned by this process and its author; nothing of it is sent yet.

        `again`: an organization may be created for an address that has one. `supersedes`: the unknown action that the
        user sent again as this one; it is open again if this one had no effect.

        Raises:
            WrongStateError: The superseded action is not unknown, or was resolved.
            KeyTakenError: An action with the same key may have had an effect.
            SubjectBlockedError: An action of the same kind and subject has an open outcome.
            AlreadyDoneError: An organization was created for the address, and this may not be another one.
            DatabaseUnopenableError: The file was moved or deleted under this process.
        """
        self.writer.check_place()
        await self.adopt_orphans()  # The writes of a dead process must not block.
        entry = replace(entry, author=self.author)
        return await self._enter(entry, this_process(), supersedes, again=again)

    async def sending(self, action_id: str) -> Action:
        """Commit that the first byte is about to leave.

        Raises:
            NoSuchActionError: It is not in the ledger.
            WrongStateError: It is not `prepared`: it was sent or given up.
        """
        return await self._apply(self.author, action_id, transitions.SENDING)

    async def settle(
        self,
        action_id: str,
        state: SettledState,
        error: ActionFailure | None = None,
        result_id: str | None = None,
        response_json: str | None = None,
    ) -> Action:
        """Record how sending it ended; raises as `sending`, unless it is `sending`, or `prepared` and `not_sent`."""
        return await self._apply(self.author, action_id, transitions.SETTLING[state], error, result_id, response_json)

    # The user's transitions

    async def resolve(self, action_id: str, result_id: str | None) -> Action:
        """Record its result; None: it was not done. Raises as `sending`, unless it is `unknown` and unresolved."""
        transition = transitions.RESOLVE_NOT_CREATED if result_id is None else transitions.RESOLVE_CREATED
        return await self._apply(self.author, action_id, transition, result_id=result_id)

    async def unresolve(self, action_id: str) -> Action:
        """Undo a resolution: the outcome is unknown again.

        Raises:
            NoSuchActionError: It is not in the ledger.
            WrongStateError: It was not resolved as created or as not created.
            SubjectBlockedError: Another action on its subject has an open outcome.
            KeyTakenError: Another action was sent under its key.
        """
        return await self._apply(self.author, action_id, transitions.UNRESOLVE)

    async def adopt_orphans(self) -> tuple[Action, ...]:
        """Settle and return the actions of dead processes: `prepared` was not sent, `sending` is unknown."""
        if self.problem is not None:
            return ()
        return await self.writer.run(lambda connection: transitions.adopt(connection, self.clock(), self.author))

    _enter = writes(transitions.enter)
    _apply = writes_now(transitions.apply)

    check = reads(transitions.check)
    action = reads(queries.action)
    actions = reads(queries.actions)
    count = reads(queries.count)
    unresolved = reads(queries.unresolved_actions)
    state_counts = reads_counts("SELECT kind, state, count(*) FROM actions GROUP BY kind, state")
    for_run = reads(queries.for_run)
    results = reads(queries.results)
    run_ids = reads(queries.run_ids)
    agents = reads(queries.agents)
    organizations = reads(queries.organizations)
    unknown_spans = reads(queries.unknown_spans)
    audit = reads(queries.steps)
