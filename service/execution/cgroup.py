"""Control groups: if systemd delegates one (Delegate=yes), the kernel holds each agent to its limits."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from service.settings import AgentLimits

_MOUNTS: Final = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_NEEDED: Final = frozenset({"memory", "pids"})
_OURS: Final = "service"
"""The group of the service itself: a group with processes can have no limited groups below it."""
_PREFIX: Final = "turn-"
_PATIENCE_S: Final = 5.0


@contextlib.contextmanager
def group(parent: Path, name: str, limits: Mapping[str, str]) -> Iterator[Path]:
    """Make a group with limits, such as `memory.max`, in the service's own; in the end, kill and remove it."""
    folder = parent / f"{_PREFIX}{name}"
    folder.mkdir()
    try:
        for file, value in limits.items():
            (folder / file).write_text(value, "ascii")
        yield folder
    finally:
        _remove(folder)


def _remove(group: Path) -> None:
    """Kill a group's processes and remove it; one that stays busy is left for systemd to remove with the unit."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", "ascii")
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            # Killed processes take a moment to exit.
            time.sleep(0.01)


def ran_out_of_memory(group: Path) -> bool:
    try:
        lines = (group / "memory.events").read_text("ascii").splitlines()
    except FileNotFoundError:
        return False
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)


def limits_of(agent: AgentLimits) -> dict[str, str]:
    """Return an agent's limits for the kernel's files; swap is switched off, as the settings have no limit for it."""
    return {
        "memory.max": str(agent.memory_bytes),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": str(agent.processes),
    }


def find() -> Path | None:
    """Return the control group (version 2) delegated to this service, prepared for turns, or None."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
        path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
        mount = next((mount for mount in _MOUNTS if (mount / "cgroup.controllers").exists()), None)
        if path is None or mount is None:
            return None
        folder = mount / path
        folder = folder.parent if folder.name == _OURS else folder
        # systemd marks delegated groups. Root may write everywhere, and must not take a session's group for its own.
        if os.getxattr(folder, "user.delegate") != b"1" or not set(_words(folder / "cgroup.controllers")) >= _NEEDED:
            return None
        prepare(folder, _NEEDED)
    except OSError:
        return None
    return folder


def prepare(parent: Path, controllers: frozenset[str]) -> None:
    """Move the processes in a group to one below it, so that other groups below it can have limits.

    Raises:
        OSError: The service may not change it.
    """
    ours = parent / _OURS
    ours.mkdir(exist_ok=True)
    for pid in _words(parent / "cgroup.procs"):
        (ours / "cgroup.procs").write_text(pid, "ascii")
    if controllers:
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)), "ascii")
    for left in parent.glob(f"{_PREFIX}*"):
        if not _words(left / "cgroup.procs"):
            _remove(left)


def _words(file: Path) -> list[str]:
    return file.read_text("ascii").split()
