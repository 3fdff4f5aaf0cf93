"""Nine hostile agents next to 200 honest turns of three other organizations, on a disk that really runs out."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from service.settings import DataFolder
from service.store import turns
from service.store.database import Database
from tests.service.conftest import NEEDS_SANDBOX, Api, member, placed
from tests.service.deployment import VARIABLE
from tests.service.git_hosts import marked
from tests.service.processes import long_sleep, running
from tests.service.test_containment import ROGUE
from tests.service_process import SCRIBE, make_repository, start_service
from tests.waiting import eventually

# The workspace's own limits are far away: space and inodes of the disk itself run short.
SETTINGS: Final = f"""
[execution]
sandbox = "require"
concurrency = 4
[execution.agent]
processes = 100
sockets = 500
open_files = 256
memory_bytes = {256 << 20}
file_bytes = {16 << 20}
workspace_files = 1000000
disk_reserve_bytes = {320 << 20}
disk_reserve_files = 20000
"""
ENDS: Final = {
    "inodes 100000": "(disk_reserve_files)",
    "threads": "(processes)",
    "sockets": "(sockets)",
    "disk": "(disk_reserve_bytes)",
    "hungry": "(memory_bytes)",
    "huge": "(file_bytes)",
    "descriptors": "the agent exited with status 1",
    "escaping": "the agent exited with status 1",
    "clinging": None,
}
"""Each deed, and what its failure names; None: the turn completes."""
HONEST: Final = {"one": 67, "two": 67, "three": 66}
DEADLINE_S: Final = 1500


def setup_of(folder: Path) -> dict[str, object]:
    """Return the organizations, each with a repository of its own, and the agents."""
    organizations = []
    for name in (*HONEST, "hostile"):
        bare = make_repository(folder / "repositories" / name / "api", {"README.md": "# api\n"})
        organizations.append(member(name, repositories=[placed(bare)]))
    agents = []
    for name, script in {"scribe": SCRIBE, "rogue": ROGUE, "sleeper": "import time; time.sleep(3600)"}.items():
        (folder / f"{name}.py").write_text(script, "utf-8")
        agents.append({"name": name, "argv": ["{python}", str(folder / f"{name}.py")], "timeout_s": 600})
    return {"organizations": organizations, "agents": agents}


def finals(api: Api) -> set[str]:
    return {run["run_id"] for run in api.runs() if run["status"] in {"completed", "failed"}}


def attack(api: Api, over: threading.Event, mark: str) -> dict[str, list[str]]:
    """Start each deed, and again when it has ended, until that is over; return the runs when all have ended."""
    runs: dict[str, list[str]] = {deed: [] for deed in ENDS}

    def is_over() -> bool:
        final = finals(api)
        ended = [deed for deed, begun in runs.items() if not begun or begun[-1] in final]
        if not over.is_set():
            for deed in ended:
                runs[deed].append(api.begin("rogue", deed=f"clinging {mark}" if deed == "clinging" else deed))
        return over.is_set() and len(ended) == len(ENDS)

    eventually(is_over, "the honest turns and then all hostile ones end", DEADLINE_S, pause_s=0.2)
    return runs


@NEEDS_SANDBOX
@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("small_disk", ["size=1g,nr_inodes=60000"], indirect=True)
def test_hostile_agents_are_noticed_by_nobody_else(small_disk: Path, either_url: str | None) -> None:
    """Every honest turn commits once, no request fails, and no slot, process or folder is lost."""
    environment = {} if either_url is None else {VARIABLE: either_url}
    service = start_service(small_disk, setup=setup_of(small_disk), settings=SETTINGS, environment=environment)
    database = Database(either_url or DataFolder(service.data_dir).database_url)
    apis = {one["slug"]: Api(service, one) for one in service.setup["organizations"]}
    over, mark = threading.Event(), long_sleep()

    def at_work() -> tuple[int, int]:
        with database.read() as connection:
            return len(turns.dispatched(connection)), len(list((service.data_dir / "work").iterdir()))

    def reaches(number: int) -> None:
        eventually(lambda: at_work() == (number, number), f"{number} slots in use and turns at work", 120, saw=at_work)

    try:
        with ThreadPoolExecutor(1) as pool:
            attacking = pool.submit(attack, apis["hostile"], over, mark)
            try:
                honest = {name: {apis[name].start(f"note {n}") for n in range(count)} for name, count in HONEST.items()}
                for name, begun in honest.items():
                    eventually(lambda name=name, begun=begun: begun <= finals(apis[name]), "they end", DEADLINE_S)
            finally:
                over.set()
            hostile = attacking.result()
        with database.read() as connection:
            failures = {
                deed: [turns.of(connection, one)[0].failure or "" for one in begun] for deed, begun in hostile.items()
            }
        print(json.dumps({deed: Counter(one[:160] for one in found) for deed, found in failures.items()}, indent=1))

        for name, begun in honest.items():
            commits = marked([small_disk / "repositories" / name / "api.git"])
            assert commits == dict.fromkeys((f"{run_id} turn 1" for run_id in begun), 1)
        for deed, found in failures.items():
            assert all((ENDS[deed] or "") in one and bool(one) == bool(ENDS[deed]) for one in found), (deed, found)
        reaches(0)
        sleeping = [(api, api.begin("sleeper")) for api in apis.values()]
        reaches(4)
        for api, run_id in sleeping:
            assert api.post(f"/external/runs/{run_id}/cancel", {}).is_success
        reaches(0)
        assert running("/bin/sleep", mark) == []
    finally:
        database.close()
        service.kill()
