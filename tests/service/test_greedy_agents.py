"""Agents that take inodes, threads, sockets or pipes; and who is to blame when the disk is nearly full."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.execution import disk
from service.execution.disk import SharedDisk, Usage
from service.settings import AgentLimits
from tests.service.conftest import Api
from tests.service_process import ROOT, demo_setup, start_service

GREEDY = """
import json, os, pathlib, socket, sys, threading, time
deed = json.load(sys.stdin)["inputs"]["deed"]
kept = []
if deed == "threads":
    for _ in range(3000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
if deed == "sockets":
    # Each process has few, sockets or pipes; all of either kind would be allowed, and together they are too many.
    for number in range(16):
        if os.fork() == 0:
            kept = [os.pipe() if number % 2 else socket.socketpair() for _ in range(25)]
            time.sleep(600)
if deed == "descriptors":
    try:
        while True: kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error: sys.exit(f"{len(kept)} opened: {error}")
if deed == "inodes":
    number = 0
    while True:
        folder = pathlib.Path(f"folder-{number}"); folder.mkdir(); number += 1
        for name in range(200): (folder / str(name)).touch()
if deed == "space":
    for number in range(1000): pathlib.Path(str(number)).write_bytes(os.urandom(4 << 20))
time.sleep(600)
"""


def greedy_service(folder: Path, settings: str) -> Any:
    """A service whose agent `greedy` takes what its task names."""
    (folder / "greedy.py").write_text(GREEDY, "utf-8")
    setup = demo_setup(folder)
    setup["agents"].append({"name": "greedy", "argv": ["{python}", str(folder / "greedy.py")], "timeout_s": 300})
    return start_service(folder, setup=setup, settings=f'[execution]\nsandbox = "none"\n{settings}')


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with tight limits."""
    limits = "processes = 100\nsockets = 500\nopen_files = 64\nworkspace_files = 3000\n"
    service = greedy_service(tmp_path_factory.mktemp("greedy"), f"[execution.agent]\n{limits}")
    yield Api(service)
    assert service.stop() == 0


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("threads", "threads included, 100 allowed (processes)"),
        ("sockets", "sockets and pipes open at once, 500 allowed (sockets)"),
        ("descriptors", "exited with status 1"),
        ("inodes", "files, 3000 allowed (workspace_files)"),
    ],
)
def test_an_agent_that_takes_too_many_ends_with_the_limits_name(narrow: Api, deed: str, reason: str) -> None:
    """Threads count as processes, sockets and pipes of all processes together, and empty files as files."""
    run_id = narrow.begin("greedy", deed=deed)

    assert narrow.ended(run_id)["status"] == "failed"
    turn = narrow.service.admin("run", run_id, "--log")["turns"][0]
    assert reason in turn["failure"]
    if deed == "descriptors":
        assert "Too many open files" in turn["log"]


def test_who_fills_the_disk_fails_and_who_works_beside_it_does_not(small_disk: Path) -> None:
    """Space and inodes alike: the failure names the reserve, and turns of others complete."""
    reserve = f"disk_reserve_bytes = {96 << 20}\ndisk_reserve_files = 8000\n"
    service = greedy_service(small_disk, f"concurrency = 3\n[execution.agent]\n{reserve}")
    try:
        api = Api(service)
        honest = [api.start(f"note {number}") for number in range(2)]
        greedy = [api.begin("greedy", deed=deed) for deed in ("space", "inodes")]
        honest += [api.start(f"note {number}") for number in range(2, 4)]
        failures = [api.ended(run_id) and service.admin("run", run_id)["turns"][0]["failure"] for run_id in greedy]

        assert [api.ended(run_id)["status"] for run_id in honest] == ["completed"] * 4
        assert "(disk_reserve_bytes)" in failures[0]
        assert "(disk_reserve_files)" in failures[1]
    finally:
        service.kill()


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[Usage]:
    """What is left of the disk: the last value counts."""
    free = [Usage(1000, 1000)]
    monkeypatch.setattr(disk, "left", lambda _: free[-1])
    return free


def test_only_the_turn_that_took_more_than_its_share_is_to_blame(free: list[Usage], tmp_path: Path) -> None:
    """A checkout does not count, and only the turn that took most is to blame; if others filled the disk, none is."""
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
    shared.leave(hungry)
    assert str(late.fault()).startswith("disk: it added")


def test_inodes_are_shared_like_space(free: list[Usage], tmp_path: Path) -> None:
    """The turn that made more files than its share is to blame once few are left."""
    shared = SharedDisk(AgentLimits(disk_reserve_bytes=0, disk_reserve_files=100), slots=3)
    turn = shared.join(tmp_path)
    turn.note(Usage(0, 50))
    free.append(Usage(1000, 99))
    assert turn.fault() is None

    turn.note(Usage(0, 351))

    assert (
        turn.fault()
        == "disk: it added 301 files, and 99 more files can be made, 100 are kept free (disk_reserve_files)"
    )


# Becomes another user, as root may look into every folder.
EXITING = """
import os, pathlib, shutil, tempfile
from service.execution.processes import hides_files
if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)
proc = pathlib.Path(tempfile.mkdtemp())
for pid, state, memory in ((1, "S", "4096"), (2, "S", "0"), (3, "Z", "0"), (4, "D", "0")):
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fd").chmod(0)
    (proc / str(pid) / "stat").write_text(f"{pid} (a name) {state} {'1 ' * 19}{memory} 0")
    print(hides_files(pid, proc))
    (proc / str(pid) / "fd").chmod(0o700)
shutil.rmtree(proc)
"""


def test_a_process_that_is_exiting_hides_nothing() -> None:
    """Its memory is gone, and its open files belong to root for a moment; one that lives and shows none hides them."""
    done = subprocess.run([sys.executable, "-c", EXITING], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "False", "False", "False"]
