"""A desk: real ledger and cache, in front of a server that fails in every way a server can."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.actions import (
    Actions,
)
from app.api.client import Client
from app.api.requests import CreateOrganization
from app.config.token import Token
from app.events import Event
from app.sync.runs import RunSync
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import Repository
from tests.lab import Server

API = Repository.parse("acme/api")
ADA = CreateOrganization("Ada@Customer.example")
PATIENT, HASTY = 120.0, 1.5
"""Deadlines in seconds."""


@dataclass
class Desk:
    """Actions on one ledger, in front of a faulty server."""

    server: Server
    ledger: Ledger
    cache: Cache
    client: Client
    events: list[Event] = field(default_factory=list)

    def actions(self, *, read_only: bool = False) -> Actions:
        def clock() -> datetime:
            return datetime.now(UTC)

        ring = self.events.append
        runs = RunSync(self.client, self.cache, ring, clock=clock, page_size=100, first_runs=100)
        return Actions(self.client, self.ledger, runs.store, ring, clock, "test", read_only)


@pytest.fixture(params=[PATIENT])
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """Its parameter: the deadline in seconds, or the token."""
    deadline_s, token = (PATIENT, request.param) if isinstance(request.param, str) else (request.param, "test-token")
    with Server() as server:
        async with (
            await Cache.open(tmp_path / "cache.sqlite3") as cache,
            await Ledger.open(tmp_path / "ledger.sqlite3") as ledger,
            Client(server.base_url, Token(token), deadline_s=deadline_s) as client,
        ):
            yield Desk(server, ledger, cache, client)
