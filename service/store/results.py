"""The stored logs and diffs of turns: in the data folder (SQLite), or in the database (PostgreSQL)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from service.settings import DataFolder
from service.store import turn_files
from service.store.turn_files import LARGEST_FILE, Key

DiffKind = Literal["diff", "run.diff"]
"""A turn's own change, or the whole run's up to it."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of a turn's log."""

    offset: int
    size: int
    """The size of the whole log, in bytes."""
    data: bytes


class TurnResults:
    """The logs and diffs of a service's turns."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder

    def log_sizes(self, connection: sa.Connection, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the size in bytes of each of these turns' logs; turns without a log are left out."""
        if not _is_in_folder(connection):
            return turn_files.log_sizes(connection, keys)
        files = {key: self._folder.turn_log(*key) for key in keys}
        return {key: file.stat().st_size for key, file in files.items() if file.exists()}

    def log(self, connection: sa.Connection, key: Key, offset: int, limit: int) -> LogPiece | None:
        """Return up to `limit` bytes of a log from an offset; a negative one counts from the end; None: no log."""
        size = self.log_sizes(connection, [key]).get(key)
        if size is None:
            return None
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        limit = min(limit, size - start)
        if _is_in_folder(connection):
            with self._folder.turn_log(*key).open("rb") as file:
                file.seek(start)
                return LogPiece(start, size, file.read(limit))
        return LogPiece(start, size, turn_files.read_log(connection, key, start, limit))

    def diff(self, connection: sa.Connection, key: Key, kind: DiffKind) -> bytes | None:
        """Return a patch, cut after 16 MiB; None: none is stored."""
        if not _is_in_folder(connection):
            return turn_files.content(connection, key, kind)
        file = self._folder.turn_diff(*key) if kind == "diff" else self._folder.run_diff(*key)
        if not file.exists():
            return None
        with file.open("rb") as patch:
            return patch.read(LARGEST_FILE)


def _is_in_folder(connection: sa.Connection) -> bool:
    return connection.dialect.name == "sqlite"
