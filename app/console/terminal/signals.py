"""Signals give the terminal back as it was, and a status that tells how it ended."""

import asyncio
import signal
from typing import Any, Final

from textual.app import App

from app.console.terminal.hangup import SIGNAL_STATUS

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def restore_on_signals(app: App[Any]) -> None:
    """From now on a signal ends the app in order, with 128 + its number as return code."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, _end, app, number)
        except (ValueError, RuntimeError):
            return  # Not the main thread, such as under a test runner: signals are not ours there.


def _end(app: App[Any], number: signal.Signals) -> None:
    app.exit(return_code=SIGNAL_STATUS + number)
