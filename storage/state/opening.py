"""The state's tables: like the ledger it is never rebuilt, because a lost claim would be acted on twice."""

from typing import Final

from storage.database import Schema

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
_ANSWERS: Final = tuple(
    f"ALTER TABLE decisions ADD COLUMN {column}"
    for column in ("answer TEXT", "answered_by TEXT", "answered_us INTEGER")
)
DAMAGE_CURE: Final = (
    "It records what the automations have done already, and is never rebuilt by itself: restore it from a backup. To"
    " continue without it, move it away: every automation then begins as if it were new, and looks forward only."
)
SCHEMA: Final = Schema(
    name="state",
    steps={"0001_state": _TABLES, "0002_answers": _ANSWERS},
    newer_cure="Install that version again: what it claimed must not be claimed a second time.",
    damage_cure=DAMAGE_CURE,
)
