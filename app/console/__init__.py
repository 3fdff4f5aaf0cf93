"""The console: it shows the engine's facts on a terminal and passes the user's requests to the engine.

`run_console` reads and paints cached rows before anything slow is imported.
"""

import asyncio
import gc
import os
import sys
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from app.console.process import ending_with_terminal, follow_window
from app.profiles import Profile, Settings
from app.start.streams import draw_on_stdout, remarking

if TYPE_CHECKING:
    from app.console.terminal import KeepFrame
    from app.engine.engine import Engine


def run_console(
    settings: Settings,
    profile: Profile,
    *,
    modes_before: list[Any] | None = None,
    keep_frame: "KeepFrame | None" = None,
) -> int:
    """Show the console until it is left; return the exit code: 0, 1 after a crash, 128 + n after signal n.

    `modes_before` are the terminal's modes from before the first frame, if
    there was one; without `keep_frame` no frame is kept for the next start.
    """
    follow_window()
    draw_on_stdout()
    gc.disable()  # A start makes hardly any garbage: collecting it would take a tenth of the time to the first frame.
    from app.profiles.engines import ProfileEngines
    from app.runs.screen_views import first_picture

    first = first_picture(settings, profile, datetime.now(UTC))
    profile_engines = ProfileEngines(settings, profile, os.environ, lambda: datetime.now(UTC))
    with ending_with_terminal():
        from app.console.app import RunwardenApp

        async def opening() -> "Engine":
            # These imports take longer than the first frame did; keys must not wait for them.
            await asyncio.to_thread(import_module, "app.engine.engine")
            # Modules imported by now are never freed: checking them at every collection would only delay keys.
            gc.freeze()
            gc.enable()
            return await profile_engines.open_polling(profile.name)

        app = RunwardenApp(settings, profile, opening, first, lambda: datetime.now(UTC), profile_engines)
        app.terminal.modes_before = modes_before
        app.terminal.keep_frame = keep_frame

        async def showing() -> None:
            try:
                await app.run_async(mouse=settings.console.mouse)
            finally:
                with remarking(sys.stdout):
                    sys.stdout.write(app.terminal.farewell)
                    sys.stdout.flush()
                await app.close_engine()

        asyncio.run(showing())
    return app.return_code or 0
