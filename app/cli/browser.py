"""A console that a browser shows: how its process knows, and how it ends when its server is gone."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Final

WEB_DRIVER: Final = "textual.drivers.web_driver:WebDriver"
"""What textual-serve sets for the processes that it shows."""
_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 5.0


def is_in_browser(env: Mapping[str, str]) -> bool:
    """Whether `runwarden web` has a browser in place of this process's terminal."""
    return env.get("TEXTUAL_DRIVER") == WEB_DRIVER


def end_with_server() -> None:
    """From now on this process ends when the one that started it does, even one that was killed."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="server watch", daemon=True).start()


def _watch(server: int) -> None:
    while os.getppid() == server:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    # In order, if it can: an app that has nowhere left to draw may not find its end.
    time.sleep(_PATIENCE_S)
    os._exit(128 + signal.SIGTERM)
