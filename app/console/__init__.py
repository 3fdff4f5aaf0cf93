"""The console: the engine's facts on a terminal, and a person's wishes back to it."""

from app.console.start import run_console

__all__ = ["run_console"]
