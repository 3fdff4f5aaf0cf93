"""Real databases in separate folders, and facts to put into them."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from subprocess import PIPE
from textwrap import indent
from typing import Final

import pytest

from storage.cache import opening, store_runs
from storage.cache.cache import Cache
from storage.ledger import Ledger, new_action_id
from storage.records import Action, ActionKind, Repository, Run
from storage.values import to_us
from tests.lab import Clock
from tests.program import Program

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
Connections = tuple[Connection, Connection]


def store(writer: Connection, runs: Sequence[Run]) -> None:
    """Store the runs of one answer, requested at noon."""
    store_runs.store_all(writer, [store_runs.PreparedRuns(to_us(NOON), store_runs.prepare(runs))])


@contextmanager
def connected(folder: Path, runs: Iterable[Run] = ()) -> Iterator[Connections]:
    """A writer and a reader of a cache that has these runs."""
    path = folder / "cache.sqlite3"
    opening.prepare(path, NOON)
    with closing(opening.connect_writer(path)) as writer, closing(opening.connect_reader(path)) as reader:
        store(writer, list(runs))
        yield writer, reader


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


def make_run(
    number: int,
    status: str = "working",
    *,
    branch: str | None = None,
    repository: str = "acme/api",
    created_at: datetime | None = NOON,
    updated_at: datetime | None = NOON,
    note: str = "",
) -> Run:
    """A run; unset fields depend on its number, or are the same for all."""
    run_id = f"run_{number:04d}"
    raw = json.dumps({"run_id": run_id, "status": status, "note": note})
    branch = f"agent/job-{number}" if branch is None else branch
    return Run(run_id, status, branch, Repository.parse(repository), created_at, updated_at, raw)


@pytest.fixture
def cache_path(tmp_path: Path) -> Path:
    return tmp_path / "profile" / "cache.sqlite3"


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    return tmp_path / "profile" / "ledger.sqlite3"


@pytest.fixture
async def cache(cache_path: Path, clock: Clock) -> AsyncIterator[Cache]:
    async with await Cache.open(cache_path, clock=clock) as opened:
        yield opened


@pytest.fixture
async def ledger(ledger_path: Path, clock: Clock) -> AsyncIterator[Ledger]:
    async with await Ledger.open(ledger_path, clock=clock) as opened:
        yield opened


def entry(
    key: str = "key-1",
    subject: str = "ann@acme.test",
    kind: ActionKind = "organization.create",
    body_json: str = '{"email": "ann@acme.test"}',
    actor: str = "cli:ann",
    at: datetime = NOON,
    **more: str,
) -> Action:
    """A write to record in a ledger."""
    facts = {"action_id": new_action_id(at), "path": "/external/organizations", **more}
    texts = {"kind": kind, "subject": subject, "key": key, "body_json": body_json, "actor": actor}
    return Action(**facts, **texts, state="prepared", created_at=at)


@pytest.fixture
def prepare(ledger: Ledger) -> Callable[..., object]:
    """Records an organization's creation; awaitable."""

    async def enter(key: str = "key-1", subject: str = "ann@acme.test", **changed: str) -> Action:
        return await ledger.prepare(entry(key, subject, at=ledger.clock(), **changed))

    return enter


RACER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from storage.cache.cache import Cache
from storage.errors import KeyTakenError, SubjectBlockedError
from storage.ledger import Ledger
from storage.state import State
from tests.storage.conftest import entry

async def start():
    print("ready", flush=True)
    sys.stdin.readline()

async def main(number, path, *more):
{work}
    sys.stdout.flush()
    sys.stdin.readline()

asyncio.run(main(*sys.argv[1:]))
"""


def race(work: str, count: int, *arguments: str) -> list[str]:
    """Run the body of a function in several processes, which all continue from `await start()` at the same moment."""
    code, streams = RACER.format(work=indent(work, "    ")), (PIPE, PIPE, sys.__stderr__.fileno())
    processes = [Program((str(n), *arguments), os.environ, code=code, streams=streams) for n in range(count)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    # All wait for the last answer, since an exited process's remains may be taken over.
    answers = [process.stdout.readline().strip() for process in processes]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * count
    return answers
