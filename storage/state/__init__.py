"""The state of the automations: claims, decisions, pauses, alerts and marks. Nothing can rebuild it."""

import sqlite3
from functools import partial
from pathlib import Path
from typing import Final, Self

from storage import claims
from storage.database import Schema, open_durable
from storage.private_file import check_locks
from storage.state import decisions, deliveries
from storage.state.decisions import AT_WORK, OWN
from storage.thread import DatabaseThread, ThreadedStore, reads, reads_counts, writes, writes_now
from storage.values import Clock, utc_now

_TABLES: Final = (
    """CREATE TABLE rules (
        rule TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, since_us INTEGER NOT NULL,
        failures INTEGER NOT NULL DEFAULT 0, paused TEXT, news_from_us INTEGER
    ) STRICT""",
    # The unique index is the claim: a rule decides on an occurrence once.
    """CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, rule TEXT NOT NULL, identity TEXT NOT NULL, at_us INTEGER NOT NULL,
        decided_us INTEGER NOT NULL, settled_us INTEGER, outcome TEXT NOT NULL, reason TEXT NOT NULL,
        conversation TEXT NOT NULL, facts_json TEXT NOT NULL, action_id TEXT, result_id TEXT, request_json TEXT,
        owner_json TEXT, owned_us INTEGER, UNIQUE (rule, identity)
    ) STRICT""",
    "CREATE INDEX decisions_lately ON decisions (rule, decided_us)",
    "CREATE INDEX decisions_conversation ON decisions (conversation, rule)",
    "CREATE INDEX decisions_open ON decisions (id) WHERE settled_us IS NULL",
    "CREATE INDEX decisions_settled ON decisions (settled_us)",
    "CREATE INDEX decisions_result ON decisions (result_id) WHERE result_id IS NOT NULL",
    "CREATE INDEX decisions_limited ON decisions (decided_us) WHERE outcome = 'limited'",
    "CREATE TABLE leases (name TEXT PRIMARY KEY, owner TEXT, until_us INTEGER) STRICT",
    """CREATE TABLE inbox (
        key TEXT PRIMARY KEY, done_us INTEGER, snoozed_us INTEGER, muted INTEGER NOT NULL, seen_us INTEGER,
        marked_us INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE inbox_undo (
        step INTEGER, key TEXT, done_us INTEGER, snoozed_us INTEGER, muted INTEGER NOT NULL, seen_us INTEGER,
        PRIMARY KEY (step, key)
    ) STRICT""",
    """CREATE TABLE alerts (
        key TEXT PRIMARY KEY, grp TEXT NOT NULL, source TEXT NOT NULL, route TEXT NOT NULL, level TEXT NOT NULL,
        title TEXT NOT NULL, body TEXT NOT NULL, about_json TEXT NOT NULL, at_us INTEGER, entered_us INTEGER,
        outcome TEXT
    ) STRICT""",
    "CREATE INDEX alerts_waiting ON alerts (entered_us) WHERE outcome IS NULL",
    """CREATE TABLE told (
        grp TEXT, source TEXT, route TEXT, level TEXT, title TEXT, about_json TEXT, first_us INTEGER, last_us INTEGER,
        newest_us INTEGER, count INTEGER, PRIMARY KEY (grp, source, route)
    ) STRICT""",
    """CREATE TABLE deliveries (
        id INTEGER PRIMARY KEY, route TEXT NOT NULL, batch TEXT NOT NULL, message_json TEXT NOT NULL,
        made_us INTEGER NOT NULL, due_us INTEGER NOT NULL, attempts INTEGER NOT NULL, owner_json TEXT,
        owned_us INTEGER, settled_us INTEGER, outcome TEXT, error TEXT, origin INTEGER
    ) STRICT""",
    "CREATE INDEX deliveries_open ON deliveries (due_us) WHERE outcome IS NULL",
    "CREATE INDEX deliveries_made ON deliveries (route, batch, made_us)",
    "CREATE INDEX deliveries_settled ON deliveries (settled_us)",
)
_COLUMNS: Final = ("answer TEXT", "answered_by TEXT", "answered_us INTEGER")
_ANSWERS: Final = tuple(f"ALTER TABLE decisions ADD COLUMN {column}" for column in _COLUMNS)
_REPORTED: Final = (
    "ALTER TABLE told RENAME TO reported_problems",
    "UPDATE alerts SET outcome = 'notified' WHERE outcome = 'told'",
)
DAMAGE_FIX: Final = (
    "It records what the automations have done already, and is never rebuilt by itself: restore it from a backup. To"
    " continue without it, move it away: every automation then begins as if it were new, and looks forward only."
)
SCHEMA: Final = Schema(
    name="state",
    steps={"0001_state": _TABLES, "0002_answers": _ANSWERS, "0003_reported": _REPORTED},
    newer_fix="Install that version again: what it claimed must not be claimed a second time.",
    damage_fix=DAMAGE_FIX,
)
_MOVED_FIX: Final = "Put it back, or end Runwarden and start it again: then every automation looks forward only."


def version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with any change that a screen shows; leases are not shown."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM inbox), (SELECT max(marked_us) FROM inbox), (SELECT max(step) FROM inbox_undo),"
        " (SELECT max(id) FROM decisions), (SELECT group_concat(outcome) FROM decisions WHERE settled_us IS NULL),"
        " (SELECT group_concat(rule || coalesce(paused, '')) FROM rules), (SELECT max(settled_us) FROM decisions),"
        " (SELECT max(settled_us) FROM deliveries)"
    )
    return hash(row.fetchone())


class State(ThreadedStore):
    """One profile's automations, in one SQLite file."""

    @classmethod
    async def open(cls, path: Path, *, clock: Clock = utc_now) -> Self:
        check_locks(path)
        thread = DatabaseThread(path, "state", DAMAGE_FIX, _MOVED_FIX)
        await thread.start(partial(open_durable, path, SCHEMA))
        return cls(thread, thread, clock)

    decide = writes_now(decisions.enter, checks_place=True)
    queue_once = writes_now(decisions.queue_once, checks_place=True)
    decide_again = writes_now(decisions.decide_again, checks_place=True)
    change_outcome = writes_now(decisions.change_outcome)
    answer = writes_now(decisions.answer)
    settle = writes_now(decisions.settle)
    acquire_lease = writes_now(claims.acquire_lease)
    begin_rule = writes(decisions.begin_rule)
    retire_rules = writes(decisions.retire_rules)
    store_news_from = writes(decisions.store_news_from)
    pause = writes(decisions.pause)
    resume = writes(decisions.resume)
    count_failure = writes(decisions.count_failure)
    rule_states = reads(decisions.rule_states)
    unclaimed = reads(decisions.unclaimed_identities)
    open_decisions = reads(decisions.open_decisions)
    unknown_decisions = reads(decisions.unknown_decisions)
    journal = reads(decisions.journal)
    decision = reads(decisions.decision_of)
    outcomes = reads_counts("SELECT rule, outcome, count(*) FROM decisions GROUP BY rule, outcome")
    last_result = reads(decisions.last_result)
    last_due = reads(decisions.last_due)
    conversation = reads(decisions.conversation)
    forget = writes(decisions.forget)
    marks = reads(deliveries.marks)
    mark = writes(deliveries.mark)
    undo = writes(deliveries.undo)
    data_version = reads(version)
    lease_until = reads(claims.lease_until)
    lease_owner = reads(claims.lease_owner)
    release_lease = writes(claims.release_lease)
    limited = reads(decisions.limited_decisions)
    adopt = writes(decisions.CLAIMS.adopt)
    store_request = writes(decisions.store_request)
    enter_alerts = writes(deliveries.enter_alerts)
    claim_alerts = writes(deliveries.claim_alerts)
    reported_alerts = reads(deliveries.reported_alerts)
    waiting_alerts = reads(deliveries.waiting_alerts)
    reported_problems = reads(deliveries.reported_problems)
    last_made = reads(deliveries.last_made)
    newest_delivery = reads(deliveries.newest_delivery)
    apply_plan = writes(deliveries.apply_plan)
    release_orphans = writes(deliveries.release_orphans)
    due_deliveries = reads(deliveries.due_deliveries)
    claim_delivery = writes(deliveries.claim_delivery)
    settle_delivery = writes(deliveries.settle_delivery)
    recent_deliveries = reads(deliveries.recent_deliveries)
    delivery = reads(deliveries.delivery)
    # `waiting`: on their way.
    delivery_counts = reads_counts("SELECT route, coalesce(outcome, 'waiting'), count(*) FROM deliveries GROUP BY 1, 2")
    forget_reported = writes(deliveries.forget_reported)
