"""The state's file: durable before it is fast, like the ledger, because a lost claim would be acted on twice."""

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.database import Schema
from storage.errors import DatabaseUnopenableError
from storage.ledger.opening import connect_precious
from storage.state import deliveries, inbox

if TYPE_CHECKING:
    from sqlite_utils import Database

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""An escaped character in a mount point, such as a blank."""
MOUNTS: Final = Path("/proc/self/mountinfo")
"""The mounts, as Linux lists them."""
NETWORK: Final = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ncpfs",
            "afs",
            "9p",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
            "beegfs",
        ),
        *(
            "davfs",
            "fuse.sshfs",
            "fuse.glusterfs",
            "fuse.ceph",
            "fuse.rclone",
            "fuse.s3fs",
            "fuse.davfs2",
            "fuse.gcsfuse",
        ),
    }
)
"""File systems whose locks may not hold between machines, or at all."""


def _first(db: "Database") -> None:
    db.table("rules", strict=True).create(
        {"rule": str, "fingerprint": str, "since_us": int, "failures": int, "paused": str, "looked": int},
        pk="rule",
        not_null={"fingerprint", "since_us", "failures", "looked"},
        defaults={"failures": 0, "looked": 0},
    )
    times = {"at_us": int, "decided_us": int, "settled_us": int}
    words = {"outcome": str, "reason": str, "conversation": str, "facts_json": str}
    words |= {"action_id": str, "result_id": str, "request_json": str, "owner_json": str}
    decisions = db.table("decisions", strict=True)
    decisions.create(
        {"id": int, "rule": str, "identity": str, **times, **words},
        pk="id",
        not_null={"rule", "identity", "at_us", "decided_us", "outcome", "reason", "conversation", "facts_json"},
    )
    # This index is the claim: a rule decides on an occurrence once.
    decisions.create_index(["rule", "identity"], unique=True)
    decisions.create_index(["rule", "decided_us"])
    decisions.create_index(["conversation", "rule"])
    db.execute("CREATE INDEX decisions_open ON decisions (id) WHERE settled_us IS NULL")
    db.table("leases", strict=True).create({"name": str, "owner": str, "until_us": int}, pk="name")
    db.execute("CREATE INDEX decisions_result ON decisions (result_id) WHERE result_id IS NOT NULL")


def _inbox(db: "Database") -> None:
    columns = {"key": str, "done_us": int, "snoozed_us": int, "muted": int}
    db.table("inbox", strict=True).create({**columns, "marked_us": int}, pk="key", not_null={"muted", "marked_us"})
    db.table("inbox_undo", strict=True).create(columns, pk="key", not_null={"muted"})


def _telling(db: "Database") -> None:
    deliveries.create(db)
    inbox.create_silences(db)


def _undo_levels(db: "Database") -> None:
    db.execute("ALTER TABLE inbox ADD COLUMN seen_us INTEGER")
    db.execute("DROP TABLE inbox_undo")
    columns = {"step": int, "key": str, "done_us": int, "snoozed_us": int, "muted": int, "seen_us": int}
    db.table("inbox_undo", strict=True).create(columns, pk=("step", "key"), not_null={"muted"})


def _owned(db: "Database") -> None:
    db.execute("ALTER TABLE decisions ADD COLUMN owned_us INTEGER")
    for table in ("decisions", "deliveries"):
        db.execute(f"CREATE INDEX {table}_settled ON {table} (settled_us)")
    db.execute("CREATE INDEX decisions_limited ON decisions (decided_us) WHERE outcome = 'limited'")


SCHEMA: Final = Schema(
    name="state",
    steps={
        "0001_first": _first,
        "0002_inbox": _inbox,
        "0003_telling": _telling,
        "0004_undo_levels": _undo_levels,
        "0005_owned": _owned,
    },
    newer_cure="Install that version again: what it claimed must not be claimed a second time.",
)
DAMAGE_CURE: Final = (
    "It says what the automations have done already, and is never rebuilt by itself: restore it from a backup. To go on"
    " without it, move it away yourself: every automation then begins as if it were new, and looks forward only."
)


def connect(path: Path) -> sqlite3.Connection:
    """Open the state's connection, and create or migrate its file if needed.

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
