"""Copies of a database while it is in use."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from storage.database import connect
from storage.errors import DatabaseDamagedError, storage_error
from storage.private_file import make_private

T = TypeVar("T")
_COPY_CURE: Final = "Restore it from an earlier copy, or save what can be saved with `sqlite3 FILE .recover`."


def copy_database(source: Path, target: Path) -> None:
    """Copy a database, while others may write to it, into a new file that only its owner can read.

    Raises:
        StorageError: One of them cannot be used, or the copy is damaged; no target is left behind.
        FileExistsError: The target exists already.
    """
    partial = target.with_name(f".{target.name}.part")
    if target.exists():
        raise FileExistsError(target)
    try:
        partial.unlink(missing_ok=True)
        make_private(partial)
        with closing(_opened(source)) as reading, closing(_opened(partial)) as writing:
            _translated(source, lambda: reading.backup(writing))
            _translated(partial, lambda: _check_copy(writing, source))
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _opened(path: Path) -> sqlite3.Connection:
    return _translated(path, lambda: connect(path, {}))


def _translated(path: Path, work: Callable[[], T]) -> T:
    try:
        return work()
    except sqlite3.Error as error:
        translated = storage_error(error, path, damage_cure=_COPY_CURE)
        raise (translated or error) from error


def _check_copy(copy: sqlite3.Connection, source: Path) -> None:
    (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise DatabaseDamagedError(f"The copy of {source} is damaged ({verdict}). {_COPY_CURE}", path=source)
