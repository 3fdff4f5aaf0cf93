"""Control groups: with what systemd delegates, the kernel holds agents to their limits; nothing else is touched."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.execution import cgroup, supervisor
from service.execution.cgroup import DelegatedGroup, limits_of
from service.settings import AgentLimits
from tests.service.processes import long_sleep, running
from tests.waiting import eventually


def hierarchy() -> Path:
    """Return the folder of control groups that are ours to make; skip where there are none."""
    for mount in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (mount / "cgroup.controllers").exists() and os.access(mount, os.W_OK) and os.geteuid() == 0:
            return mount
    pytest.skip("no control groups (version 2) can be made here: that takes root, or a delegated group")


@pytest.fixture
def delegated() -> Iterator[DelegatedGroup]:
    """A control group, as systemd would delegate it."""
    own = hierarchy() / f"runwarden-test-{os.getpid()}"
    own.mkdir()
    cgroup.prepare(own, frozenset())
    yield DelegatedGroup(own)
    for folder in (own / "service", own):
        folder.rmdir()


SPAWNER = "import subprocess as s, sys; s.Popen(['sleep', sys.argv[1]], start_new_session=True); print('', flush=True)"


def test_a_turn_s_group_holds_all_that_its_agent_starts_and_ends_it(delegated: DelegatedGroup) -> None:
    """What left its session is in the group, too; when the turn ends nothing of either is left."""
    seconds = long_sleep()
    with delegated.group("run_1-1", {}) as group:
        ours, theirs = socket.socketpair()
        start = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), "1000000", str(group.folder)]
        agent = [sys.executable, "-c", SPAWNER + "; sys.stdin.read()", seconds]
        process = subprocess.Popen([*start, *agent], pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=-1)
        theirs.close()
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        inside = (group.folder / "cgroup.procs").read_text().split()
    eventually(lambda: not running("sleep", seconds), "the group is killed")
    process.communicate(timeout=120)
    ours.close()

    assert len(inside) == 2
    assert str(process.pid) not in inside
    assert list(delegated.folder.glob("turn-*")) == []


GREED = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
refused = 0
try: os.fork() or os._exit(0)
except BlockingIOError: print("no second process", flush=True)
bytearray(600 << 20)
print("had it all")
"""


def test_the_kernel_holds_a_group_to_its_limits(delegated: DelegatedGroup) -> None:
    """A process too many is refused, and what takes too much memory is killed before it has it."""
    needed = frozenset({"memory", "pids"})
    if not needed <= set((delegated.folder / "cgroup.controllers").read_text().split()):
        pytest.skip("memory and pids are not controlled by control groups of version 2 on this machine")
    cgroup.prepare(delegated.folder, needed)
    limits = limits_of(AgentLimits(memory_bytes=100 << 20)) | {"pids.max": "1"}
    with delegated.group("greedy", limits) as group:
        argv = [sys.executable, "-c", GREED, str(group.folder)]
        done = subprocess.run(argv, capture_output=True, check=False, timeout=120)
        killed = group.ran_out_of_memory

    assert done.stdout == b"no second process\n"
    assert done.returncode == -signal.SIGKILL
    assert killed


def test_a_group_that_systemd_did_not_delegate_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where root could divide it: other programs may live in it."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.procs").write_text("1 2 3")
    monkeypatch.setattr(cgroup, "_own", lambda: tmp_path)

    assert cgroup.find() is None
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cgroup.controllers", "cgroup.procs"]
