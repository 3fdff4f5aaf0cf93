import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace
from pytest_textual_snapshot import SVGImageExtension
from syrupy.assertion import SnapshotAssertion
from textual.notifications import Notification
from textual.widgets import Input, TextArea

from app.console.app import RunwardenApp
from app.engine.engine import Engine
from app.engine.events import Event, FilesChangedElsewhere, LinkChanged
from app.runs.screen import RunsScreen
from app.runs.screen_views import TableQuery
from storage.errors import DiskFailedError
from storage.records import PollOutcome
from storage.thread import DatabaseThread
from tests.console.quiet import (
    TOASTS,
    Driver,
    QuietLoop,
    QuietPilot,
    count_database_jobs,
    note_what_is_said_and_asked,
    paint_on_demand,
    parse_style_sheets_once,
)
from tests.console.scenes import NOW, TOKEN_VARIABLE, app_on, engine_on, settings_for
from tests.lab import Clock, Lab
from widgets.kit import SecondPress
from widgets.kit.cursor_view import HEADER
from widgets.runs.table import RunTable

WIDE = (140, 40)
SMALL = (80, 24)
MESSAGE = "disk I/O error. Look at the disk"
"""The error message of a failing disk."""


@dataclass
class Scene(Driver):
    """A running console, with methods for everything that can happen to it."""

    engine: Engine
    clock: Clock

    @property
    def app(self) -> RunwardenApp:
        assert isinstance(self.pilot.app, RunwardenApp)
        return self.pilot.app

    @property
    def table(self) -> RunTable:
        return self.app.screen.query_one(RunTable)

    @property
    def toasts(self) -> list[str]:
        """The full texts of all toasts so far; the screen breaks their lines."""
        return [message for _, message in TOASTS.get(self.app, [])]

    @property
    def titles(self) -> list[str]:
        """The titles of the toasts that have one, oldest first."""
        return [title for title, _ in TOASTS.get(self.app, []) if title]

    @property
    def rows(self) -> list[str]:
        """The table's lines that show a run."""
        region = self.table.region
        shown = [line[region.x : region.right - 1] for line in self.lines[region.y + HEADER : region.bottom]]
        return [line for line in shown if line.strip()]

    async def to_all_runs(self) -> None:
        """Goes back to the initial runs, with nothing open, searched, grouped or marked, and to the newest run."""
        for _ in range(2):
            while len(self.app.screen_stack) > 1:
                self.app.screen.dismiss(None)
            await self.app.switch_mode("runs")
        assert isinstance(self.app.screen, RunsScreen)
        self.app.screen.table_query = TableQuery()
        self.table.mark(self.table.marks, is_marked=False)
        self.table.focus()
        await self.press("left", "home")

    async def sync(self) -> None:
        """Polls the service once, with the screen painted first, so that anything not repainted stays visible."""
        await self.engine.refresh()
        await self.settle()

    async def ring(self, event: Event | None = None) -> None:
        """Reports a change, as the engine does; without arguments all may have changed, in another process."""
        self.engine.events.publish(event or FilesChangedElsewhere())
        await self.settle()

    async def ended(self, *outcomes: PollOutcome) -> None:
        for outcome in outcomes:
            await self.ring(LinkChanged(await self.engine.cache.record_poll(outcome)))

    async def tick(self, **by: float) -> None:
        """Lets time pass, and the screen notice it."""
        self.clock.move(**by)
        self.app.screen.beat()
        await self.settle()


Staged = Callable[..., AbstractAsyncContextManager[Scene]]
Hasty = Callable[[Scene, str], Awaitable[None]]


def pytest_asyncio_loop_factories() -> dict[str, type[QuietLoop]]:
    """Run the console's tests on a loop that knows when a console is quiet."""
    return {"quiet": QuietLoop}


@pytest.fixture(autouse=True, scope="module")
def quiet_textual() -> Iterator[None]:
    """Keys wait for their effects, style sheets are parsed once, cursors do not blink and toasts stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textual.pilot.Pilot", QuietPilot)
        count_database_jobs(patch)
        parse_style_sheets_once(patch)
        paint_on_demand(patch)
        patch.setattr(Input, "cursor_blink", False)
        patch.setattr(TextArea, "cursor_blink", False)
        patch.setattr(SecondPress, "PAUSE_S", 0)
        # Screens tick with the scene's clock alone; on a busy machine, real seconds would pass between two keys.
        patch.setattr("app.console.base.TICK_S", 3600.0)
        # Toasts stay until a test reads them, however slow the machine is.
        patch.setattr(Notification, "has_expired", False)
        patch.setattr(Notification, "time_left", 3600.0)
        note_what_is_said_and_asked(patch)
        yield


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
def staged(board: Lab, tmp_path: Path) -> Staged:
    """Starts the console over the real engine on that service; `changed` is the user's configuration."""

    @asynccontextmanager
    async def stage(
        size: tuple[int, int] = WIDE,
        *,
        synced: bool = True,
        toasts: bool = False,
        base_url: str = "",
        changed: Mapping[str, Any] = MappingProxyType({}),
        **console: Any,
    ) -> AsyncIterator[Scene]:
        clock = Clock(NOW)
        settings = replace(settings_for(base_url or board.base_url, tmp_path, **console), **changed)
        async with engine_on(settings, clock) as engine:
            if synced:
                await engine.refresh()
                # Another console was open for an hour before, and saw the active runs during that time.
                await engine.cache.writer.run(
                    lambda db: db.execute("UPDATE watched SET since_us = since_us - 3600000000")
                )
                await engine.runs.judge_stuck()
            app = app_on(settings, clock, engine)
            async with app.run_test(size=size, notifications=toasts) as pilot:
                scene = Scene(pilot, engine, clock)
                await scene.settle()
                yield scene

    return stage


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Compares a screen with its accepted picture."""
    return snapshot.use_extension(SVGImageExtension)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Hasty:
    """Presses the send key too soon after the preview, or after the press before."""

    async def press(scene: Scene, key: str) -> None:
        monkeypatch.setattr(SecondPress, "PAUSE_S", 3600)
        await scene.press(key)
        monkeypatch.setattr(SecondPress, "PAUSE_S", 0)

    return press


class Disk:
    """A disk below cache and ledger that a test can break."""

    fails = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Makes every method of cache and ledger fail while `disk.fails`."""
    disk, run = Disk(), DatabaseThread.run

    async def failing(self: DatabaseThread, *arguments: Any, **options: Any) -> Any:
        if disk.fails:
            raise DiskFailedError(MESSAGE, path=Path("cache.sqlite3"))
        return await run(self, *arguments, **options)

    monkeypatch.setattr(DatabaseThread, "run", failing)
    yield disk
    disk.fails = False
