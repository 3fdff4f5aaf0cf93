"""The cache's tables, laid out for a million runs. A cache of another layout is not migrated but fetched again."""

import sqlite3
import zlib
from typing import Final

from storage.cache.run_sql import ACTIVE_SQL
from storage.cache.texts import BLOCK
from storage.records import SORTABLE

# The columns for tables and filters are apart from the bodies, so that a scan reads a fifth of the pages.
_TABLES: Final = f"""
-- `after_us`, by our clock: when it certainly had not happened yet. 0: not known.
-- `agent`: empty if not known. `findings`: see `packed`.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, status TEXT NOT NULL, is_final INTEGER NOT NULL,
    branch TEXT NOT NULL, repository TEXT NOT NULL, created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL,
    first_seen_us INTEGER NOT NULL, presence TEXT NOT NULL, first_status TEXT NOT NULL,
    first_at_us INTEGER NOT NULL, after_us INTEGER NOT NULL, active_since_us INTEGER NOT NULL,
    worked_us INTEGER NOT NULL, took_us INTEGER NOT NULL, severity INTEGER NOT NULL,
    search TEXT NOT NULL, agent TEXT NOT NULL, findings INTEGER NOT NULL
) STRICT;
-- All that is read and written of a run that has not changed.
CREATE TABLE sightings (id INTEGER PRIMARY KEY, digest INTEGER NOT NULL, asked_us INTEGER NOT NULL) STRICT;
-- When the service last changed a run, by its own answer to a write.
CREATE TABLE written (run INTEGER PRIMARY KEY, updated_us INTEGER NOT NULL) STRICT;
CREATE TABLE run_bodies (
    id INTEGER PRIMARY KEY, platform TEXT NOT NULL, data_json TEXT NOT NULL, raw_json TEXT NOT NULL
) STRICT;
CREATE TABLE summaries (run INTEGER PRIMARY KEY, summary_json TEXT NOT NULL) STRICT;
-- See `storage.cache.texts`.
CREATE TABLE texts (block INTEGER PRIMARY KEY, newest_us INTEGER NOT NULL, texts BLOB NOT NULL) STRICT;
CREATE INDEX texts_newest ON texts (newest_us DESC);
CREATE TABLE transitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL,
    at_us INTEGER NOT NULL, after_us INTEGER NOT NULL
) STRICT;
CREATE INDEX transitions_run ON transitions (run);
CREATE TABLE statuses (
    status TEXT PRIMARY KEY, runs INTEGER NOT NULL, is_final INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE repositories (label TEXT PRIMARY KEY, newest_us INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- Falling, as history comes in: appending fills the pages of an index, what is put before leaves them half empty.
CREATE UNIQUE INDEX runs_id ON runs (run_id DESC);
-- With the status: a filter by statuses in the default order is answered by the index alone.
CREATE INDEX runs_created ON runs (created_us DESC, run_id DESC, status);
-- Few runs are active at a time, and every poll asks for them.
CREATE INDEX runs_going ON runs (created_us, run_id, status, is_final, presence) WHERE {ACTIVE_SQL};
-- Equal answers in a row extend one span.
CREATE TABLE platforms (
    platform TEXT PRIMARY KEY, status TEXT NOT NULL, host TEXT, host_group TEXT, raw_json TEXT NOT NULL,
    since_us INTEGER NOT NULL, checked_us INTEGER NOT NULL, connected INTEGER NOT NULL, before TEXT
) STRICT;
CREATE TABLE health_spans (
    id INTEGER PRIMARY KEY, platform TEXT NOT NULL, status TEXT NOT NULL, start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL, samples INTEGER NOT NULL
) STRICT;
CREATE INDEX health_spans_platform ON health_spans (platform, end_us);
CREATE TABLE links (
    subject TEXT PRIMARY KEY, last_ok_us INTEGER, failing_since_us INTEGER, failures INTEGER NOT NULL,
    error_kind TEXT, error_message TEXT, in_lab INTEGER NOT NULL, dropped INTEGER NOT NULL DEFAULT 0,
    newest_us INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE poll_log (
    id INTEGER PRIMARY KEY, subject TEXT NOT NULL, error_kind TEXT, error_message TEXT, http_status INTEGER,
    first_us INTEGER NOT NULL, last_us INTEGER NOT NULL, polls INTEGER NOT NULL
) STRICT;
CREATE INDEX poll_log_subject ON poll_log (subject, id);
CREATE TABLE coverage (start_us INTEGER PRIMARY KEY, end_us INTEGER NOT NULL, as_of_us INTEGER NOT NULL) STRICT;
CREATE TABLE places (bottom_us INTEGER PRIMARY KEY, token TEXT NOT NULL, total INTEGER) STRICT;
CREATE TABLE notes (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE backfill_progress (
    one INTEGER PRIMARY KEY CHECK (one = 1), phase TEXT NOT NULL, done_runs INTEGER NOT NULL,
    estimated_runs INTEGER, seconds_left REAL, until_us INTEGER, why TEXT NOT NULL, told_us INTEGER NOT NULL
) STRICT;
-- Active runs: since when, and when last, polls saw them without a gap.
CREATE TABLE watched (run INTEGER PRIMARY KEY, since_us INTEGER NOT NULL, last_us INTEGER NOT NULL) STRICT;
CREATE TABLE stuck (run INTEGER PRIMARY KEY, active_since_us INTEGER NOT NULL, p95_us INTEGER NOT NULL) STRICT;
CREATE TABLE questions (
    run_id TEXT PRIMARY KEY, question TEXT NOT NULL, choices_json TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE pins (run_id TEXT PRIMARY KEY, pinned_us INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE mark (
    one INTEGER PRIMARY KEY, transition_id INTEGER NOT NULL, run INTEGER NOT NULL, kept_us INTEGER NOT NULL
) STRICT;
-- What `_TRIGGERS` and the storing of new runs record. None is ever changed, and the newest `KEPT_EVENTS` stay.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, repository TEXT NOT NULL, branch TEXT NOT NULL,
    old TEXT, new TEXT NOT NULL, at_us INTEGER NOT NULL
) STRICT;
-- One row for each field of `BudgetState`.
CREATE TABLE budget (name TEXT PRIMARY KEY, value REAL NOT NULL) STRICT, WITHOUT ROWID;
"""

KEPT_EVENTS: Final = 100_000
"""Changes of status that stay, even of runs that are dropped."""
_TRIGGERS: Final = (
    # Also when the service says later that a failed run was cancelled, unless its failure was history: then neither a
    # change nor its first sight was an event. The change itself is recorded before.
    """CREATE TRIGGER event_of_change AFTER UPDATE OF status ON runs
    WHEN OLD.status <> NEW.status AND (
        (OLD.status, NEW.status) <> ('failed', 'cancelled') OR EXISTS (SELECT 1 FROM transitions WHERE run = NEW.id)
        OR NEW.created_us > (SELECT value FROM notes WHERE name = 'news_from_us')
    ) BEGIN
        INSERT INTO events (run_id, repository, branch, old, new, at_us)
        VALUES (NEW.run_id, NEW.repository, NEW.branch, OLD.status, NEW.status, coalesce(
            (SELECT at_us FROM transitions WHERE run = NEW.id ORDER BY id DESC LIMIT 1), NEW.first_at_us));
    END""",
    f"""CREATE TRIGGER text_changed AFTER UPDATE OF search ON runs WHEN OLD.search <> NEW.search BEGIN
        DELETE FROM texts WHERE block = NEW.id / {BLOCK};
    END""",
    f"""CREATE TRIGGER event_cap AFTER INSERT ON events BEGIN
        DELETE FROM events WHERE id = NEW.id - {KEPT_EVENTS};
    END""",
)

ORDER_INDEXES: Final = {
    field.name: f"CREATE INDEX IF NOT EXISTS runs_{field.name} ON runs ({field.index})"
    for field in SORTABLE
    if field.index
}
"""An index for each order, made when it is first asked for: kept from the start, they double the cost of storing."""

_MEANING: Final = "1"
"""Raise the number when a column's meaning changes while its SQL stays the same."""

LAYOUT: Final = zlib.crc32("".join((_MEANING, _TABLES, *_TRIGGERS, *ORDER_INDEXES.values())).encode()) >> 1
"""Identifies this layout in a cache's header, where SQLite keeps 31 bits."""


def layout_of(connection: sqlite3.Connection) -> int:
    """The layout of the open cache; 0: it has none yet, or one from before layouts were numbered."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def make_index(connection: sqlite3.Connection, order: str) -> None:
    connection.execute(ORDER_INDEXES[order])


def create(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty cache, inside the caller's transaction."""
    for statement in (*_TABLES.split(";"), *_TRIGGERS):
        connection.execute(statement)
    # Tells the cursors of this cache's events from those of another.
    connection.execute("INSERT INTO notes (name, value) VALUES ('identity', abs(random() % (1 << 32)))")
    connection.execute(f"PRAGMA user_version = {LAYOUT}")
