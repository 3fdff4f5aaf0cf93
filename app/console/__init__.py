"""The console: it shows the engine's facts on a terminal and passes the user's requests to the engine."""

from app.console.start import run_console

__all__ = ["run_console"]
