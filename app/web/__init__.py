"""The console in a browser: on loopback, for whoever has the one-time link, and nobody else.

Imports textual-serve and aiohttp, of the extra `web`: `app.cli.web` imports this package once it knows they are there.
"""

from app.web.server import WebConsole

__all__ = ["WebConsole"]
