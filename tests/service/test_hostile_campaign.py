"""Ten hostile agents next to 200 honest turns of three other organizations, on a disk that really runs out."""

import secrets
import statistics
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from service.settings import DataFolder
from service.store import turns
from service.store.database import Database
from service.store.turns import Turn
from tests.service.conftest import NEEDS_SANDBOX, Api
from tests.service.deployment import VARIABLE
from tests.service.processes import running
from tests.service_process import SCRIBE, git, make_repository, start_service
from tests.waiting import eventually

HOSTILE: Final = r"""
import json, os, pathlib, signal, socket, sys, threading, time

MIB = 1 << 20

def inodes():
    for number in range(100_000):
        os.mkdir(f"folder-{number}")
        for name in range(200): open(f"folder-{number}/{name}", "w").close()

def threads():
    for _ in range(1000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

def sockets():
    # Each process holds few, filled to the brim; all of them together hold far too many.
    for _ in range(16):
        if os.fork() == 0:
            kept = [socket.socketpair() for _ in range(25)]
            for one, _ in kept:
                one.setblocking(False)
                try:
                    while True: one.send(b"x" * 65536)
                except BlockingIOError: pass
            time.sleep(600)

def disk():
    for number in range(10_000):
        with open(f"file-{number}", "wb") as file: file.write(os.urandom(4 * MIB))

def memory():
    kept = []
    for _ in range(40):
        kept.append(b"x" * (64 * MIB)); time.sleep(0.02)

def fork():
    # Doubles ten times: a thousand processes, unless something stops it.
    for _ in range(10):
        try: os.fork()
        except OSError: pass

def descriptors():
    kept = []
    try:
        while True: kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error: sys.exit(f"{len(kept)} opened: {error}")

def names():
    # As long as a name may be, in bytes that are no text, control a terminal, or look like an option of git.
    for number in range(400):
        start = (b"--upload-pack=", b"\x1b]0;owned\x07", b"\n\xff\xfe", b".git ")[number % 4]
        open(start + b"%d" % number + b"\xe2\x80\xae" * 75, "w").close()
    sys.exit(0)

def folders():
    for _ in range(3000):
        os.mkdir("a" * 100); os.chdir("a" * 100)
    pathlib.Path("bottom").write_text("x")
    sys.exit(0)

def daemons():
    for number in range(20):
        if os.fork(): continue
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(each, signal.SIG_IGN)
        os.setsid()
        if os.fork(): os._exit(0)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(3600)", inputs["mark"]], {})
    pathlib.Path("left").write_text("daemons")
    sys.exit(0)

inputs = json.load(sys.stdin)["inputs"]
globals()[inputs["deed"]]()
time.sleep(600)
"""
LIMITS: Final = {
    "processes": 100,
    "sockets": 300,
    "open_files": 256,
    "memory_bytes": 256 << 20,
    "workspace_files": 1_000_000,
    "disk_reserve_bytes": 320 << 20,
    "disk_reserve_files": 20_000,
}
"""The workspace's own limits are far away: space and inodes of the disk itself run short."""
ENDS: Final = {
    "inodes": "(disk_reserve_files)",
    "threads": "(processes)",
    "sockets": "(sockets)",
    "disk": "(disk_reserve_bytes)",
    "memory": "(memory_bytes)",
    "fork": "(processes)",
    "descriptors": "the agent exited with status 1",
    "names": None,
    "folders": "the agent left files that git cannot store",
    "daemons": None,
}
"""Each deed, and what its failure names; None: the agent exits by itself, and its turn completes."""
HONEST: Final = ("one", "two", "three")
TURNS: Final = 200
SLOTS: Final = 4
DEADLINE_S: Final = 1500
BAR_MS: Final = 200


class Organization:
    """An honest organization: it starts its turns and reads about them, and every answer is timed."""

    def __init__(self, api: Api, count: int) -> None:
        self.api = api
        self.left = count
        self.runs: list[str] = []
        self.taken_ms: list[float] = []
        self.refused: list[str] = []
        self.begun_at = self.ended_at = 0.0

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """Send one request."""
        begun = time.perf_counter()
        answer = self.api.http.request(method, path, json=document)
        self.taken_ms.append((time.perf_counter() - begun) * 1000)
        if not answer.is_success:
            self.refused.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer.json()

    def act(self) -> bool:
        """Start a turn as long as one is left, list the runs and read one; True: all turns have ended."""
        if self.left:
            body = {"repository": "acme/api", "inputs": {"instructions": f"note {self.left}"}}
            if (made := self.ask("POST", "/external/agents/scribe/runs", body)) is not None:
                self.runs.append(made["execution_id"])
                self.left -= 1
        listed = self.ask("GET", "/external/runs?page_size=100")
        self.ask("GET", f"/external/runs/{self.runs[len(self.taken_ms) % len(self.runs)]}")
        are_final = listed is not None and all(run["status"] in {"completed", "failed"} for run in listed["runs"])
        return not self.left and are_final

    def use(self) -> None:
        """Act until all turns have ended."""
        self.begun_at = time.monotonic()
        eventually(self.act, "all honest turns end", DEADLINE_S, saw=lambda: self.refused[-3:], pause_s=0.1)
        self.ended_at = time.monotonic()


class Attackers:
    """The hostile organization: each deed is at work or waits for a slot, and begins again when it has ended."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.runs: dict[str, list[str]] = {deed: [] for deed in ENDS}
        self.mark = secrets.token_hex(8)
        """In the command line of each daemon."""
        self.over = threading.Event()

    def attack(self) -> None:
        """Start each deed, and again when it has ended, until that is over; then wait for all of them to end."""
        eventually(self._is_over, "the honest turns and then all hostile ones end", DEADLINE_S, pause_s=0.2)

    def _is_over(self) -> bool:
        final = {run["run_id"] for run in self.api.runs() if run["status"] in {"completed", "failed"}}
        ended = {deed for deed, runs in self.runs.items() if not runs or runs[-1] in final}
        if self.over.is_set():
            return len(ended) == len(ENDS)
        for deed in ended:
            self.runs[deed].append(self.api.begin("hostile", deed=deed, mark=self.mark))
        return False


def setup_of(folder: Path) -> dict[str, Any]:
    """Return the organizations, each with a repository of its own, and the three agents."""
    organizations = []
    for name in (*HONEST, "hostile"):
        bare = make_repository(folder / "repositories" / name / "api", {"README.md": "# api\n"})
        repository = {"name": "api", "platform": "github", "path": "acme/api", "url": str(bare)}
        tokens = [{"alias": "tests", "scopes": ["admin"]}]
        organizations.append({"name": name, "slug": name, "tokens": tokens, "repositories": [repository]})
    scripts = {"scribe": SCRIBE, "hostile": HOSTILE, "sleeper": "import time; time.sleep(3600)"}
    agents = []
    for name, script in scripts.items():
        file = folder / f"{name}.py"
        file.write_text(script, "utf-8")
        agents.append({"name": name, "argv": ["{python}", str(file)], "timeout_s": 600})
    return {"organizations": organizations, "agents": agents}


def work(organizations: list[Organization]) -> list[Organization]:
    """Let organizations work at the same time until all of their turns have ended."""
    with ThreadPoolExecutor(len(organizations)) as pool:
        for using in [pool.submit(one.use) for one in organizations]:
            using.result()
    return organizations


def p95(organizations: list[Organization]) -> float:
    """Return the milliseconds that nineteen of twenty requests stay under."""
    return statistics.quantiles([taken for one in organizations for taken in one.taken_ms], n=20)[-1]


def speed(organizations: list[Organization]) -> str:
    """Return how many turns and requests there were, and how quick, in words."""
    taken_ms = sorted(taken for one in organizations for taken in one.taken_ms)
    took_s = max(one.ended_at for one in organizations) - min(one.begun_at for one in organizations)
    counts = f"{sum(len(one.runs) for one in organizations)} honest turns in {took_s:.0f} s, {len(taken_ms)} requests"
    refused = sum(len(one.refused) for one in organizations)
    quick = f"p50 {statistics.median(taken_ms):.0f} ms, p95 {p95(organizations):.0f} ms, slowest {taken_ms[-1]:.0f} ms"
    return f"{counts}, {refused} refused, {quick}"


def attempts(ended: list[Turn]) -> str:
    """Return how many turns were begun again, and the most attempts of any, in words."""
    return (
        f"{sum(turn.attempt > 1 for turn in ended)} begun again, {max(turn.attempt for turn in ended)} attempts at most"
    )


def commits(folder: Path, name: str) -> Counter[str]:
    """Return how many commits each turn has in the repository of an organization."""
    form = "--format=%(trailers:key=Runwarden-Run,valueonly,separator=%x2C)"
    log = git("log", "--branches", form, cwd=folder / "repositories" / name / "api.git")
    return Counter(line for line in log.splitlines() if line)


class Slots:
    """The slots of the service's one worker: those that are in use, and the turns that are really at work."""

    def __init__(self, service: Any, database: Database) -> None:
        self._work = service.data_dir / "work"
        self._database = database

    def __call__(self) -> tuple[int, int]:
        """Return the turns that hold a slot, and the turns at work, each of which has a folder of its own."""
        with self._database.read() as connection:
            return len(turns.dispatched(connection)), len(list(self._work.iterdir()))

    def reach(self, number: int) -> None:
        """Wait until so many slots are in use, and as many turns at work."""
        eventually(lambda: self() == (number, number), f"{number} slots in use and turns at work", 120, saw=self)


@NEEDS_SANDBOX
@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("small_disk", ["size=1g,nr_inodes=60000"], indirect=True)
def test_hostile_agents_are_noticed_by_nobody_else(small_disk: Path, either_url: str | None) -> None:
    """Every honest turn commits once, no request fails, most are quick, and no slot, process or folder is lost."""
    limits = "\n".join(f"{name} = {value}" for name, value in LIMITS.items())
    settings = f'[execution]\nsandbox = "require"\nconcurrency = {SLOTS}\n[execution.agent]\n{limits}\n'
    environment = {} if either_url is None else {VARIABLE: either_url}
    service = start_service(small_disk, setup=setup_of(small_disk), settings=settings, environment=environment)
    database = Database(either_url or DataFolder(service.data_dir).database_url)
    try:
        apis = {one["slug"]: Api(service, one) for one in service.setup["organizations"]}
        attackers = Attackers(apis["hostile"])
        alone = work([Organization(apis[name], 10) for name in HONEST])
        honest = [Organization(apis[name], TURNS // 3 + (number < TURNS % 3)) for number, name in enumerate(HONEST)]
        with ThreadPoolExecutor(1) as pool:
            attacking = pool.submit(attackers.attack)
            try:
                work(honest)
            finally:
                attackers.over.set()
            attacking.result()
        with database.read() as connection:
            done = [turns.of(connection, run_id)[0] for one in honest for run_id in one.runs]
            ended = {deed: [turns.of(connection, one)[0] for one in runs] for deed, runs in attackers.runs.items()}
        print(f"\n{database.engine.name}, before the attack: {speed(alone)}")
        print(f"next to it: {speed(honest)}; {attempts(done)}")
        for deed, found in ended.items():
            failures = Counter(str(turn.failure)[:160] for turn in found).most_common(3)
            print(f"  {deed}: {len(found)} turns, {attempts(found)}: {failures}")

        assert [one.refused for one in honest] == [[], [], []]
        for name, before, one in zip(HONEST, alone, honest, strict=True):
            assert commits(small_disk, name) == {f"{run_id} turn 1": 1 for run_id in (*before.runs, *one.runs)}
        assert {turn.status for turn in done} == {"completed"}
        for deed, found in ended.items():
            assert {turn.status for turn in found} == {"failed" if ENDS[deed] else "completed"}, (deed, found)
            assert all((ENDS[deed] or "") in (turn.failure or "") for turn in found), (deed, found)
        slots = Slots(service, database)
        slots.reach(0)
        sleeping = [(api, api.begin("sleeper")) for api in apis.values()]
        slots.reach(SLOTS)
        for api, run_id in sleeping:
            assert api.post(f"/external/runs/{run_id}/cancel", {}).is_success
        slots.reach(0)
        assert running(attackers.mark) == []
        assert p95(honest) < BAR_MS, f"before the attack: {p95(alone):.0f} ms"
    finally:
        database.close()
        service.kill()
