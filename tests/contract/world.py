"""A real service with organizations of every kind, and what tests do with it."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from app.api.client import Client
from app.api.errors import (
    ApiError,
    RefusedError,
)
from app.api.requests import StartAgent
from app.token import Token
from storage.records import Repository, Run
from tests.service_process import RunningService, demo_setup, start_service

API = Repository.parse("acme/api")
PLAIN = {"name": "Plain", "slug": "plain", "entitlements": ["ServiceAPI"]}
ADMIN = [{"alias": "tests", "scopes": ["admin"]}]
DEADLINE_S = 60.0
Fact = TypeVar("Fact")


async def nothing() -> None:
    """Commit without more."""


async def eventually(look: Callable[[], Awaitable[Fact | None]]) -> Fact:
    """The fact, as soon as a look finds it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (fact := await look()) is not None:
            return fact
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to pass")


@dataclass(frozen=True)
class World:
    """A service with organizations of every kind, and a client for each."""

    service: RunningService
    tokens: dict[str, str]
    """By organization's slug; `creator` has scope organizations:create only, `nobody` is unknown."""

    def client(self, who: str = "acme") -> Client:
        """A client with that organization's token; use it as a context."""
        return Client(self.service.base_url, Token(self.tokens[who]))


def _forget(service: RunningService, slug: str) -> None:
    # No command takes an organization away; the spec's 404 is about one that somebody did.
    with closing(sqlite3.connect(service.data_dir / "service.sqlite", timeout=10)) as connection, connection:
        connection.execute("DELETE FROM organizations WHERE slug = ?", (slug,))


async def refused(attempt: Awaitable[object]) -> RefusedError:
    """The failure of an attempt."""
    with pytest.raises(ApiError) as caught:
        await attempt
    assert isinstance(caught.value, RefusedError)
    return caught.value


async def started(client: Client, instructions: str) -> Run:
    """A run of the quick agent that was started and is listed."""
    request = StartAgent("scribe", "acme/api", inputs={"instructions": instructions})
    run_id = (await client.send(request, before_first_byte=nothing)).result_id
    return await listed(client, run_id)


async def listed(client: Client, run_id: str, status: str | None = None) -> Run:
    """The run, as soon as the list shows it (in that status)."""

    async def look() -> Run | None:
        runs = (await client.list_runs()).runs
        return next((run for run in runs if run.run_id == run_id and status in {None, run.status}), None)

    return await eventually(look)


@contextmanager
def open_world(folder: Path) -> Iterator[World]:
    """A running service with its organizations; it ends with the block."""
    setup = demo_setup(folder)
    setup["organizations"][0]["tokens"].append({"alias": "creator", "scopes": ["organizations:create"]})
    setup["organizations"] += [
        {**PLAIN, "name": name, "slug": name, "tokens": ADMIN} for name in ("plain", "closed", "gone")
    ]
    service = start_service(folder, setup=setup, settings='[execution]\nsandbox = "none"\n')
    try:
        made = {one["slug"]: one["tokens"] for one in service.setup["organizations"]}
        tokens = {slug: found[0]["value"] for slug, found in made.items()}
        tokens |= {"creator": made["acme"][1]["value"], "nobody": "no-such-token"}
        service.admin("org", "deactivate", "closed")
        _forget(service, "gone")
        yield World(service, tokens)
    finally:
        service.stop()
