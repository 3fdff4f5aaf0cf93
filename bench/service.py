"""What the self-hosted service takes for a page of its list, deep ones too, in a browser, and for accepting a run."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from bench.figures import Figure, in_turn, timed
from service.api.runs import page_token
from service.cli.apply import apply_setup
from service.clock import now_micros
from service.lab import history
from service.setup import AgentEntry, OrganizationEntry, RepositoryEntry, Setup, TokenEntry
from service.store import runs
from service.store.database import Database
from service.store.runs import Filters
from service.store.schema import runs as runs_table

REQUESTS = 20
PAGE = 100


def measure(count: int) -> Iterator[Figure]:
    """Pages over a real socket from a real process over SQLite; accepting, against a bare commit on the same disk."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        database = Database(f"sqlite:///{data_dir / 'service.sqlite'}")
        organization, token = _fill(database, count)
        # Without a worker: what is accepted here names a repository that is not there.
        with serving(data_dir, "--no-worker") as base_url, calling(base_url, token) as client:
            for name, query in _lists(database).items():
                first, last = _ends(database, organization, query)
                deep, shallow = in_turn(_asking(client, last), _asking(client, first), rounds=5)
                yield Figure(f"list: the last page of {name}", deep / REQUESTS, "its first page", shallow / REQUESTS)
            signed_in = client.post(f"{base_url.removesuffix('/v1')}/sign-in", data={"token": token})
            cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
            page = f"{base_url.removesuffix('/v1')}/runs"

            def browse() -> None:
                for _ in range(REQUESTS):
                    client.get(page, headers=cookie).raise_for_status()

            (shown,) = in_turn(lambda: timed(browse), rounds=5)
            yield Figure("the page's list of runs", shown / REQUESTS, "30 ms", 0.03, bar=1.0)
            accepted, bare = in_turn(_accepting(client), _committing(data_dir), rounds=5)
            yield Figure("accept a run", accepted / REQUESTS, "bare SQLite commit", bare / REQUESTS)
        database.close()


def _fill(database: Database, count: int) -> tuple[str, str]:
    made = set_up(database, [organization("Bench", "https://bench.invalid/a")])
    wanted = history.HistoryRequest(organization="bench", runs=count, span="365d", active=5, repositories=20)
    history.make(database, wanted, now_micros())
    return made[0]


def organization(name: str, url: str) -> OrganizationEntry:
    """An organization with a token and the repository api at a URL."""
    repository = RepositoryEntry(name="api", platform="github", path="bench/api", url=url)
    return OrganizationEntry(name=name, tokens=(TokenEntry(alias="bench"),), repositories=(repository,))


def set_up(database: Database, entries: Sequence[OrganizationEntry], *agents: AgentEntry) -> list[tuple[str, str]]:
    """Make the tables, organizations and agents; return each organization's id and token."""
    database.migrate()
    with database.write() as connection:
        setup = Setup(organizations=tuple(entries), agents=agents)
        result, _ = apply_setup(connection, setup, Path.cwd(), now_micros(), None)
    return [(str(row["id"]), str(row["tokens"][0]["value"])) for row in result["organizations"]]


def _lists(database: Database) -> dict[str, dict[str, str]]:
    with database.read() as connection:
        path = connection.execute(sa.select(runs_table.c.path).limit(1)).scalar_one()
    return {"everything": {}, "status=failed": {"status": "failed"}, "one repository": {"repository": str(path)}}


def _ends(database: Database, organization: str, query: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the queries for the first and the last page of a list."""
    filters = Filters(organization, status=query.get("status"), path=query.get("repository"))
    with database.read() as connection:
        mine = sa.select(runs_table.c.created_at, runs_table.c.id).where(*runs.conditions(filters))
        oldest = mine.order_by(runs_table.c.created_at, runs_table.c.id).limit(PAGE)
        # A short list has one page: then the last one begins after its newest run.
        created_at, run_id = connection.execute(oldest).all()[-1]
    last = json.dumps([created_at, run_id], separators=(",", ":")).encode()
    token = page_token(database.secret("page_token_key"), filters, last)
    sized = {**query, "page_size": str(PAGE)}
    return sized, {**sized, "page_token": token}


def _asking(client: httpx.Client, query: dict[str, str]) -> Callable[[], float]:
    def ask() -> None:
        for _ in range(REQUESTS):
            client.get("/external/runs", params=query).raise_for_status()

    return lambda: timed(ask)


def _accepting(client: httpx.Client) -> Callable[[], float]:
    body = {"repository": "api", "inputs": {"instructions": "measure"}}

    def accept() -> None:
        for _ in range(REQUESTS):
            client.post("/external/agents/reviewer/runs", json=body).raise_for_status()

    return lambda: timed(accept)


def _committing(folder: Path) -> Callable[[], float]:
    database = Database(f"sqlite:///{folder / 'bare.sqlite'}")
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS bare (value TEXT)"))

    def commit() -> None:
        for _ in range(REQUESTS):
            with database.write() as connection:
                connection.execute(sa.text("INSERT INTO bare VALUES ('x')"))

    return lambda: timed(commit)


@contextmanager
def calling(base_url: str, token: str) -> Iterator[httpx.Client]:
    """Open a client with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


@contextmanager
def serving(data_dir: Path, *arguments: str) -> Iterator[str]:
    """Run the service on a data folder, and yield its address."""
    (data_dir / "service.toml").write_text("[limits]\nrequests_per_minute = 1000000\n", "utf-8")
    argv = [sys.executable, "-m", "service", "serve", "--port", "0", "--data-dir", str(data_dir), *arguments]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(os.environ))
    try:
        ready: dict[str, Any] = json.loads(process.stdout.readline() if process.stdout else "{}")
        yield str(ready["base_url"])
    finally:
        process.terminate()
        process.communicate(timeout=60)
