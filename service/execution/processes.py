"""Process trees: whatever an agent started ends with it, also what hid in a session of its own."""

import os
import signal
import time
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.01


def kill_marked(marker: str) -> int:
    """Kill every process of ours whose environment holds the marker, until none is left; return how many there were.

    An agent's children inherit its environment and with it the marker, wherever they moved.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while (alive := _marked(marker.encode())) and time.monotonic() < deadline:
        for pid in alive:
            _kill(pid)
        killed |= alive
        time.sleep(_PAUSE_S)
    return len(killed)


def kill_group(pid: int) -> None:
    """Kill a process and its group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


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
