"""What a collaborator of a screen needs, without a screen: a session over a real engine that polls nothing."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from app.console.runs.screen_context import ScreenContext
from app.console.session import Session
from app.engine import Engine
from storage.records import Repository, Run
from tests.console.scenes import SceneClock, engine_on, settings_for


@dataclass
class Desk:
    """Records what a collaborator asks of its screen."""

    engine: Engine
    screens: list[tuple[Screen[Any], Callable[[Any], None]]] = field(default_factory=list)
    started: list[Any] = field(default_factory=list)
    posted: list[Message] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    polled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings, self.cache = self.engine.settings, self.engine.cache
        self.clock = SceneClock()
        self.session = Session(
            self.settings,
            self.settings.profile(),
            self.clock,
            None,
            owner=Widget(),
            toast=lambda message, **_: self.said.append(message),
            copy_text=self.copied.append,
        )
        self.context = ScreenContext(
            self.session,
            lambda screen, callback: self.screens.append((screen, callback)),
            lambda work, **_: self.started.append(work),
            self.posted.append,
        )
        self.session.engine = self.engine
        self.session.poll_soon = lambda: self.polled.append("now")  # type: ignore[method-assign]

    async def work(self) -> None:
        """Does what was started."""
        while self.started:
            await self.started.pop(0)()

    def answer(self, result: Any) -> None:
        """Closes the last sheet with a result."""
        _, callback = self.screens.pop()
        callback(result)

    async def store(self, *runs: Run) -> None:
        """Puts runs into the cache."""
        await self.cache.store_runs(runs, asked_at=self.clock())


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """An engine that is open, with four runs."""
    settings = settings_for("http://localhost/v1", tmp_path)
    async with engine_on(settings, SceneClock()) as engine:
        desk = Desk(engine)
        await desk.store(
            a_run(1, "failed", "main"), a_run(2, "completed", "main"), a_run(3), a_run(4, "working", "", "acme/web")
        )
        yield desk


def a_run(number: int, status: str = "completed", branch: str = "agent/x", repository: str = "acme/api") -> Run:
    """A run, created so many minutes ago."""
    clock = SceneClock()
    clock.move(minutes=-number)
    raw = json.dumps({"run_id": f"run_{number}", "status": status})
    return Run(f"run_{number}", status, branch, Repository.parse(repository), clock(), clock(), raw)
