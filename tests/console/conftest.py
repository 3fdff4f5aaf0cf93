import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from app.console.app import RunwardenApp
from app.engine import Engine
from tests.console.scenes import TOKEN_VARIABLE, SceneClock, a_day, app_on, engine_on, settings_for
from tests.run_board import Board, served
from widgets.cursor_view import HEADER
from widgets.runs.table import RunTable

WIDE = (140, 40)
SMALL = (80, 24)


@dataclass
class Scene:
    """A console on show, and everything that can happen to it."""

    pilot: Pilot[None]
    engine: Engine
    clock: SceneClock

    @property
    def app(self) -> RunwardenApp:
        assert isinstance(self.pilot.app, RunwardenApp)
        return self.pilot.app

    @property
    def table(self) -> RunTable:
        return self.app.screen.query_one(RunTable)

    @property
    def text(self) -> str:
        """What is on the screen, line by line."""
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        return ["".join(segment.text for segment in line) for line in self.app.screen._compositor.render_strips()]

    @property
    def rows(self) -> list[str]:
        """The table's lines that hold a run."""
        region = self.table.region
        lines = [line[region.x : region.right - 1] for line in self.lines[region.y + HEADER : region.bottom]]
        return [line for line in lines if line.strip()]

    async def settle(self) -> None:
        """Waits until nothing is on its way any more."""
        for _ in range(3):
            await self.app.workers.wait_for_complete()
            await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def sync(self) -> None:
        """Asks the service once."""
        await self.engine.refresh()
        await self.settle()

    async def tick(self, **by: float) -> None:
        """Lets time pass, and the screen see it."""
        self.clock.move(**by)
        self.app.screen._tick()
        await self.settle()


Staged = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture(autouse=True)
def quiet_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """UTC, colours, and a token."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(TOKEN_VARIABLE, "token-of-the-scene")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def board() -> Iterator[Board]:
    """A service with a day's runs, over a real socket."""
    with served(Board()) as board:
        a_day(board)
        yield board


@pytest.fixture
def staged(board: Board, tmp_path: Path) -> Staged:
    """Puts the console on show, over the real engine on that service."""

    @asynccontextmanager
    async def stage(
        size: tuple[int, int] = WIDE, *, synced: bool = True, base_url: str = "", **console: Any
    ) -> AsyncIterator[Scene]:
        clock = SceneClock()
        settings = settings_for(base_url or board.base_url, tmp_path, **console)
        async with engine_on(settings, clock) as engine:
            if synced:
                await engine.refresh()
            app = app_on(settings, clock, engine)
            async with app.run_test(size=size) as pilot:
                scene = Scene(pilot, engine, clock)
                await scene.settle()
                yield scene

    return stage


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Compares a screen with the picture that was accepted before."""
    return snapshot.use_extension(SVGImageExtension)
