"""A real cache, a clock that the test moves, and a watch over them."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

from app.automations.bot import host_routes
from app.health.incidents import IncidentReader
from app.notify.dispatcher import Dispatcher
from app.notify.watch import News, Watch
from app.profiles import NotifySettings
from app.profiles.load import parse
from storage.cache.cache import Cache
from storage.claims import Owner
from storage.database import make_fast
from storage.ledger import Ledger
from storage.records import HealthSample, PollOutcome, Repository, Run
from storage.records.alert import Message
from storage.state import State
from tests.lab import Clock

TO_ALL = '[notify.routes.oncall]\ncommand = ["true"]\n[[notify.rules]]\nroute = "oncall"\n'
"""Everything goes to one route."""
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@dataclass
class World(Clock):
    """A profile's cache as a service would fill it, minute by minute, and a shared clock."""

    now: datetime = NOON
    runs: dict[str, Run] = field(default_factory=dict)
    cache: Cache = field(init=False)
    state: State = field(init=False)
    ledger: Ledger = field(init=False)
    said: list[dict[str, Any]] = field(default_factory=list)
    """The notifier's log lines."""
    _seen: int = 0

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator["World"]:
        """The same world with its files open. They are not synced, since no test simulates a power cut."""
        async with AsyncExitStack() as stack:
            self.cache = await stack.enter_async_context(await Cache.open(folder / "cache.sqlite3", clock=self))
            self.state = await stack.enter_async_context(await State.open(folder / "state.sqlite3", clock=self))
            self.ledger = await stack.enter_async_context(await Ledger.open(folder / "ledger.sqlite3", clock=self))
            for database in (self.ledger, self.state):
                await database.writer.run(make_fast)
            yield self

    async def watch(self, *, begin: bool = True, **notify: Any) -> Watch:
        settings = NotifySettings(**notify)
        incidents = IncidentReader(self.cache, {"ok"}, 30.0, timedelta(seconds=settings.hold_s))
        watch = Watch(self.cache, self.ledger, self.state, settings, incidents, "acme-prod")
        if begin:
            await watch.begin()
        return watch

    def dispatcher(self, text: str = TO_ALL) -> Dispatcher:
        """A bot process that notifies, with this configuration."""
        settings = parse(Path("/etc/config.toml"), text)
        notify, routes = settings.notify, host_routes(settings.automations)
        incidents = IncidentReader(self.cache, {"ok"}, 30.0, timedelta(seconds=notify.hold_s))
        files = (self.state, self.cache, self.ledger)
        return Dispatcher(*files, incidents, notify, "acme", self._say, host_routes=routes)

    def _say(self, event: str, **facts: Any) -> None:
        self.said.append({"event": event, **facts})

    async def began(self, text: str = TO_ALL) -> Dispatcher:
        """A dispatcher that has polled once, a minute ago."""
        dispatcher = self.dispatcher(text)
        await dispatcher.make_messages()
        self.move(minutes=1)
        return dispatcher

    async def made(self) -> list[Message]:
        """The messages created since the last call, oldest first."""
        messages = [delivery.message for delivery in await self.state.recent_deliveries(10_000)][::-1]
        fresh, self._seen = messages[self._seen :], len(messages)
        return fresh

    async def titles(self) -> list[str]:
        return [message.title for message in await self.made()]

    async def arrive(self) -> None:
        for delivery in await self.state.due_deliveries(self.now):
            await self.state.settle_delivery(delivery, "delivered", self.now)

    async def after(self, dispatcher: Dispatcher, looks: int = 1, **by: float) -> list[str]:
        """Lets time pass and earlier messages arrive before each poll.

        Returns the titles of the messages created then.
        """
        for _ in range(looks):
            await self.arrive()
            self.move(**by)
            await dispatcher.make_messages()
        return await self.titles()

    async def deliver(self, dispatcher: Dispatcher) -> list[str]:
        """Deliver what is due; return the log events of it."""
        self.said.clear()
        await dispatcher.deliver()
        return [line["event"] for line in self.said]

    async def run(
        self, run_id: str, status: str, *, repository: str = "acme/api", branch: str = "agent/x", **ago: float
    ) -> None:
        """Let the service show a run, created this long ago or when it was first shown, and changed now."""
        await self.show(self._made(run_id, status, repository, branch, **ago))

    async def show(self, *runs: Run) -> None:
        await self.cache.store_runs(runs, asked_at=self.now)
        await self.cache.judge_stuck()
        await self.link()

    async def storm(self, count: int, *repositories: str) -> None:
        """Let this many runs fail at once, alternating between these repositories."""
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
        samples = tuple(HealthSample(name, status, None, None, "{}") for name, status in statuses.items())
        await self.cache.store_health(samples, at=self.now)
        await self.cache.record_poll(PollOutcome("health", self.now, None, None))

    async def owned_by(self, owner: Owner) -> None:
        """Make this process the owner of everything that is being acted on or delivered."""
        for query in (
            "UPDATE decisions SET owner_json = ? WHERE outcome = 'acting'",
            "UPDATE deliveries SET owner_json = ? WHERE owner_json IS NOT NULL",
        ):
            await self.state.writer.run(
                lambda connection, query=query: connection.execute(query, (json.dumps(astuple(owner)),))
            )

    async def link(self, kind: str | None = None) -> None:
        await self.cache.record_poll(PollOutcome("runs", self.now, kind, None if kind is None else "refused"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World().opened(tmp_path) as world:
        yield world


def titles(telling: News) -> list[str]:
    """The titles of the notices on the screen."""
    return [news.title for news in telling.screen]


def outward(telling: News) -> list[str]:
    """The titles of the notices outside the screen."""
    return [news.title for news in telling.outward]
