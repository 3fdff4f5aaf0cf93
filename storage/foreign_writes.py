"""Detects other processes' writes to our databases, by the times of the files."""

import time
from pathlib import Path
from typing import Final

from storage.cache import Cache
from storage.ledger import Ledger
from storage.state import State

SETTLED_S: Final = 0.1
"""A file changed less long ago may change again without a later time: file times move in steps."""

_Stamp = tuple[int, int, int]


class ForeignWrites:
    """Tells whether another process wrote since the last call."""

    def __init__(self, *databases: Cache | Ledger | State) -> None:
        self._databases = databases
        self._files = tuple(map(_written_first, databases))
        self._stamps: tuple[_Stamp | None, ...] | None = None
        """None: the files were changing."""
        self._versions: tuple[int, ...] | None = None

    async def noticed(self) -> bool:
        """Whether another process wrote; False at the first call.

        Raises:
            StorageError: A database cannot be asked.
        """
        stamps = tuple(_stamp(file) for file in self._files)
        if stamps == self._stamps:
            return False
        latest_s = max((stamp[0] for stamp in stamps if stamp is not None), default=0) / 1e9
        self._stamps = stamps if abs(time.time() - latest_s) > SETTLED_S else None
        versions = tuple([await database.data_version() for database in self._databases])
        before, self._versions = self._versions, versions
        return before is not None and versions != before


def _written_first(database: Cache | Ledger | State) -> Path:
    path = database.writer.path
    # The cache's changes come into its WAL first; those of the precious files come into the file at once.
    return path.with_name(path.name + "-wal") if isinstance(database, Cache) else path


def _stamp(file: Path) -> _Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None  # The WAL comes with the first write.
    return found.st_mtime_ns, found.st_size, found.st_ino
