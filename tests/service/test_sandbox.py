"""The sandbox's edges: which network an agent gets, what it may hide from the watch, and who ends what it leaves."""

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.execution import supervisor
from service.execution.sandbox import PACKAGE_ROOT, NoSandboxError, SandboxView, find
from service.execution.workspace import Workspace
from service.settings import ExecutionSettings
from tests.service.conftest import NEEDS_SANDBOX, Api, Make
from tests.service.processes import long_sleep, running
from tests.waiting import eventually

CALLER = """
import json, pathlib, socket, sys
def reached(address):
    try: socket.create_connection(tuple(address), 30).close()
    except OSError: return False
    return True
reached = [reached(address) for address in json.load(sys.stdin)["inputs"]["addresses"]]
pathlib.Path("reached").write_text(json.dumps(reached))
print("reached:", reached)
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
@pytest.mark.parametrize("network", ["private", "host"])
def test_an_agent_reaches_the_outside_and_nothing_on_this_machine_s_loopback(
    start: Make, equipped: Any, tmp_path: Path, network: str
) -> None:
    """Neither by 127.0.0.1 nor by the gateway; `host` opens it; without a network nothing is open."""
    if find(ExecutionSettings()).slirp is None:
        pytest.skip("slirp4netns is not installed or does not work here")
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    api = Api(equipped) if network == "private" else start(settings='[execution]\nagent_network = "host"\n')
    api.add_agent(tmp_path, "caller", CALLER, "--network")
    api.add_agent(tmp_path, "hermit", CALLER)
    with socket.create_server(("0.0.0.0", 0)) as listener:
        addresses = [[host, listener.getsockname()[1]] for host in ("127.0.0.1", "10.0.2.2", address)]
        runs = [api.begin(agent, addresses=addresses) for agent in ("caller", "hermit")]

        assert [api.ended(run_id)["status"] for run_id in runs] == ["completed"] * 2, api.log(runs[0])
    assert f"reached: {[network == 'host', False, True]}" in api.log(runs[0])
    assert "reached: [False, False, False]" in api.log(runs[1])


LISTENER = """
import socket, threading
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        continue
    port = server.getsockname()[1]
    names = {entry[4][0] for entry in socket.getaddrinfo("localhost", port)}
    socket.create_connection((address, port), 5).close()
    print("reached", address, address in names)
print("own name:", socket.gethostbyname(socket.gethostname()))
open("done", "w").write("x")
"""


@NEEDS_SANDBOX
def test_localhost_is_a_name_inside(equipped: Any, tmp_path: Path) -> None:
    """As on a developer's machine: test suites start servers there and call them by that name."""
    api = Api(equipped)
    api.add_agent(tmp_path, "listener", LISTENER)
    run_id = api.begin("listener")

    assert api.ended(run_id)["status"] == "completed", api.log(run_id)
    assert "reached 127.0.0.1 True" in api.log(run_id)
    assert "False" not in api.log(run_id)
    assert "own name: 127.0.0.1" in api.log(run_id)


@NEEDS_SANDBOX
def test_where_a_sandbox_is_required_no_agent_gets_the_machine_s_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without slirp4netns such a turn fails with the command that installs it."""
    (tmp_path / "bwrap").symlink_to(str(shutil.which("bwrap")))
    monkeypatch.setenv("PATH", str(tmp_path))
    required = find(ExecutionSettings())

    assert "no network for agents" in str(required)
    with pytest.raises(NoSandboxError, match=r"install .*slirp4netns"):
        required.wrap(["/bin/true"], Workspace(tmp_path), tmp_path, SandboxView(tmp_path, network=True))


# Becomes another user, as who it may not look into everything, and watches a child that shows it no files.
WATCHER = """
import ctypes, os, pathlib, signal
from service.execution.disk import SharedDisk
from service.execution.processes import UsageWatch
from service.settings import AgentLimits
def watch(sandboxed, rounds):
    limits = AgentLimits(disk_reserve_bytes=0, disk_reserve_files=0)
    share = SharedDisk(limits, 1).join(pathlib.Path("."))
    usage = UsageWatch(os.getpid(), share, limits, sandboxed=sandboxed, session=None, cache=None)
    return next((found for _ in range(rounds) if (found := usage.passed())), None)
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
"""


def test_a_process_that_hides_its_files_passes_a_limit(tmp_path: Path) -> None:
    """It could hold memory files there; without a sandbox, where limits can be escaped, it may, as ssh-agent does."""
    tmp_path.chmod(0o755)
    watched = subprocess.run(
        [sys.executable, "-c", WATCHER], cwd=tmp_path, env={"PYTHONPATH": str(PACKAGE_ROOT)}, stdout=-1, check=True
    )
    found = watched.stdout.decode()

    assert found == "disk: a process hides the files that it holds open (workspace_bytes); None\n"


HOLDER = """
import os, pathlib, socket, subprocess, sys, time
how, supervisor, started, command = sys.argv[1:]
ours, theirs = socket.socketpair()
argv = [sys.executable, "-I", "-S", supervisor, str(theirs.fileno()), "1000000", "64", "", "sh", "-c", command]
kept = subprocess.Popen(argv, pass_fds=[theirs.fileno()], start_new_session=True)
theirs.close()
while not pathlib.Path(started).exists():
    if kept.poll() is not None: sys.exit("the supervisor is gone too early")
    time.sleep(0.01)
print(kept.pid, flush=True)
if how == "kill": os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_the_supervisor_ends_everything_when_its_worker_lets_go(how: str, tmp_path: Path) -> None:
    """Whether the worker closes the socket or dies: the agent's processes are gone, and so is the supervisor."""
    started, seconds = tmp_path / "started", long_sleep()
    command = f"setsid sleep {seconds} & env -i setsid sleep {seconds} & touch {started}; sleep {seconds}"
    argv = [sys.executable, "-c", HOLDER, how, supervisor.__file__, str(started), command]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    eventually(lambda: not running("sleep", seconds), "the agent's processes are gone")
    eventually(lambda: not Path(f"/proc/{int(done.stdout)}").exists(), "the supervisor is gone")

    assert done.returncode == (0 if how == "exit" else -signal.SIGKILL)
