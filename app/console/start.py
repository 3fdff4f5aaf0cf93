"""Opening the console: what is cached is read and painted before anything slow is even imported."""

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from app.config import Profile, Settings
from app.console.terminal.size import follow_window, is_on_terminal

if TYPE_CHECKING:
    from app.console.app import RunwardenApp
    from app.engine import Engine
    from storage.cache.first_paint import FirstPaint


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
    follow_window()
    gc.disable()  # Starting makes objects and no garbage: collecting would cost the first picture a tenth of its time.
    from app.console.profiles.engines import ProfileEngines
    from app.console.runs.opening import first_picture
    from app.console.terminal.hangup import ending_with_terminal

    first = first_picture(settings, profile, datetime.now(UTC))
    profile_engines = ProfileEngines(settings, profile, os.environ, lambda: datetime.now(UTC))
    with ending_with_terminal(), _early_picture(settings, profile, first) as modes:
        from app.console.app import RunwardenApp

        async def opening() -> "Engine":
            # Its imports take longer than the first picture did; the keys must not wait for them.
            await asyncio.to_thread(import_module, "app.engine")
            _collect_garbage_again()
            return await (open_engine() if open_engine else profile_engines.at_work(profile.name))

        app = RunwardenApp(settings, profile, opening, first, lambda: datetime.now(UTC))
        app.modes_before, app.profile_engines = modes, profile_engines
        asyncio.run(_show(app))
    return app.return_code or 0


@contextmanager
def _early_picture(settings: Settings, profile: Profile, first: "FirstPaint | None") -> Iterator[list[Any] | None]:
    """What is cached, drawn while the toolkit is imported; the terminal's modes from before, where it was drawn."""
    from app.console.runs.opening import picture_file
    from app.console.runs.preferences import PreferencesFile
    from app.console.runs.views import first_query
    from app.console.terminal import early
    from widgets.frame.freshness import PollTiming, freshness

    if first is None or not first.rows or not is_on_terminal():
        yield None
        return
    kind = early.terminal_kind(os.get_terminal_size(), os.environ)
    canvas = early.recall(picture_file(settings, profile), kind, settings.console.theme)
    if canvas is None:
        yield None
        return
    now, memory = datetime.now(UTC), PreferencesFile.of(settings, profile).read()
    link = next((link for link in first.links if link.subject == "runs"), None)
    header = early.header_of(profile.name, freshness(link, PollTiming(now, profile.poll.runs_s), now).text)
    picture = early.Picture(header, first.rows, first_query(settings, memory).sort, memory.columns, now)
    with early.on_terminal(early.drawn(canvas, picture)) as modes:
        yield modes


async def _show(app: "RunwardenApp") -> None:
    try:
        await app.run_async(mouse=app.settings.console.mouse)
    finally:
        sys.stdout.write(app.window_title.farewell)
        sys.stdout.flush()
        await app.close_engine()


def _collect_garbage_again() -> None:
    # What has been imported by now stays to the end: looking through it at every collection would only make keys wait.
    gc.freeze()
    gc.enable()
