"""Agents' process trees: starts them, measures their use of resources against the limits, and kills them."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from service.execution import supervisor
from service.execution.disk import BLOCK_BYTES, DiskShare, Usage, mib, shortage, usage_of

_PROC: Final = Path("/proc")
_PATIENCE_S: Final = 5.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _THREADS, _VSIZE = 11, 17, 20
"""Fields of /proc/PID/stat, counted from the state."""
_WALK_SHARE: Final = 20
"""Walks through the workspace take at most one part in this many of the time."""
_WALK_PAUSE_S: Final = 0.5
_IDLE_SHARE: Final = 0.02
"""A share of a core: an agent that uses less over the whole time-out is idle."""


@dataclass(eq=False)
class Launcher:
    """Starts agents, each under a supervisor: from one process that forks them, which is itself started once."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _requests: socket.socket = field(init=False)
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self, control: int, stdin: int, stdout: int, **request: object) -> int:
        """Start an agent; return its supervisor's process id.

        `control`: the socket over which the supervisor reports. It is closed to stop the agent. The request is `argv`,
        `environment`, `folder`, `file_bytes`, `open_files` and `group` (a control group's folder, or empty).

        Raises:
            OSError: This machine lacks the room for it, or the launcher was killed.
        """
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file, self._lock:
            # Bytes that are not UTF-8 arrive as they are.
            json.dump(request, file)
            file.seek(0)
            if self._process is None or self._process.poll() is not None:
                self._requests, theirs = socket.socketpair()
                with theirs:
                    command = [sys.executable, "-I", "-S", "-X", "utf8", supervisor.__file__, str(theirs.fileno())]
                    options: dict[str, Any] = {"start_new_session": True, "pass_fds": [theirs.fileno()]}
                    # Without variables: an agent without a sandbox can read those of its parents.
                    self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={}, **options)
            socket.send_fds(self._requests, [b"?"], [control, stdin, stdout, file.fileno()])
            pid = int(self._requests.recv(16) or 0)
        if pid <= 0:
            raise OSError(-pid or errno.ECHILD, os.strerror(-pid) if pid else "the launcher of agents was killed")
        return pid


def kill_marked(marker: str) -> int:
    """Kill every process of this user whose environment holds the marker; return how many there were.

    An agent's children inherit its environment and with it the marker, even if they left its process tree.
    """
    killed = set[int]()
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        alive = set[int]()
        for entry in _PROC.glob("[0-9]*"):
            # A zombie has an empty environment.
            with contextlib.suppress(OSError):
                if int(entry.name) != os.getpid() and marker.encode() in (entry / "environ").read_bytes():
                    alive.add(int(entry.name))
        if not alive:
            break
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive
        time.sleep(0.01)
    return len(killed)


@dataclass
class UsageWatch:
    """Measures one agent; `passed()` is called several times a second and is cheap."""

    supervisor: int
    """The process id of its supervisor."""
    share: DiskShare
    sandboxed: bool
    session: Path | None
    """A home folder outside the workspace, which counts as a part of it."""
    cache: tuple[Path, int] | None
    """The cache folder and the bytes that it may hold; None: the agent has none."""
    cpu_s: float = 0.0
    _walk_due: float = 0.0
    _hidden: frozenset[int] = frozenset()
    """The processes that did not show their open files at the last walk."""
    _active_at: float = field(default_factory=time.monotonic)
    """When it printed or computed for the last time, and its CPU time then."""
    _active_cpu_s: float = 0.0

    def is_idle(self, timeout_s: float, *, is_active: bool) -> bool:
        """Whether it neither prints nor computes, such as one that waits for a host that never answers.

        `is_active`: it printed, or its model answered, since the last call.
        """
        now = time.monotonic()
        # The timers of an idle Node or Go program take a thousandth of a core.
        if is_active or abs(self.cpu_s - self._active_cpu_s) > _IDLE_SHARE * timeout_s:
            self._active_at, self._active_cpu_s = now, self.cpu_s
        return now - self._active_at > timeout_s

    def first_passed_limit(self) -> str | None:
        """Describe the first limit that the agent has passed, with its key; None: it has passed none.

        Raises:
            OSError: The disk is nearly full, and others have filled it.
        """
        tree = [self.supervisor, *supervisor.descendants(self.supervisor)]
        limits = self.share.disk.limits
        stats = {pid: fields for pid in tree if (fields := _stat(pid))}
        threads = sum(max(1, int(fields[_THREADS])) for pid, fields in stats.items() if pid != self.supervisor)
        if threads > limits.processes:
            return f"processes: {threads} at once, threads included, {limits.processes} allowed (processes)"
        opened = list(_open_files(tree))
        buffers = set[str]()
        # With few open files there cannot be too many sockets and pipes.
        for name in opened if len(opened) > limits.sockets else ():
            with contextlib.suppress(OSError):
                if (target := os.readlink(name)).startswith(("socket:", "pipe:")):
                    buffers.add(target)
        if len(buffers) > limits.sockets:
            return f"sockets: {len(buffers)} sockets and pipes open at once, {limits.sockets} allowed (sockets)"
        # Each process's own time, and that of its children that have exited.
        ticks = sum(sum(map(int, fields[_UTIME : _UTIME + 4])) for fields in stats.values())
        self.cpu_s = ticks / _TICKS_PER_S
        if self.cpu_s > limits.cpu_s:
            return f"CPU time: {self.cpu_s:.0f} s, {limits.cpu_s:g} s allowed (cpu_s)"
        # Memory that no file backs.
        lines = [line for pid in tree for line in _read(pid, "status").splitlines()]
        memory = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
        if memory > limits.memory_bytes:
            return f"memory: {mib(memory)}, {mib(limits.memory_bytes)} allowed (memory_bytes)"
        short = shortage(self.share.workspace, limits)
        now = time.monotonic()
        if now < self._walk_due and short is None:
            return None
        folders = [self.share.workspace] if self.session is None else [self.share.workspace, self.session]
        # Deleted files that are still open, memory files included.
        deleted: dict[tuple[int, int], int] = {}
        for name in _open_files(tree):
            with contextlib.suppress(OSError):
                file = os.stat(name)
                if file.st_nlink == 0:
                    deleted[file.st_dev, file.st_ino] = file.st_blocks * BLOCK_BYTES
        usage = usage_of(folders)
        taken = Usage(usage.size + sum(deleted.values()), usage.files)
        self.share.note(taken)
        if short is not None:
            if fault := self.share.fault():
                return fault
            raise OSError(errno.ENOSPC, f"the disk is nearly full: {short.text}")
        cached = 0 if self.cache is None else usage_of([self.cache[0]]).size
        hidden = frozenset(filter(hides_files, tree))
        # Two walks have to agree, as a process may hide its files for a moment while it starts.
        stays_hidden, self._hidden = hidden & self._hidden, hidden
        ended_at = time.monotonic()
        self._walk_due = ended_at + max(_WALK_PAUSE_S, _WALK_SHARE * (ended_at - now))
        if stays_hidden and self.sandboxed:
            return "disk: a process hides the files that it holds open (workspace_bytes)"
        if taken.size > limits.workspace_bytes:
            return f"disk: {mib(taken.size)}, {mib(limits.workspace_bytes)} allowed (workspace_bytes)"
        if taken.files > limits.workspace_files:
            return f"disk: {taken.files} files, {limits.workspace_files} allowed (workspace_files)"
        if self.cache is not None and cached > self.cache[1]:
            return f"disk: {mib(cached)} in its cache, {mib(self.cache[1])} allowed (cache of the agent)"
        return None


def _open_files(tree: list[int]) -> Iterator[str]:
    for pid in tree:
        # A process may have exited, and the service may have no right to read its files.
        with contextlib.suppress(OSError):
            yield from [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]


def hides_files(pid: int, proc: Path = _PROC) -> bool:
    """Whether a living process hides its open files, so that deleted ones and those in memory cannot be counted.

    One that is exiting has given its memory back, and its open files belong to root for a moment: it hides nothing.
    """
    try:
        os.scandir(proc / str(pid) / "fd").close()
    except PermissionError:
        fields = _stat(pid, proc)
        return bool(fields) and fields[0] not in {"Z", "X"} and fields[_VSIZE] != "0"
    except OSError:
        pass
    return False


def _stat(pid: int, proc: Path = _PROC) -> list[str]:
    """Return the kernel's fields about a process, from its state on; empty: it has exited."""
    return _read(pid, "stat", proc).rpartition(")")[2].split()


def _read(pid: int, name: str, proc: Path = _PROC) -> str:
    try:
        return (proc / str(pid) / name).read_text("utf-8", "replace")
    except OSError:
        return ""
