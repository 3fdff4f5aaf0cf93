"""Opening the console: what is cached is read and painted before anything slow is even imported."""

import asyncio
import gc
import sys
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
    gc.disable()  # Starting makes objects and no garbage: collecting would cost the first picture a tenth of its time.
    from app.console.app import RunwardenApp
    from storage.cache.first_paint import peek
    from storage.records import RunFilter, RunSort

    first = peek(data_folder(settings, profile) / CACHE_FILE, RunFilter(), RunSort(), FIRST_ROWS)

    async def opening() -> "Engine":
        # Its imports take longer than the first picture did; the keys must not wait for them.
        await asyncio.to_thread(import_module, "app.engine")
        _collect_garbage_again()
        return await (open_engine() if open_engine else _open(settings, profile))

    app = RunwardenApp(settings, profile, opening, first, lambda: datetime.now(UTC))
    asyncio.run(_show(app))
    return app.return_code or 0


async def _show(app: "RunwardenApp") -> None:
    try:
        await app.run_async(mouse=app.settings.console.mouse)
    finally:
        sys.stdout.write(app.window_title.farewell)
        sys.stdout.flush()
        await app.close_engine()


async def _open(settings: Settings, profile: Profile) -> "Engine":
    from app.engine import Engine

    engine = await Engine.open(settings, profile, actor="console")
    engine.start_polling()
    return engine


def _collect_garbage_again() -> None:
    # What has been imported by now stays to the end: looking through it at every collection would only make keys wait.
    gc.freeze()
    gc.enable()
