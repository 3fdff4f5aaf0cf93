"""Agents' process trees: measures their use of resources against the limits, and kills them."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from service.execution import trees
from service.execution.supervisor import descendants
from service.settings import AgentLimits

_PROC: Final = Path("/proc")
_PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.01
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 1 << 20
_BLOCK_BYTES: Final = 512
_WALK_SHARE: Final = 20
"""Walks through the workspace take at most one part in this many of the time."""
_WALK_PAUSE_S: Final = 0.5
_IDLE_SHARE: Final = 0.02
"""A share of a core: an agent that uses less over the whole time-out is idle."""


def kill_marked(marker: str) -> int:
    """Kill every process of this user whose environment holds the marker; return how many there were.

    An agent's children inherit its environment and with it the marker, wherever they moved.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while (alive := _marked(marker.encode())) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive
        time.sleep(_PAUSE_S)
    return len(killed)


def _marked(marker: bytes) -> set[int]:
    """Return the living processes with the marker; a zombie has an empty environment and is not among them."""
    found = set()
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


class IdleWatch:
    """Notices that an agent neither prints nor computes, such as one that waits for a host that never answers."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._since = time.monotonic()
        self._cpu_s = 0.0

    def passed(self, cpu_s: float, *, is_active: bool) -> bool:
        """Whether it was idle for too long; `is_active`: it printed, or its model answered, since the last call."""
        if self._timeout_s is None:
            return False
        now = time.monotonic()
        # The timers of an idle Node or Go program take a thousandth of a core.
        if is_active or abs(cpu_s - self._cpu_s) > _IDLE_SHARE * self._timeout_s:
            self._since, self._cpu_s = now, cpu_s
        return now - self._since > self._timeout_s


class UsageWatch:
    """Measures one agent; `passed()` is called several times a second and is cheap."""

    def __init__(
        self,
        supervisor: int,
        workspace: Path,
        limits: AgentLimits,
        *,
        sandboxed: bool,
        session: Path | None,
        cache: tuple[Path, int] | None,
    ) -> None:
        self.cpu_s = 0.0
        """The CPU time used so far."""
        self._session = session
        """A home folder beside the workspace, which counts as a part of it."""
        self._cache = cache
        """The cache folder and the bytes that it may hold; None: the agent has none."""
        self._supervisor = supervisor
        self._workspace = workspace
        self._limits = limits
        self._sandboxed = sandboxed
        self._walk_due = 0.0
        self._hidden = frozenset[int]()
        """The processes that did not show their open files at the last walk."""

    def passed(self) -> str | None:
        """Describe the first limit that the agent has passed, with its key; None: it has passed none."""
        tree = [self._supervisor, *descendants(self._supervisor)]
        limits = self._limits
        if len(tree) - 1 > limits.processes:
            return f"processes: {len(tree) - 1} at once, {limits.processes} allowed (processes)"
        self.cpu_s = sum(map(_cpu_s, tree))
        if self.cpu_s > limits.cpu_s:
            return f"CPU time: {self.cpu_s:.0f} s, {limits.cpu_s:g} s allowed (cpu_s)"
        memory = sum(map(_memory_bytes, tree))
        if memory > limits.memory_bytes:
            return f"memory: {_mib(memory)}, {_mib(limits.memory_bytes)} allowed (memory_bytes)"
        return self._disk(tree)

    def _disk(self, tree: list[int]) -> str | None:
        free = free_bytes(self._workspace)
        if free < self._limits.disk_reserve_bytes:
            reserve = _mib(self._limits.disk_reserve_bytes)
            return f"disk: {_mib(free)} are left, {reserve} are kept free (disk_reserve_bytes)"
        now = time.monotonic()
        if now < self._walk_due:
            return None
        folders = [self._workspace] if self._session is None else [self._workspace, self._session]
        taken = sum(map(folder_bytes, folders)) + _deleted_bytes(tree)
        cached = 0 if self._cache is None else folder_bytes(self._cache[0])
        hidden = frozenset(filter(_hides, tree))
        # Two walks have to agree, as a process may hide its files for a moment while it starts.
        stays_hidden, self._hidden = hidden & self._hidden, hidden
        ended = time.monotonic()
        self._walk_due = ended + max(_WALK_PAUSE_S, _WALK_SHARE * (ended - now))
        if stays_hidden and self._sandboxed:
            return "disk: a process hides the files that it holds open (workspace_bytes)"
        if taken > self._limits.workspace_bytes:
            return f"disk: {_mib(taken)}, {_mib(self._limits.workspace_bytes)} allowed (workspace_bytes)"
        if self._cache is not None and cached > self._cache[1]:
            return f"disk: {_mib(cached)} in its cache, {_mib(self._cache[1])} allowed (cache of the agent)"
        return None


def free_bytes(folder: Path) -> int:
    """Return the bytes that an ordinary user may still write beside a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def folder_bytes(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk."""
    size = 0
    # The agent changes folders while they are read; the disk reserve catches what this misses.
    with contextlib.suppress(OSError):
        for _, entries in trees.walk(folder):
            for entry in entries:
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return size


def _deleted_bytes(tree: list[int]) -> int:
    """Return the size of deleted files that processes still hold open, memory files included."""
    found: dict[tuple[int, int], int] = {}
    for pid in tree:
        # A process may have ended, and the service may not look into it.
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    file = os.stat(f"/proc/{pid}/fd/{number}")
                    if file.st_nlink == 0:
                        found[file.st_dev, file.st_ino] = file.st_blocks * _BLOCK_BYTES
    return sum(found.values())


def _hides(pid: int) -> bool:
    """Whether a living process hides its open files, so that deleted ones and those in memory cannot be counted."""
    try:
        os.scandir(f"/proc/{pid}/fd").close()
    except PermissionError:
        fields = _stat(pid)
        return bool(fields) and fields[0] not in {"Z", "X"}
    except OSError:
        pass
    return False


def _stat(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of its children that ended."""
    return sum(map(int, _stat(pid)[11:15])) / _TICKS_PER_S


def _memory_bytes(pid: int) -> int:
    """Return the memory of a process that is not backed by files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"
