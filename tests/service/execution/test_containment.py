"""Every limit of an agent holds, with and without a sandbox, for one agent or several, and nothing is left."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from service.cli import main
from service.execution import cgroup, disk
from service.execution.cgroup import group, limits_of
from service.execution.disk import SharedDisk, Usage
from service.execution.processes import Launcher
from service.settings import AgentLimits
from tests.service.conftest import NEEDS_SANDBOX, UNBOXED, Api
from tests.service.deployment import long_sleep, running
from tests.service_process import demo_setup, start_service
from tests.waiting import eventually

SETTINGS = """
[execution]
sandbox = "{sandbox}"
[execution.agent]
cpu_s = {cpu_s}
memory_bytes = 268435456
processes = 40
sockets = 500
open_files = 64
workspace_bytes = 12582912
workspace_files = 1000
file_bytes = 8388608
"""

# Does what its task names, and would never stop.
ROGUE = """
import json, os, pathlib, signal, socket, subprocess, sys, threading, time
deed, *more = json.load(sys.stdin)["inputs"]["deed"].split()
MIB = 1 << 20

def forever():
    while True: time.sleep(1000)

def detach(argv):
    # Twice forked, a session of its own, and nothing of our environment left.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execve(argv[0], argv, {})
        os._exit(0)
    os.wait()

def clinging(seconds):
    detach(["/bin/sleep", seconds])
    pathlib.Path("done").write_text("x")

def stubborn(seconds):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
    detach(["/bin/sleep", seconds])
    forever()

def burning():
    for _ in range(2): os.fork()
    while True: pass

def hungry():
    # More than its limit at once.
    kept = b"x" * (300 * MIB)
    forever()

def threads():
    for _ in range(1000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    forever()

def sockets():
    # Each process has few, sockets or pipes; all of either kind would be allowed, and together they are too many.
    for number in range(16):
        if os.fork() == 0:
            kept = [os.pipe() if number % 2 else socket.socketpair() for _ in range(25)]
            forever()
    forever()

def inodes(count):
    for number in range(int(count) // 200):
        os.mkdir(f"folder-{number}")
        for name in range(200): open(f"folder-{number}/{name}", "w").close()
    forever()

def disk():
    for number in range(1000): pathlib.Path(str(number)).write_bytes(bytes(4 * MIB))

def filling(*folders):
    # Together more than the limit, each less than it.
    for folder in folders:
        for number in range(4):
            with open(f"{folder}/{number}", "wb") as file: file.write(bytes(2 * MIB))
    forever()

def hiding():
    kept = []
    for number in range(8):
        file = open(f"hidden{number}", "w+b"); os.unlink(file.name); kept.append(file)
        file.write(bytes(2 * MIB)); file.flush()
    forever()

def burying():
    for _ in range(300):
        os.mkdir("a-folder-with-a-long-name"); os.chdir("a-folder-with-a-long-name")
    for number in range(8):
        with open(str(number), "wb") as file: file.write(bytes(2 * MIB))
    forever()

def escaping():
    # Memory and files that no limit counts: outside the workspace, in a mount of its own, in a segment of no
    # process, and in memory files of a process that shows none of its files. To open a file too many is an error.
    import ctypes
    kept = []
    try:
        while True: kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error: print(error.strerror)
    for one in kept: os.close(one)
    libc = ctypes.CDLL(None, use_errno=True)
    for folder in ("/", "/dev", "/run"):
        try: pathlib.Path(folder, "file").write_text("x")
        except OSError as error: print(folder, error.strerror)
    inner = "mount -t tmpfs none /mnt && echo mounted"
    print("mounted" in subprocess.run(["unshare", "-Urm", "sh", "-c", inner], capture_output=True, text=True).stdout)
    print("shmget", libc.shmget(0, 8 * MIB, 0o1600), "prctl", libc.prctl(4, 0, 0, 0, 0), flush=True)
    sys.exit(1)

def huge():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    with open("huge", "wb") as file:
        while True: file.write(bytes(MIB)); file.flush()

def painting():
    os.write(1, b"\\x1b]0;owned\\x07\\x1b[2Jdone\\n"); sys.exit(1)

def flooding():
    while True: os.write(1, b"x" * 65536)

def parricidal():
    os.kill(os.getppid(), signal.SIGKILL); forever()

globals()[deed](*more)
"""

Unruly = Callable[[str], Any]


@pytest.fixture(scope="module")
def unruly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unruly]:
    """`unruly("require")` is a service with tight limits whose agent is a rogue in a sandbox; "none": without one.

    A slow machine may need minutes of processor time to exceed another limit; only "require 1" has a limit of one
    second.
    """
    started: dict[str, Any] = {}

    def begun(mode: str) -> Any:
        if mode not in started:
            sandbox, _, cpu_s = mode.partition(" ")
            folder = tmp_path_factory.mktemp("unruly")
            (folder / "rogue.py").write_text(ROGUE, "utf-8")
            setup, argv = demo_setup(folder), ["{python}", str(folder / "rogue.py")]
            agents = (("rogue", 300), ("brief", 1))
            setup["agents"] += [{"name": name, "argv": argv, "timeout_s": limit} for name, limit in agents]
            settings = SETTINGS.format(sandbox=sandbox, cpu_s=cpu_s or 600)
            started[mode] = start_service(folder, setup=setup, settings=settings)
        return started[mode]

    yield begun
    assert [one.stop() for one in started.values()] == [0] * len(started)


def rogue(service: Any, deed: str, agent: str = "rogue") -> dict[str, Any]:
    """Let it happen, and return the ended turn, once nothing of it is left."""
    api = Api(service)
    turn = api.worked(api.begin(agent, deed=deed))
    eventually(lambda: not list((service.data_dir / "work").iterdir()), "its workspace is removed")
    return turn


@pytest.mark.parametrize(
    ("sandbox", "deed"), [("none", "clinging"), pytest.param("require", "stubborn", marks=NEEDS_SANDBOX)]
)
def test_a_detached_child_is_killed_with_its_turn(unruly: Unruly, sandbox: str, deed: str) -> None:
    """The child is killed even if the agent ignores every signal until its deadline."""
    seconds = long_sleep()
    turn = rogue(unruly(sandbox), f"{deed} {seconds}", "rogue" if deed == "clinging" else "brief")

    assert turn["failure_kind"] == (None if deed == "clinging" else "timed_out")
    assert running("/bin/sleep", seconds) == []


# Limits are measured from outside the sandbox; it only changes hidden files and the effect of a signal.
# In the sandbox, /tmp and /dev/shm belong to the workspace, so they use no memory and count for its limit.
@pytest.mark.parametrize(
    ("sandbox", "deed", "key"),
    [
        ("none", "threads", "processes"),
        ("none", "sockets", "sockets"),
        ("none", "inodes 1600", "workspace_files"),
        pytest.param("require 1", "burning", "cpu_s", marks=NEEDS_SANDBOX),
        pytest.param("require", "hungry", "memory_bytes", marks=NEEDS_SANDBOX),
        pytest.param("require", "hiding", "workspace_bytes", marks=NEEDS_SANDBOX),
        pytest.param("require", "burying", "workspace_bytes", marks=NEEDS_SANDBOX),
        pytest.param("require", "filling /tmp /dev/shm", "workspace_bytes", marks=NEEDS_SANDBOX),
        pytest.param("require", "huge", "file_bytes", marks=NEEDS_SANDBOX),
    ],
)
def test_an_agent_beyond_its_limits_is_killed(unruly: Unruly, sandbox: str, deed: str, key: str) -> None:
    """All its processes count, and files that it deleted and keeps open; the failure names the setting.

    Threads count as processes, and empty files as files.
    """
    turn = rogue(unruly(sandbox), deed)

    assert (turn["outcome"], turn["commit"]) == ("failed", None)
    assert f"({key})" in turn["reason"]


@NEEDS_SANDBOX
def test_uncounted_resources_are_refused_in_the_sandbox(unruly: Unruly) -> None:
    """Extra file systems, other folders, a tmpfs, shared memory segments and invisible files are refused."""
    turn = rogue(unruly("require"), "escaping")

    refused = ("Too many open files", *(f"{folder} Read-only" for folder in ("/", "/dev", "/run")))
    assert turn["outcome"] == "failed"
    assert [one for one in (*refused, "False", "shmget -1 prctl -1") if one not in turn["log"]] == []


@pytest.mark.parametrize(
    ("sandbox", "agent"), [("none", "rogue"), pytest.param("require", "brief", marks=NEEDS_SANDBOX)]
)
def test_an_agent_that_kills_its_supervisor_fails_and_leaves_nothing(unruly: Unruly, sandbox: str, agent: str) -> None:
    """Without a sandbox an agent can kill it, and the worker then removes what is left. In the sandbox it cannot."""
    service = unruly(sandbox)
    turn = rogue(service, "parricidal", agent)

    assert turn["outcome"] == "failed"
    assert running(str(service.data_dir.parent / "rogue.py")) == []


def test_output_is_capped_and_escaped(unruly: Unruly) -> None:
    """Output beyond the cap is dropped, the deadline holds, and escape sequences are made visible."""
    service = unruly("none")
    flooding, painting = rogue(service, "flooding", "brief"), rogue(service, "painting")
    given = ["run", painting["run_id"], "--log", "--data-dir", str(service.data_dir)]
    shown = CliRunner(catch_exceptions=False).invoke(main, given).stdout

    assert "time limit of 1 s" in flooding["reason"]
    assert len(flooding["log"]) < 5 << 20
    assert "\u241b]0;owned\u2407" in shown
    assert not {"\x1b", "\x07"} & set(shown)


def hierarchy() -> Path:
    """Return the folder of our control groups; skip the test if there are none."""
    for mount in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (mount / "cgroup.controllers").exists() and os.access(mount, os.W_OK) and os.geteuid() == 0:
            return mount
    pytest.skip("no control groups (version 2) can be made here: that takes root, or a delegated group")


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A control group, as systemd would delegate it."""
    own = hierarchy() / f"runwarden-test-{os.getpid()}"
    own.mkdir()
    cgroup.prepare(own, frozenset())
    yield own
    for folder in (own / "service", own):
        folder.rmdir()


SPAWNER = "import subprocess as s, sys; s.Popen(['sleep', sys.argv[1]], start_new_session=True); print('', flush=True)"


def test_a_turns_control_group_contains_all_its_processes(delegated: Path) -> None:
    """A process that left its session is in the group too; after the turn neither exists."""
    seconds = long_sleep()
    with group(delegated, "run_1-1", {}) as made:
        (ours, theirs), (reading, stdout), (stdin, writing) = socket.socketpair(), os.pipe(), os.pipe()
        argv = [sys.executable, "-c", SPAWNER + "; sys.stdin.read()", seconds]
        request = {"argv": argv, "environment": {"PATH": os.environ["PATH"]}, "folder": "/"}
        limits = {"file_bytes": 1_000_000, "open_files": 64, "group": str(made)}
        pid = Launcher().start(theirs.fileno(), stdin, stdout, **request, **limits)
        theirs.close()
        assert os.read(reading, 9) == b"\n"
        inside = (made / "cgroup.procs").read_text().split()
    eventually(lambda: not running("sleep", seconds), "the group is killed")
    report = ours.recv(100)
    ours.close()
    for one in (reading, stdout, stdin, writing):
        os.close(one)

    assert report == b"exit -9"
    assert len(inside) == 2
    assert str(pid) not in inside
    assert list(delegated.glob("turn-*")) == []


GREED = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
try: os.fork() or os._exit(0)
except BlockingIOError: print("no second process", flush=True)
bytearray(600 << 20)
"""


def test_the_kernel_enforces_a_groups_limits(delegated: Path) -> None:
    """One process too many is refused, and one that uses too much memory is killed in time."""
    needed = frozenset({"memory", "pids"})
    if not needed <= set((delegated / "cgroup.controllers").read_text().split()):
        pytest.skip("memory and pids are not controlled by control groups of version 2 on this machine")
    cgroup.prepare(delegated, needed)
    limits = limits_of(AgentLimits(memory_bytes=100 << 20)) | {"pids.max": "1"}
    with group(delegated, "greedy", limits) as made:
        argv = [sys.executable, "-c", GREED, str(made)]
        done = subprocess.run(argv, capture_output=True, check=False, timeout=120)

        assert (done.stdout, done.returncode) == (b"no second process\n", -signal.SIGKILL)
        assert cgroup.ran_out_of_memory(made)


@pytest.mark.parametrize("small_disk", ["size=256m,nr_inodes=8000"], indirect=True)
def test_only_the_turn_that_fills_the_disk_fails(small_disk: Path) -> None:
    """For space and inodes, the failure names the reserve, and other turns complete.

    With too little free space from the start, turns wait for room.
    """
    (small_disk / "rogue.py").write_text(ROGUE, "utf-8")
    setup = demo_setup(small_disk)
    setup["agents"].append({"name": "rogue", "argv": ["{python}", str(small_disk / "rogue.py")]})
    limits = f"processes = 40\ndisk_reserve_bytes = {96 << 20}\ndisk_reserve_files = 3000\n"
    settings = f"{UNBOXED}concurrency = 3\nput_back_s = 0.5\nlook_s = 0.1\n[execution.agent]\n{limits}"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(192 << 20))
    service = start_service(small_disk, setup=setup, settings=settings)
    try:
        api = Api(service)
        first = api.start("write")
        eventually(lambda: "the disk is nearly full" in service.log, "the worker looks at its disk")
        waiting, status = api.run(first)["status"], service.admin("status")
        ballast.unlink()
        (worker,) = status["workers"]

        assert (waiting, worker["concurrency"]) == ("queued", 0)
        assert api.ended(first)["status"] == "completed"
        honest = [api.start(f"note {number}") for number in range(2)]
        greedy = [api.begin("rogue", deed=deed) for deed in ("disk", "inodes 8000")]
        honest += [api.start(f"note {number}") for number in range(2, 4)]
        failures = [api.ended(run_id) and service.admin("run", run_id)["turns"][0]["failure"] for run_id in greedy]

        assert [api.ended(run_id)["status"] for run_id in honest] == ["completed"] * 4
        assert "(disk_reserve_bytes)" in failures[0]
        assert "(disk_reserve_files)" in failures[1]
    finally:
        service.kill()


def test_only_the_largest_turn_is_blamed_for_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A checkout does not count, and only the largest turn fails; if others filled the disk, none does."""
    free = [Usage(1000, 1000)]
    monkeypatch.setattr(disk, "room_left", lambda _: free[-1])
    shared = SharedDisk(AgentLimits(disk_reserve_bytes=200, disk_reserve_files=0), slots=2)
    honest, hungry = shared.join(tmp_path), shared.join(tmp_path)
    for turn in (honest, hungry):
        turn.note(Usage(700))
    honest.note(Usage(710))
    assert (honest.share, honest.fault(), hungry.fault()) == (Usage(400, 500), None, None)

    free.append(Usage(150, 1000))
    assert (honest.fault(), hungry.fault()) == (None, None)
    hungry.note(Usage(1101))
    late = shared.join(tmp_path)
    late.note(Usage(0))
    late.note(Usage(90))

    assert (honest.fault(), late.fault()) == (None, None)
    assert str(hungry.fault()).startswith("disk: it added 0 MiB, and 0 MiB are left")
    shared.shares.discard(hungry)
    assert str(late.fault()).startswith("disk: it added")
