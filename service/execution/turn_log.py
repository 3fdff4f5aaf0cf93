"""The log of a turn at work: in the data folder, and, while it grows, where other machines read it (PostgreSQL)."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from service.store import turn_files
from service.store.database import Database
from service.store.turn_files import Key


@dataclass(slots=True)
class TurnAtWork:
    """A turn that this process works on."""

    key: Key
    attempt: int
    log_file: Path
    ended: threading.Event = field(default_factory=threading.Event)
    """Set: the turn has been ended, by a caller or an operator."""
    _shared: int = field(init=False)
    """The offset up to which others have the log; an earlier attempt's part comes before it."""
    _sharing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Begin where the file ends."""
        self._shared = self.log_file.stat().st_size if self.log_file.exists() else 0

    def share(self, database: Database) -> None:
        """Share what was added since the last time; with SQLite there is only this machine."""
        if database.is_sqlite:
            return
        with self._sharing:
            with self.log_file.open("rb") as file:
                file.seek(self._shared)
                added = file.read(turn_files.LARGEST_FILE)
            if added:
                with database.write() as connection:
                    turn_files.append_log(connection, self.key, self.attempt, added)
                self._shared += len(added)

    def share_all(self, database: Database, diffs: dict[str, Path]) -> None:
        """Give others the rest of the log, and the patches."""
        if database.is_sqlite:
            return
        self.share(database)
        kept = {kind: file.read_bytes() for kind, file in diffs.items() if file.exists()}
        with database.write() as connection:
            turn_files.pack_log(connection, self.key)
            for kind, content in kept.items():
                turn_files.put(connection, self.key, self.attempt, kind, content)
