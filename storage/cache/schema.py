"""The cache's tables, laid out for a million runs."""

from typing import TYPE_CHECKING, Final

from storage.cache.run_sql import took_us
from storage.database import Schema

if TYPE_CHECKING:
    from sqlite_utils import Database


def _first(db: "Database") -> None:
    _runs(db)
    _health(db)
    _link(db)


def _runs(db: "Database") -> None:
    # Columns of tables and filters are kept apart from the bodies: a scan reads a fifth of the pages.
    db.execute(
        """
        CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL UNIQUE,
            status TEXT NOT NULL,
            branch TEXT NOT NULL,
            repository TEXT NOT NULL,
            created_us INTEGER NOT NULL,
            updated_us INTEGER NOT NULL,
            first_seen_us INTEGER NOT NULL,
            last_seen_us INTEGER NOT NULL,
            presence TEXT NOT NULL,
            first_status TEXT NOT NULL,
            first_at_us INTEGER NOT NULL,
            active_since_us INTEGER NOT NULL,
            search TEXT NOT NULL
        ) STRICT
        """
    )
    db.execute(
        "CREATE TABLE run_bodies ("
        " id INTEGER PRIMARY KEY, platform TEXT NOT NULL, data_json TEXT NOT NULL, raw_json TEXT NOT NULL) STRICT"
    )
    db.execute(
        "CREATE TABLE transitions ("
        " id INTEGER PRIMARY KEY, run INTEGER NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, at_us INTEGER NOT NULL"
        ") STRICT"
    )
    db.execute("CREATE INDEX transitions_run ON transitions (run)")
    db.execute("CREATE TABLE statuses (status TEXT PRIMARY KEY, runs INTEGER NOT NULL) STRICT, WITHOUT ROWID")
    db.execute("CREATE TABLE repositories (label TEXT PRIMARY KEY, newest_us INTEGER NOT NULL) STRICT, WITHOUT ROWID")
    # With the status: a filter by statuses in the default order is answered by the index alone.
    db.execute("CREATE INDEX runs_created ON runs (created_us, run_id, status)")
    # Few runs are active at a time, and every poll asks for them.
    db.execute(
        "CREATE INDEX runs_active ON runs (created_us, run_id, status) WHERE status NOT IN ('completed', 'failed')"
    )
    db.execute("CREATE INDEX runs_updated ON runs (updated_us, run_id)")
    db.execute("CREATE INDEX runs_status ON runs (status, created_us DESC, run_id DESC)")
    db.execute("CREATE INDEX runs_repository ON runs (repository, created_us DESC, run_id DESC)")
    db.execute("CREATE INDEX runs_branch ON runs (branch, created_us DESC, run_id DESC)")


def _health(db: "Database") -> None:
    db.table("platforms", strict=True).create(
        {
            "platform": str,
            "status": str,
            "host": str,
            "host_group": str,
            "raw_json": str,
            "since_us": int,
            "checked_us": int,
            "connected": int,
        },
        pk="platform",
        not_null={"status", "raw_json", "since_us", "checked_us", "connected"},
    )
    db.table("health_changes", strict=True).create(
        {"id": int, "platform": str, "old": str, "new": str, "at_us": int}, pk="id", not_null={"platform", "at_us"}
    )
    db.table("health_changes").create_index(["platform", "id"])
    # Every answer counts, but a day of the same answers is one row.
    db.table("health_spans", strict=True).create(
        {"id": int, "platform": str, "status": str, "start_us": int, "end_us": int, "samples": int},
        pk="id",
        not_null={"platform", "status", "start_us", "end_us", "samples"},
    )
    db.table("health_spans").create_index(["platform", "end_us"])


def _link(db: "Database") -> None:
    db.table("links", strict=True).create(
        {
            "subject": str,
            "last_ok_us": int,
            "failing_since_us": int,
            "failures": int,
            "error_kind": str,
            "error_message": str,
        },
        pk="subject",
        not_null={"failures"},
    )
    db.table("coverage", strict=True).create({"start_us": int, "end_us": int}, pk="start_us", not_null={"end_us"})
    db.table("leases", strict=True).create(
        {"name": str, "owner": str, "until_us": int}, pk="name", not_null={"owner", "until_us"}
    )


def _insights(db: "Database") -> None:
    # Wider indexes, not more: the same orders, and the figures of a million runs without reading the table.
    db.execute("DROP INDEX runs_repository")
    db.execute(
        "CREATE INDEX runs_repository ON runs"
        " (repository, created_us DESC, run_id DESC, status, active_since_us, updated_us)"
    )
    db.execute("DROP INDEX runs_updated")
    db.execute("CREATE INDEX runs_updated ON runs (updated_us, run_id, status)")
    db.execute("CREATE INDEX runs_moved ON runs (active_since_us, created_us) WHERE active_since_us <> created_us")


def _activity(db: "Database") -> None:
    db.table("poll_log", strict=True).create(
        {
            "id": int,
            "subject": str,
            "error_kind": str,
            "error_message": str,
            "http_status": int,
            "first_us": int,
            "last_us": int,
            "polls": int,
        },
        pk="id",
        not_null={"subject", "first_us", "last_us", "polls"},
    )
    db.table("poll_log").create_index(["subject", "id"])


def _took(db: "Database") -> None:
    db.execute("ALTER TABLE runs ADD COLUMN took_us INTEGER NOT NULL DEFAULT -1")
    db.execute(f"UPDATE runs SET took_us = {took_us('status', 'created_us', 'updated_us')}")
    db.execute("CREATE INDEX runs_took ON runs (took_us, run_id, status)")


def _following(db: "Database") -> None:
    db.execute(
        "CREATE TABLE stuck ("
        " run INTEGER PRIMARY KEY, active_since_us INTEGER NOT NULL, p95_us INTEGER NOT NULL) STRICT"
    )
    db.execute("CREATE TABLE pins (run_id TEXT PRIMARY KEY, pinned_us INTEGER NOT NULL) STRICT, WITHOUT ROWID")
    db.execute("CREATE TABLE claims (key TEXT PRIMARY KEY, at_us INTEGER NOT NULL) STRICT, WITHOUT ROWID")
    db.execute("CREATE INDEX claims_at ON claims (at_us)")
    db.execute(
        "CREATE TABLE mark (one INTEGER PRIMARY KEY, transition_id INTEGER NOT NULL, run INTEGER NOT NULL,"
        " kept_us INTEGER NOT NULL) STRICT"
    )


def _lab(db: "Database") -> None:
    db.execute("ALTER TABLE links ADD COLUMN in_lab INTEGER NOT NULL DEFAULT 0")


def _coverage(db: "Database") -> None:
    # The ranges of earlier versions claimed more than they knew: the next polls find out again.
    db.execute("DROP TABLE coverage")
    db.execute(
        "CREATE TABLE coverage (start_us INTEGER PRIMARY KEY, end_us INTEGER NOT NULL, as_of_us INTEGER NOT NULL)"
        " STRICT"
    )
    db.execute("CREATE TABLE service_traits (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID")


SCHEMA: Final = Schema(
    name="cache",
    steps={
        "0001_first": _first,
        "0002_insights": _insights,
        "0003_activity": _activity,
        "0004_took": _took,
        "0005_following": _following,
        "0006_lab": _lab,
        "0007_coverage": _coverage,
    },
    newer_cure="Install that version again, or delete the file: everything in it can be fetched again.",
)
