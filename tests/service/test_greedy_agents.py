"""Who is to blame when the disk is nearly full."""

import subprocess
import sys
from pathlib import Path

import pytest

from service.execution import disk
from service.execution.disk import SharedDisk, Usage
from service.settings import AgentLimits
from tests.service.conftest import UNBOXED, Api
from tests.service.test_containment import ROGUE
from tests.service_process import ROOT, demo_setup, start_service


def test_who_fills_the_disk_fails_and_who_works_beside_it_does_not(small_disk: Path) -> None:
    """Space and inodes alike: the failure names the reserve, and turns of others complete."""
    (small_disk / "rogue.py").write_text(ROGUE, "utf-8")
    setup = demo_setup(small_disk)
    setup["agents"].append({"name": "rogue", "argv": ["{python}", str(small_disk / "rogue.py")]})
    reserve = f"disk_reserve_bytes = {96 << 20}\ndisk_reserve_files = 8000\n"
    settings = f"{UNBOXED}concurrency = 3\nput_back_s = 0.5\nlook_s = 0.1\n[execution.agent]\n{reserve}"
    service = start_service(small_disk, setup=setup, settings=settings)
    try:
        api = Api(service)
        honest = [api.start(f"note {number}") for number in range(2)]
        greedy = [api.begin("rogue", deed=deed) for deed in ("disk", "inodes 20000")]
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
