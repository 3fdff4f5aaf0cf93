"""A profile's files without the service: quick to open, for commands that only read local data."""

import getpass
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from msgspec import Struct

from app.profiles import CACHE_FILE, LEDGER_FILE, Profile, Settings, data_folder
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import Author, Surface
from storage.values import Clock, utc_now


class ProfileFiles(Struct, frozen=True):
    """A profile's cache and ledger; code that reads them also takes an engine, which has the same attributes."""

    settings: Settings
    cache: Cache
    ledger: Ledger
    clock: Clock

    @classmethod
    async def open(
        cls, settings: Settings, profile: Profile, *, actor: str, clock: Clock = utc_now, cache_file: Path | None = None
    ) -> Self:
        """Open both. `cache_file`: used in place of the profile's own cache."""
        async with AsyncExitStack() as stack:
            cache = await Cache.open(cache_file or data_folder(settings, profile) / CACHE_FILE, clock=clock)
            stack.push_async_callback(cache.close)
            ledger = await open_ledger(settings, profile, actor=actor, clock=clock)
            stack.pop_all()
        return cls(settings, cache, ledger, clock)

    async def close(self) -> None:
        async with self.cache:
            await self.ledger.close()


async def open_ledger(settings: Settings, profile: Profile, *, actor: str, clock: Clock = utc_now) -> Ledger:
    """Open the ledger alone, even without a usable cache, and record the outcome of writes whose process died."""
    async with AsyncExitStack() as stack:
        path = data_folder(settings, profile) / LEDGER_FILE
        ledger = await Ledger.open(path, author=author_of(actor), clock=clock)
        stack.push_async_callback(ledger.close)
        await ledger.adopt_orphans()
        stack.pop_all()
    return ledger


def author_of(actor: str) -> Author:
    surface: Surface = "console" if actor == "console" else "command"
    if actor.startswith("bot:"):
        surface = "automation"
    return Author(login(), socket.gethostname(), surface)


def login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())  # A container's user may have no entry in passwd.
