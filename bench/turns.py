"""What a turn costs beside the same work by hand: a shell that clones, changes a file, commits and pushes."""

import contextlib
import itertools
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
import sqlalchemy as sa

from bench.figures import Figure, in_turn, timed
from bench.service import calling, organization, serving, set_up
from bench.tenants import repository
from service.clock import SECOND_MICROS, now_micros, parse_rfc3339
from service.settings import DataFolder
from service.setup import AgentEntry
from service.store.database import Database
from service.store.schema import turns
from tests.service.postgres import NoPostgresError, cluster

AT_ONCE = (1, 4)
BRANCHES = 5
MANY = 40
ASKED_S = 0.02
_ORIGIN = "origin"
_TOUCH = AgentEntry(name="touch", argv=("/bin/sh", "-c", "date +%s%N > changed"))
_BY_HAND = """set -e
git clone --quiet "$1" "$2"
cd "$2"
git checkout --quiet -b "$3"
date +%s%N > changed
git add changed
git -c user.name=b -c user.email=b@bench.invalid commit --quiet -m changed
git push --quiet origin "$3"
"""
_STAGES = ("until it has a place", "until a worker begins", "fetch and check out", "agent, commit and push", "clear up")


def measure(_count: int) -> Iterator[Figure]:
    """POST to completed over a real socket, waiting included; both push into the same repository."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(MANY) as pool:
        root, numbers = Path(folder), itertools.count()
        with _service(root, f"sqlite:///{root / 'service.sqlite'}") as (client, database):
            for at_once in AT_ONCE:
                begun = now_micros()
                turn, floor = in_turn(
                    lambda at_once=at_once: _taken(pool, at_once, client, database),
                    lambda at_once=at_once: timed(
                        lambda: _together(pool, at_once, lambda: _by_hand(root, f"by-hand-{next(numbers)}"))
                    ),
                )
                yield Figure(f"a turn that touches a file, {at_once} at a time", turn, "by hand", floor, bar=3.0)
                for stage, seconds in zip(_STAGES, _seconds(database, DataFolder(root), begun), strict=True):
                    yield Figure(f"    {stage}", seconds, "by hand", floor)
            yield _many(pool, client, database, "SQLite")
    with (
        contextlib.suppress(NoPostgresError),
        cluster() as server,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(MANY) as pool,
        _service(Path(folder), server.create("turns")) as (client, database),
    ):
        yield _many(pool, client, database, "PostgreSQL")


@contextlib.contextmanager
def _service(root: Path, url: str) -> Iterator[tuple[httpx.Client, Database]]:
    """Run a service whose agent touches a file in a repository of a few branches."""
    database = Database(url)
    [(_, token)] = set_up(database, [organization("Bench", str(repository(root / _ORIGIN, BRANCHES)))], _TOUCH)
    with (
        serving(root, "--database", url, "--workers", str(max(AT_ONCE))) as base_url,
        calling(base_url, token) as client,
    ):
        yield client, database
    database.close()


def _many(pool: ThreadPoolExecutor, client: httpx.Client, database: Database, kind: str) -> Figure:
    (taken,) = in_turn(lambda: _taken(pool, MANY, client, database), rounds=3)
    return Figure(f"{MANY} turns on {max(AT_ONCE)} slots, {kind}", taken, "15 a second", MANY / 15, bar=1.0)


def _taken(pool: ThreadPoolExecutor, at_once: int, client: httpx.Client, database: Database) -> float:
    """Return the seconds from the first request to the recorded end of the last turn.

    The database is asked, as requests would cost the service processor time.
    """
    begun = now_micros()
    started = _together(pool, at_once, lambda: _start(client))
    ends = sa.select(turns.c.status, turns.c.finished_at).where(turns.c.run_id.in_(started))
    while True:
        with database.read() as connection:
            found = connection.execute(ends).all()
        if any(status == "failed" for status, _ in found):
            raise RuntimeError("a turn failed")
        if all(status == "completed" for status, _ in found):
            return float(max(at for _, at in found) - begun) / SECOND_MICROS
        time.sleep(ASKED_S)


def _together(pool: ThreadPoolExecutor, at_once: int, work: Callable[[], object]) -> list[object]:
    return [one.result() for one in [pool.submit(work) for _ in range(at_once)]]


def _start(client: httpx.Client) -> str:
    answer = client.post("/external/agents/touch/runs", json={"repository": "api"}).raise_for_status()
    return str(answer.json()["execution_id"])


def _by_hand(root: Path, name: str) -> None:
    subprocess.run(["/bin/sh", "-c", _BY_HAND, "sh", str(root / _ORIGIN), str(root / name), name], check=True)


def _seconds(database: Database, folder: DataFolder, since: int) -> Iterator[float]:
    """Yield the median time that the turns accepted since an instant spent in each stage."""
    columns = (turns.c.run_id, turns.c.accepted_at, turns.c.dispatched_at, turns.c.started_at, turns.c.finished_at)
    with database.read() as connection:
        taken = connection.execute(sa.select(*columns).where(turns.c.accepted_at >= since)).all()
    spent = []
    for run_id, accepted, dispatched, started, finished in taken:
        lines = [line.split(" ")[:2] for line in folder.turn_file(run_id, 1, "log").read_text("utf-8").splitlines()]
        logged = {word: parse_rfc3339(at, round_up=False) for at, word in lines}
        marks = (accepted, dispatched, started, logged["branch"], logged["pushed"], finished)
        spent.append([(end - begin) / SECOND_MICROS for begin, end in itertools.pairwise(marks)])
    return map(median, zip(*spent, strict=True))
