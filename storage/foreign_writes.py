"""Noticing what other processes wrote to our files, at the price of a look at the files' times."""

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
    """Tells whether another process wrote since it was asked last."""

    def __init__(self, cache: Cache, ledger: Ledger, state: State | None = None) -> None:
        others = (ledger,) if state is None else (ledger, state)
        self._databases = (cache, *others)
        path = cache.writer.path
        # The cache's changes come into its WAL first; those of the others come into their files at once.
        self._files = (path.with_name(path.name + "-wal"), *(database.writer.path for database in others))
        self._stamps: tuple[_Stamp | None, ...] | None = None
        """None: the files were changing."""
        self._versions: tuple[int, ...] | None = None

    async def noticed(self) -> bool:
        """Whether another process wrote; False when asked for the first time.

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


def _stamp(file: Path) -> _Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None  # The WAL comes with the first write.
    return found.st_mtime_ns, found.st_size, found.st_ino
