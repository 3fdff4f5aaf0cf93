"""Which process owns an action, and whether it still runs; a reused process id does not count."""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

NOT_TOLD: Final = "?"
"""Stands for a fact that the system does not report; it counts as equal to any value."""

_PROC: Final = Path("/proc")
_TELL_S: Final = 5.0
_STATE_FIELD: Final = 0
_STARTED_FIELD: Final = 19
"""Fields of /proc/PID/stat, counted after the command's name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, distinguished from all others before and after it."""

    pid: int
    started: str
    """When it started, in the system's own terms."""
    boot: str
    """Which boot of the machine it belongs to."""
    namespace: str
    """Where its process id is valid: a container has its own."""


def this_process() -> Owner:
    """The process that asks."""
    pid = os.getpid()
    return Owner(pid=pid, started=_started(pid) or NOT_TOLD, boot=_boot(), namespace=_namespace())


def is_dead(owner: Owner) -> bool | None:
    """Whether the process has certainly ended; None: it runs in another container and cannot be seen from here."""
    if _is_other(owner.boot, _boot()):
        return True
    if _is_other(owner.namespace, _namespace()):
        return None
    started = _started(owner.pid)
    return started is None or _is_other(owner.started, started)


def _is_other(one: str, other: str) -> bool:
    return NOT_TOLD not in (one, other) and one != other


def _started(pid: int) -> str | None:
    """When the process started; None: it does not exist, or is a zombie."""
    if not (_PROC / "self" / "stat").exists():
        return _told_by_ps(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name may contain anything, brackets and spaces too.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE_FIELD] in {"Z", "X"} else fields[_STARTED_FIELD]


def _told_by_ps(pid: int) -> str | None:
    output = _told(["ps", "-o", "state=,lstart=", "-p", str(pid)])
    state, _, started = output.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


@cache
def _boot() -> str:
    try:
        return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return _told(["sysctl", "-n", "kern.bootsessionuuid"]).strip() or NOT_TOLD


@cache
def _namespace() -> str:
    try:
        return str((_PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        return NOT_TOLD


def _told(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TELL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
