"""The state's file: durable before it is fast, like the ledger, because a lost claim would be acted on twice."""

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.database import Schema
from storage.errors import DatabaseUnopenableError
from storage.ledger.opening import connect_precious

if TYPE_CHECKING:
    from sqlite_utils import Database

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""An escaped character in a mount point, such as a blank."""
MOUNTS: Final = Path("/proc/self/mountinfo")
"""The mounts, as Linux lists them."""
NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p"),
        *("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "davfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.rclone", "fuse.s3fs", "fuse.davfs2", "fuse.gcsfuse"),
    }
)
"""File systems whose locks may not hold between machines, or at all."""
_TABLES: Final = (
    """CREATE TABLE rules (
        rule TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, since_us INTEGER NOT NULL,
        failures INTEGER NOT NULL DEFAULT 0, paused TEXT, looked INTEGER NOT NULL DEFAULT 0
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


def _create(db: "Database") -> None:
    for statement in _TABLES:
        db.execute(statement)


SCHEMA: Final = Schema(
    name="state",
    steps={"0001_state": _create},
    newer_cure="Install that version again: what it claimed must not be claimed a second time.",
)
DAMAGE_CURE: Final = (
    "It says what the automations have done already, and is never rebuilt by itself: restore it from a backup. To go on"
    " without it, move it away yourself: every automation then begins as if it were new, and looks forward only."
)


def connect(path: Path) -> sqlite3.Connection:
    """Open the state's connection, and create its file if needed.

    Raises:
        StorageError: It lies on a network file system; or as `connect_precious`.
    """
    if (kind := file_system(path.parent)) in NETWORK:
        raise DatabaseUnopenableError(
            f"{path} is on a network file system ({kind}), where two bots could both hold a lock and act twice. Set"
            " data_dir in the configuration, or RUNWARDEN_DATA_DIR, to a folder on a local disk.",
            path=path,
        )
    return connect_precious(path, SCHEMA, DAMAGE_CURE)


def file_system(folder: Path) -> str | None:
    """The kind of the file system that a folder is on, or will be; None: the system does not tell."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    path, best, kind = folder.resolve(), -1, None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4]))
        # Of several mounts at one point the last one is on top.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split(" ")[0]
    return kind
