"""The errors of database files, each with its fix; and the refusals of the ledger."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from storage import RunwardenError
from storage.records import Action


class StorageError(RunwardenError):
    """A database that cannot be used; the message has the file and the fix."""

    def __init__(self, message: str, *, path: Path) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class DatabaseNewerError(StorageError):
    """A newer Runwarden wrote the file, with content that this version does not know."""

    kind = "database_newer"


class DatabaseDamagedError(StorageError):
    """The file's content is not (or no longer) a sound database."""

    kind = "database_damaged"


class DatabaseReadOnlyError(StorageError):
    """No permission to write the file, or the folder for its journal."""

    kind = "database_read_only"


class DatabaseUnopenableError(StorageError):
    """The file cannot be opened."""

    kind = "database_unopenable"


class DatabaseBusyError(StorageError):
    """Another process held the file for longer than we wait."""

    kind = "database_busy"


class DiskFullError(StorageError):
    """The disk is full; no part of the write was kept."""

    kind = "disk_full"


class DiskFailedError(StorageError):
    """The disk or the file system answered with an error."""

    kind = "disk_failed"


class StorageClosedError(StorageError):
    """The database was used after it was closed."""

    kind = "storage_closed"


class LedgerRefusedError(RunwardenError):
    """The ledger refused a change; nothing changed."""


class EarlierActionError(LedgerRefusedError):
    """An earlier action blocks this one."""

    def __init__(self, existing: Action, reason: str) -> None:
        super().__init__(f"{existing.action_id} {reason}")
        self.existing = existing


class KeyTakenError(EarlierActionError):
    """The key was used before: only the first action with it is sent."""


class SubjectBlockedError(EarlierActionError):
    """An earlier action on the same subject has an open outcome."""


class AlreadyDoneError(EarlierActionError):
    """An organization was created for the address; only an explicit repetition may follow it."""


class WrongStateError(LedgerRefusedError):
    """The action's state does not allow the transition."""

    kind = "wrong_state"

    def __init__(self, action: Action, transition: str) -> None:
        resolved = f", resolved as {action.resolution}" if action.resolution else ""
        super().__init__(f"{action.action_id} is {action.state}{resolved}: {transition} is not possible from there.")
        self.action = action


class NoSuchActionError(LedgerRefusedError):
    """No entry has this id."""

    kind = "not_found"

    def __init__(self, action_id: str) -> None:
        super().__init__(f"There is no action {action_id}.")


class AmbiguousActionError(LedgerRefusedError):
    """Several entries' ids begin with this text."""

    kind = "ambiguous"


_BY_CODE: Final[dict[int, tuple[type[StorageError], str]]] = {
    sqlite3.SQLITE_CORRUPT: (DatabaseDamagedError, "The database {path} is damaged. {damage_fix}"),
    sqlite3.SQLITE_NOTADB: (DatabaseDamagedError, "The file {path} is not a database. {damage_fix}"),
    sqlite3.SQLITE_FULL: (DiskFullError, "No space is left for {path}. Free some, then try again."),
    sqlite3.SQLITE_READONLY: (
        DatabaseReadOnlyError,
        "{path} may not be written. Give yourself write access to it and to its folder, or choose another data folder.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        DatabaseUnopenableError,
        "{path} cannot be opened. Check that its folder exists and that you may read and write in it.",
    ),
    sqlite3.SQLITE_PERM: (DatabaseUnopenableError, "{path} may not be opened. Check who owns it and its permissions."),
    sqlite3.SQLITE_BUSY: (
        DatabaseBusyError,
        "Another process has held {path} for too long. Let it finish, or end it, then try again.",
    ),
    sqlite3.SQLITE_LOCKED: (DatabaseBusyError, "{path} is locked by another statement. Try again."),
    sqlite3.SQLITE_IOERR: (
        DiskFailedError,
        "The disk failed while {path} was in use ({detail}). Check the disk, or choose another data folder.",
    ),
    sqlite3.SQLITE_PROTOCOL: (
        DatabaseBusyError,
        "{path} stayed locked. Check that no process hangs on it, then try again.",
    ),
}


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code of an error, without the details in its higher bytes; 0: it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def translate_errors(path: Path, damage_fix: str, on_damage: Callable[[], None] | None = None) -> Iterator[None]:
    """Raise SQLite's errors as `StorageError`s, except those about our statements; `on_damage` is called before."""
    try:
        yield
    except sqlite3.Error as error:
        if (code := primary_code(error)) not in _BY_CODE:
            raise
        kind, message = _BY_CODE[code]
        if kind is DatabaseDamagedError and on_damage is not None:
            on_damage()
        raise kind(message.format(path=path, damage_fix=damage_fix, detail=error), path=path) from error
