import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.console.app import RunwardenApp
from app.profiles import Settings
from app.profiles.engines import ProfileEngines
from app.runs.screen_views import first_picture
from tests.console.conftest import SMALL, Scene
from tests.console.scenes import SceneClock, a_day, settings_for
from tests.lab import Lab, Server

FleetStaged = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def staging() -> Iterator[Lab]:
    """Another service: few runs, all well."""
    with Lab() as board:
        a_day(board, 3)
        board.health = {"github": {"status": "ok"}}
        yield board


@pytest.fixture
def several(board: Lab, staging: Lab, tmp_path: Path) -> Settings:
    """Three services: one with a degraded host, one that may only be looked at, one that is not there."""
    with Server() as gone:
        nowhere = gone.base_url
    settings = settings_for(board.base_url, tmp_path)
    one = settings.profile()
    staged = replace(one, name="acme-staging", base_url=staging.base_url, read_only=True)
    profiles = (one, staged, replace(one, name="partner", base_url=nowhere))
    return replace(settings, profiles=profiles, default_profile=one.name)


@pytest.fixture
def fleet_staged(several: Settings) -> FleetStaged:
    """The console on the first of them, over real engines."""

    @asynccontextmanager
    async def stage(size: tuple[int, int] = SMALL, settings: Settings = several) -> AsyncIterator[Scene]:
        clock, profile = SceneClock(), settings.profile()
        profile_engines = ProfileEngines(settings, profile, os.environ, clock)
        engine = await profile_engines.engine(profile.name)
        await engine.refresh()

        async def opened() -> Any:
            return engine

        first = await asyncio.to_thread(first_picture, settings, profile, clock())
        app = RunwardenApp(settings, profile, opened, first, clock, profile_engines)
        try:
            async with app.run_test(size=size) as pilot:
                scene = Scene(pilot, engine, clock)
                await scene.settle()
                yield scene
        finally:
            await app.close_engine()

    return stage


@pytest.fixture
def clock() -> SceneClock:
    """The scene's time."""
    return SceneClock()
