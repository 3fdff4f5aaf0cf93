"""The sandbox's network, its limits and its clean-up; without a sandbox no agent runs."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.execution import supervisor
from service.execution.processes import Launcher
from service.execution.sandbox import PACKAGE_ROOT, NoSandboxError, find
from service.execution.workspace import Workspace
from service.settings import ExecutionSettings
from tests import service_process
from tests.program import ROOT
from tests.service.conftest import BARE, NEEDS_SANDBOX, Api, Make
from tests.service.deployment import long_sleep, running
from tests.waiting import eventually

CALLER = """
import json, socket, sys
def reached(address):
    try: socket.create_connection(tuple(address), 30).close()
    except OSError: return False
    return True
print("reached:", [reached(address) for address in json.load(sys.stdin)["inputs"]["addresses"]])
"""


def own_address() -> str | None:
    """Return an address of this machine that is not loopback; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


@NEEDS_SANDBOX
def test_an_agent_reaches_the_network_but_not_loopback(equipped: Any, tmp_path: Path) -> None:
    """Neither 127.0.0.1 nor the gateway works; the setting `host` opens it, and without a network nothing is open."""
    if find(ExecutionSettings()).slirp is None:
        pytest.skip("slirp4netns is not installed or does not work here")
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    api = Api(equipped)
    api.add_agent(tmp_path, "caller", CALLER, "--network")
    api.add_agent(tmp_path, "hermit", CALLER)
    with socket.create_server(("0.0.0.0", 0)) as listener:
        addresses = [[host, listener.getsockname()[1]] for host in ("127.0.0.1", "10.0.2.2", address)]
        turns = [api.worked(api.begin(agent, addresses=addresses)) for agent in ("caller", "hermit")]

    for turn, reached in zip(turns, ([False, False, True], [False] * 3), strict=True):
        assert f"reached: {reached}" in turn["log"]
    opened = find(ExecutionSettings(agent_network="host"))
    assert "--share-net" in opened.wrap(["/bin/true"], Workspace(tmp_path), (), {}, network=True)


@NEEDS_SANDBOX
def test_a_required_sandbox_needs_its_own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slirp4netns such a turn fails with the command that installs it."""
    (tmp_path / "bwrap").symlink_to(str(shutil.which("bwrap")))
    monkeypatch.setenv("PATH", str(tmp_path))
    required = find(ExecutionSettings())

    assert "no network for agents" in str(required)
    with pytest.raises(NoSandboxError, match=r"install .*slirp4netns"):
        required.wrap(["/bin/true"], Workspace(tmp_path), (), {}, network=True)


# It becomes another user, which may not inspect everything, and watches a child that hides its files.
WATCHER = """
import ctypes, os, pathlib, shutil, signal, tempfile
from service.execution.disk import SharedDisk
from service.execution.processes import UsageWatch, hides_files
from service.settings import AgentLimits
def watch(sandboxed, rounds):
    limits = AgentLimits(disk_reserve_bytes=0, disk_reserve_files=0)
    share = SharedDisk(limits, 1).join(pathlib.Path("."))
    usage = UsageWatch(os.getpid(), share, sandboxed=sandboxed, session=None, cache=None)
    return next((found for _ in range(rounds) if (found := usage.first_passed_limit())), None)
# Loads what Python needs, which the other user may not read.
watch(True, 1)
if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    os.write(writing, b"x")
    signal.pause()
os.read(reading, 1)
try: print(watch(True, 1_000_000), watch(False, 5), sep="; ")
finally: os.kill(child, signal.SIGKILL)
proc = pathlib.Path(tempfile.mkdtemp())
for pid, state, memory in ((1, "S", "4096"), (2, "S", "0"), (3, "Z", "0"), (4, "D", "0")):
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fd").chmod(0)
    (proc / str(pid) / "stat").write_text(f"{pid} (a name) {state} {'1 ' * 19}{memory} 0")
    print(hides_files(pid, proc))
    (proc / str(pid) / "fd").chmod(0o700)
shutil.rmtree(proc)
"""


def test_a_process_that_hides_its_files_fails_its_turn(tmp_path: Path) -> None:
    """The process could keep memory files there; without a sandbox it is allowed, since ssh-agent does it.

    A process that is exiting hides nothing: its memory is gone, and its files belong to root for a moment.
    """
    tmp_path.chmod(0o755)
    found = subprocess.check_output(
        [sys.executable, "-c", WATCHER], cwd=tmp_path, env={"PYTHONPATH": str(PACKAGE_ROOT)}, text=True
    )
    passed, *hidden = found.splitlines()

    assert passed == "disk: a process hides the files that it holds open (workspace_bytes); None"
    assert hidden == ["True", "False", "False", "False"]


HOLDER = """
import os, pathlib, socket, sys, time
from service.execution import supervisor
from service.execution.processes import Launcher
how, started, command = sys.argv[1:]
launcher, (ours, theirs) = Launcher(), socket.socketpair()
nothing = os.open(os.devnull, os.O_RDWR)
request = {"argv": ["sh", "-c", command], "environment": {"PATH": os.environ["PATH"]}, "folder": "/", "group": ""}
pid = launcher.start(theirs.fileno(), nothing, nothing, **request, file_bytes=1_000_000, open_files=64)
theirs.close()
while not pathlib.Path(started).exists():
    if not pathlib.Path(f"/proc/{pid}").exists(): sys.exit("the supervisor is gone too early")
    time.sleep(0.01)
print(pid, pathlib.Path(f"/proc/{pid}/stat").read_text().split()[3], flush=True)
if how == "kill": os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_the_supervisor_kills_all_when_its_worker_ends(how: str, tmp_path: Path) -> None:
    """The worker may close the socket or die; the agent's processes, the supervisor and its parent are then gone."""
    started, seconds = tmp_path / "started", long_sleep()
    command = f"setsid sleep {seconds} & env -i setsid sleep {seconds} & touch {started}; sleep {seconds}"
    argv = [sys.executable, "-c", HOLDER, how, str(started), command]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    eventually(lambda: not running("sleep", seconds), "the agent's processes are gone")
    for pid in done.stdout.split():
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the supervisor or its launcher is gone")

    assert done.returncode == (0 if how == "exit" else -signal.SIGKILL)


def test_a_launcher_without_its_worker_exits_quietly(tmp_path: Path) -> None:
    """Its answer has no reader: it ends as if the worker had closed the socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "request").open("w+") as request:
        request.write("{}")
        request.flush()
        # From here on, an answer fails as it does once the worker is dead.
        ours.shutdown(socket.SHUT_RD)
        socket.send_fds(ours, [b"?"], [request.fileno()] * 4)
        argv = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno())]
        done = subprocess.run(
            argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )

    assert (done.returncode, done.stderr) == (0, "")


def test_agents_start_after_their_launcher_was_killed() -> None:
    """The working agent continues, and the next one gets a new launcher."""
    launcher, reports = Launcher(), []
    for _ in range(2):
        (ours, theirs), (reading, writing) = socket.socketpair(), os.pipe()
        with ours:
            request = {"argv": ["cat"], "environment": {"PATH": os.environ["PATH"]}, "folder": "/", "group": ""}
            pid = launcher.start(theirs.fileno(), reading, writing, **request, file_bytes=1_000_000, open_files=64)
            parent = int(Path(f"/proc/{pid}/stat").read_text().split()[3])
            os.kill(parent, signal.SIGKILL)
            eventually(lambda: not Path(f"/proc/{parent}/cmdline").read_bytes(), "the launcher is dead")  # noqa: B023
            theirs.close()
            os.close(writing)
            os.close(reading)
            ours.shutdown(socket.SHUT_WR)
            reports.append(ours.recv(100))

    assert reports == [b"ended", b"ended"]


KEY = "sk-ant-a-key-that-no-agent-may-see"
PRINTER = """
import os
print("the key is", os.environ.get("ANTHROPIC_API_KEY"))
print(open(f"/proc/{os.getppid()}/environ").read())
"""
BWRAP = shutil.which("bwrap")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH, without bubblewrap at first."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("git", "sh", "python3"):
        (folder / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(folder))
    return folder


@NEEDS_SANDBOX
def test_runs_wait_until_bubblewrap_works(
    start: Make, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API works, no agent starts, and log, status and /readyz name the command; then the run is executed."""
    soon = "from service.execution import worker; worker.SANDBOX_PAUSE_S = 0.2"
    monkeypatch.setattr(service_process, "PROGRAM", f"{soon}\n{service_process.PROGRAM}")
    settings = '[execution]\nsandbox = "require"\nlook_s = 0.1\n'
    api = start(settings=settings, environment={"ANTHROPIC_API_KEY": KEY})
    api.add_agent(tmp_path, "printer", PRINTER)

    run_id = api.begin("printer")
    status = api.service.admin("status")
    ready = BARE.get(api.service.base_url.removesuffix("v1") + "readyz")

    sentence = status["sandbox"]
    assert sentence.startswith("missing: bubblewrap is not installed; ")
    assert "bubblewrap" in sentence.partition(";")[2]
    assert [(one["sandbox"], one["concurrency"]) for one in status["workers"]] == [(sentence, 0)]
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "sandbox": sentence})
    assert api.service.log.count(f"sandbox: {sentence}") == 1
    assert api.run(run_id)["status"] == "queued"

    (programs / "bwrap").symlink_to(str(BWRAP))

    assert api.ended(run_id)["status"] == "completed", api.log(run_id)
    assert KEY not in api.log(run_id)
    assert "the key is None" in api.log(run_id)
    assert [one["concurrency"] for one in api.service.admin("status")["workers"]] == [2]
    assert BARE.get(api.service.base_url.removesuffix("v1") + "readyz").json() == {"status": "ok"}


def test_a_broken_bubblewrap_is_named_with_its_cause(programs: Path, tmp_path: Path) -> None:
    """The reason has bubblewrap's own words and the fix; only sandbox = "none" starts commands without it."""
    (programs / "bwrap").write_text("#!/bin/sh\necho 'bwrap: Permission denied' >&2\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    argv = ["/bin/true"]
    for setting, value, fix in (
        ("user/max_user_namespaces", "9", "allow user namespaces on this machine"),
        ("user/max_user_namespaces", "0", 'user namespaces are off; run "sysctl -w user.max_user_namespaces=15000"'),
        ("kernel/unprivileged_userns_clone", "0", "user namespaces are off; run"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor forbids"),
    ):
        (tmp_path / setting).parent.mkdir(exist_ok=True)
        (tmp_path / setting).write_text(f"{value}\n")
        found = find(ExecutionSettings(), tmp_path)
        assert str(found).startswith(f"missing: bubblewrap does not work here (bwrap: Permission denied); {fix}")

    with pytest.raises(NoSandboxError, match="bubblewrap does not work"):
        found.wrap(argv, Workspace(tmp_path), (), {})
    assert find(ExecutionSettings(sandbox="none")).wrap(argv, Workspace(tmp_path), (), {}) == argv
