"""Opening the console: what is cached is read and painted before anything slow is even imported."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Final

from app.config import CACHE_FILE, Profile, Settings, data_folder

if TYPE_CHECKING:
    from app.console.app import RunwardenApp
    from app.engine import Engine

FIRST_ROWS: Final = 120
"""Rows read for the first picture: more than any terminal is high."""


def run_console(
    settings: Settings, profile: Profile, *, open_engine: Callable[[], Awaitable["Engine"]] | None = None
) -> int:
    """Shows the console until it is left.

    Args:
        settings: The configuration.
        profile: Which service.
        open_engine: Opens the engine behind it and has it poll. None: the profile's own.

    Returns:
        The process's exit code: 0, 1 after a crash, 128 + n after signal n.
    """
    from app.console.app import RunwardenApp
    from storage.cache.first_paint import peek
    from storage.records import RunFilter, RunSort

    first = peek(data_folder(settings, profile) / CACHE_FILE, RunFilter(), RunSort(), FIRST_ROWS)
    opening = open_engine or (lambda: _open(settings, profile))
    app = RunwardenApp(settings, profile, opening, first, lambda: datetime.now(UTC))
    asyncio.run(_show(app))
    return app.return_code or 0


async def _show(app: "RunwardenApp") -> None:
    try:
        await app.run_async()
    finally:
        await app.close_engine()


async def _open(settings: Settings, profile: Profile) -> "Engine":
    # Its imports take longer than the first picture did; the keys must not wait for them.
    module = await asyncio.to_thread(import_module, "app.engine")
    engine: Engine = await module.Engine.open(settings, profile, actor="console")
    engine.start_polling()
    return engine
