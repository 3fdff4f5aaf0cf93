"""The console: it shows the engine's facts on a terminal and passes the user's requests to the engine.

`run_console` reads and paints cached rows before anything slow is imported.
"""

import asyncio
import gc
import os
from typing import TYPE_CHECKING, Any

from app.console.process import on_terminal
from app.profiles import Profile, Settings
from storage.values import utc_now

if TYPE_CHECKING:
    from app.console.terminal import KeepFrame


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
    gc.disable()  # A start makes hardly any garbage: collecting it would take a tenth of the time to the first frame.
    from app.profiles.engines import ProfileEngines
    from app.runs.screen_views import first_picture

    first = first_picture(settings, profile, utc_now())
    engines = ProfileEngines(settings, profile, os.environ, utc_now)
    with on_terminal():
        from app.console.app import RunwardenApp

        app = RunwardenApp(settings, profile, engines, first, utc_now)
        app.modes_before = modes_before
        app.keep_frame = keep_frame

        async def showing() -> None:
            try:
                await app.run_async(mouse=settings.console.mouse)
            finally:
                await app.engines.close()

        asyncio.run(showing())
    return app.return_code or 0
