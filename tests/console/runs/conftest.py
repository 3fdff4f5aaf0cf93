"""What a collaborator of a screen needs, without a screen: a session over a real engine that polls nothing."""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
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
from tests.console.conftest import WIDE, Scene, Staged
from tests.console.scenes import TOKEN_VARIABLE, SceneClock, engine_on, settings_for
from tests.run_board import Board

HELD = 20
"""How many runs the first refresh of a console that has `begun` reads."""


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


@pytest.fixture
def begun(staged: Staged, board: Board, tmp_path: Path) -> Staged:
    """Puts a console on show whose first refresh reads the newest 20 of 60 runs."""

    def begin(size: tuple[int, int] = WIDE, *, synced: bool = True) -> AbstractAsyncContextManager[Scene]:
        os.environ[TOKEN_VARIABLE] = "token-of-the-scene"  # The engine before it took it.
        profile = settings_for(board.base_url, tmp_path).profile()
        poll = replace(profile.poll, page_size=HELD, first_runs=HELD)
        return staged(size, synced=synced, changed={"profiles": (replace(profile, poll=poll),)})

    return begin


def cursor_line(scene: Scene) -> str:
    return next(line for line in scene.lines if line.startswith("▌"))
