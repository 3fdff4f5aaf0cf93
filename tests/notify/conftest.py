"""A real cache, a clock that moves when told to, and a watch over them."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.notify.incidents import IncidentReader
from app.notify.watch import News, Watch
from app.profiles import NotifySettings
from storage.cache.cache import Cache
from storage.database import make_fleeting
from storage.ledger import Ledger
from storage.records import HealthSample, PollOutcome, Repository, Run
from storage.state import State

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@dataclass
class World:
    """A profile's cache as a service would fill it, minute by minute."""

    now: datetime = NOON
    runs: dict[str, Run] = field(default_factory=dict)
    cache: Cache = field(init=False)
    state: State = field(init=False)
    ledger: Ledger = field(init=False)

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator["World"]:
        """With its files open. No test here cuts the power."""
        async with AsyncExitStack() as stack:
            self.cache = await stack.enter_async_context(await Cache.open(folder / "cache.sqlite3", clock=self.clock))
            self.state = await stack.enter_async_context(await State.open(folder / "state.sqlite3", clock=self.clock))
            self.ledger = await stack.enter_async_context(
                await Ledger.open(folder / "ledger.sqlite3", clock=self.clock)
            )
            for database in (self.ledger, self.state):
                await database.writer.run(make_fleeting)
            yield self

    def clock(self) -> datetime:
        return self.now

    def pass_(self, **by: float) -> None:
        """Lets time pass."""
        self.now += timedelta(**by)

    async def watch(self, *, begin: bool = True, **notify: Any) -> Watch:
        """One process's watch."""
        settings = NotifySettings(**notify)
        incidents = IncidentReader(self.cache, {"ok"}, 30.0, timedelta(seconds=settings.hold_s))
        watch = Watch(self.cache, self.ledger, self.state, settings, incidents, "acme-prod", self.clock)
        if begin:
            await watch.begin()
        return watch

    async def run(
        self, run_id: str, status: str, *, repository: str = "acme/api", branch: str = "agent/x", **ago: float
    ) -> None:
        """The service shows a run; it was created so long ago, or when it was first shown, and changed just now."""
        await self.show(self._made(run_id, status, repository, branch, **ago))

    async def show(self, *runs: Run) -> None:
        """The service shows runs."""
        await self.cache.store_runs(runs, asked_at=self.now)
        await self.cache.judge_stuck()
        await self.link()

    async def storm(self, count: int, *repositories: str) -> None:
        """As many runs fail at once, in these repositories by turns."""
        runs = (self._made(f"run_{n}", "failed", repositories[n % len(repositories)], "agent/x") for n in range(count))
        await self.show(*runs)

    def _made(self, run_id: str, status: str, repository: str, branch: str, **ago: float) -> Run:
        before = self.runs.get(run_id)
        created = self.now - timedelta(**ago) if ago or before is None else before.created_at
        updated = self.now if before is None or before.status != status else before.updated_at
        raw = json.dumps({"run_id": run_id, "status": status})
        run = Run(run_id, status, branch, Repository.parse(repository), created, updated, raw)
        self.runs[run_id] = run
        return run

    async def health(self, **statuses: str) -> None:
        """An answer to the health request."""
        samples = tuple(HealthSample(name, status, None, None, "{}") for name, status in statuses.items())
        await self.cache.store_health(samples, at=self.now)
        await self.cache.record_poll(PollOutcome("health", self.now, None, None))

    async def link(self, kind: str | None = None) -> None:
        """A poll's outcome."""
        await self.cache.record_poll(PollOutcome("runs", self.now, kind, None if kind is None else "refused"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World().opened(tmp_path) as world:
        yield world


def titles(telling: News) -> list[str]:
    """What a look told on the screen, in its first words."""
    return [news.title for news in telling.screen]


def outward(telling: News) -> list[str]:
    """What a look told outside of it."""
    return [news.title for news in telling.outward]
