"""The disk that turns share: its free space and inodes, the usage of each turn, and the turn that caused a shortage."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from service import trees
from service.settings import AgentLimits

_MIB: Final = 1 << 20
BLOCK_BYTES: Final = 512


class Usage(NamedTuple):
    """Used or free bytes and files (inodes)."""

    size: int = 0
    """The size in bytes, as the file system counts them."""
    files: int = 0

    def above(self, other: "Usage") -> "Usage":
        return Usage(max(0, self.size - other.size), max(0, self.files - other.files))


class Shortage(NamedTuple):
    """A disk whose free room is below the reserve."""

    of: Literal["size", "files"]
    text: str
    """The room left, the reserve, and the name of its setting, in words."""


def room_left(folder: Path) -> Usage:
    """Return the free room for an ordinary user on a folder's disk; some file systems do not limit files."""
    status = os.statvfs(folder)
    return Usage(status.f_bavail * status.f_frsize, status.f_favail if status.f_files else 1 << 62)


def shortage(folder: Path, limits: AgentLimits) -> Shortage | None:
    """Compare a folder's disk with the reserve; None if there is enough room."""
    free = room_left(folder)
    if free.size < limits.disk_reserve_bytes:
        reserve = mib(limits.disk_reserve_bytes)
        return Shortage("size", f"{mib(free.size)} are left, {reserve} are kept free (disk_reserve_bytes)")
    if free.files < limits.disk_reserve_files:
        reserve = f"{limits.disk_reserve_files} are kept free (disk_reserve_files)"
        return Shortage("files", f"{free.files} more files can be made, {reserve}")
    return None


def usage_of(folders: Iterable[Path]) -> Usage:
    size = files = 0
    for folder in folders:
        # The agent changes folders while they are read; the disk reserve catches what this misses.
        with contextlib.suppress(OSError):
            for _, _, entries in trees.walk(folder):
                files += len(entries)
                for entry in entries:
                    with contextlib.suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    return Usage(size, files)


def mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"


@dataclass
class SharedDisk:
    """The disk of a data folder, and the turns at work on it in this process."""

    limits: AgentLimits
    slots: int
    shares: "set[DiskShare]" = field(default_factory=set)
    """Those of the turns at work; one that has ended is taken out."""

    def join(self, workspace: Path) -> "DiskShare":
        """Give a new turn its share: the room above the reserve, divided by the slots."""
        reserve = Usage(self.limits.disk_reserve_bytes, self.limits.disk_reserve_files)
        free = room_left(workspace).above(reserve)
        share = DiskShare(self, workspace, Usage(free.size // self.slots, free.files // self.slots))
        self.shares.add(share)
        return share


@dataclass(eq=False)
class DiskShare:
    """One turn's part of a disk."""

    disk: SharedDisk
    workspace: Path
    share: Usage
    """A turn that added more than this can be to blame for a shortage."""
    added: Usage = field(default_factory=Usage)
    """Its usage beyond the first measurement, made when its agent started."""
    _begun_with: Usage | None = None

    def note(self, taken: Usage) -> None:
        """Store a measurement of its usage, checkout included; the first one is the agent's starting point."""
        self._begun_with = self._begun_with or taken
        self.added = taken.above(self._begun_with)

    def fault(self) -> str | None:
        """Describe how this turn caused a shortage; None if the disk has room or others filled it.

        The turn to blame has added more than its share, and more than any other turn at work in this process.
        """
        short = shortage(self.workspace, self.disk.limits)
        if short is None:
            return None
        added = getattr(self.added, short.of)
        largest = max((getattr(turn.added, short.of) for turn in tuple(self.disk.shares)), default=0)
        if added <= getattr(self.share, short.of) or added < largest:
            return None
        amount = mib(added) if short.of == "size" else f"{added} files"
        return f"disk: it added {amount}, and {short.text}"
