import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import WIDE, Scene
from tests.console.scenes import SceneClock, app_on, engine_on, settings_for
from tests.run_board import Board

Configured = Callable[..., AbstractAsyncContextManager[Scene]]


async def until(fact: Callable[[], bool], deadline_s: float = 60.0) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(deadline_s):
        while not fact():  # noqa: ASYNC110 — whoever makes it so has no event to wait for
            await asyncio.sleep(0.005)


@pytest.fixture
def configured(board: Board, tmp_path: Path) -> Configured:
    """The console on show with what a user configured, over the real engine."""

    @asynccontextmanager
    async def stage(size: tuple[int, int] = WIDE, **settings: Any) -> AsyncIterator[Scene]:
        clock = SceneClock()
        changed = replace(settings_for(board.base_url, tmp_path), **settings)
        async with engine_on(changed, clock) as engine:
            await engine.refresh()
            app = app_on(changed, clock, engine)
            async with app.run_test(size=size) as pilot:
                scene = Scene(pilot, engine, clock)
                await scene.settle()
                yield scene

    return stage
