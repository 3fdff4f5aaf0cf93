"""The ledger's table; its unique indexes keep the promises even against a bug above them."""

from typing import TYPE_CHECKING, Final

from storage.database import Schema

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


SCHEMA: Final = Schema(
    name="ledger",
    steps={"0001_first": _first},
    newer_cure="Install that version again: the ledger must not be written by a program that does not know all of it.",
)
