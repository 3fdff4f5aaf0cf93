"""A profile's files without the service: quick to open, for commands that only read local data."""

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from app.profiles import CACHE_FILE, LEDGER_FILE, Profile, Settings, data_folder
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import Author, Surface
from storage.values import utc_now

SURFACES: Final[Mapping[str, Surface]] = {"console": "console"}
"""The part of the program that each actor uses; all others are commands."""


class ProfileFiles(Struct, frozen=True):
    """A profile's cache and ledger; code that reads them also takes an engine, which has the same attributes."""

    settings: Settings
    cache: Cache
    ledger: Ledger
    clock: Callable[[], datetime]

    @classmethod
    async def open(
        cls,
        settings: Settings,
        profile: Profile,
        *,
        actor: str,
        clock: Callable[[], datetime] = utc_now,
        cache_file: Path | None = None,
    ) -> Self:
        """Open both. `cache_file`: used in place of the profile's own cache.

        Raises:
            StorageError: One cannot be used; the message says how to fix it.
        """
        folder = data_folder(settings, profile)
        async with AsyncExitStack() as stack:
            cache = await Cache.open(cache_file or folder / CACHE_FILE, clock=clock)
            stack.push_async_callback(cache.close)
            ledger = await settled_ledger(folder, author_of(actor), clock)
            stack.pop_all()
        return cls(settings, cache, ledger, clock)

    async def close(self) -> None:
        """Close both."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.cache.close)
            await self.ledger.close()


async def open_ledger(settings: Settings, profile: Profile, *, actor: str) -> Ledger:
    """Open only the profile's ledger, which can be read even if the cache cannot.

    Raises:
        StorageError: It cannot be read.
    """
    return await settled_ledger(data_folder(settings, profile), author_of(actor), utc_now)


async def settled_ledger(folder: Path, author: Author, clock: Callable[[], datetime]) -> Ledger:
    """Open a ledger and record the outcome of writes whose process died."""
    async with AsyncExitStack() as stack:
        ledger = await Ledger.open(folder / LEDGER_FILE, author=author, clock=clock)
        stack.push_async_callback(ledger.close)
        await ledger.adopt_orphans()
        stack.pop_all()
    return ledger


def author_of(actor: str) -> Author:
    """Return the login and the machine of this process."""
    surface = "automation" if actor.startswith("bot:") else SURFACES.get(actor, "command")
    return Author(login(), socket.gethostname(), surface)


def login() -> str:
    """Return the login name of this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())  # A container's user may have no entry in passwd.
