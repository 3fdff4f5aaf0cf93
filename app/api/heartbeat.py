"""The heartbeat: while the polls of every profile succeed, an address of the user gets a GET without a token."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urlsplit

import httpx

from app.api.network import REFUSED, TRUST, Network
from app.profiles import NotifySettings
from app.profiles.values import is_loopback
from storage.errors import StorageError

DEADLINE_S: Final = 10.0


class Watched(Protocol):
    """The parts that must be healthy."""

    async def is_well(self) -> bool:
        """Whether its polls succeed."""


@dataclass(slots=True)
class Heartbeat:
    """A dead man's switch: silence is the alarm."""

    settings: Callable[[], NotifySettings]
    """Returns the current settings, which a reload may change."""
    env: Mapping[str, str]
    watched: Sequence[Watched]
    say: Callable[..., None]
    """Writes one line of the log."""
    network: Network = field(default_factory=Network)
    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of `taken` and `failed`."""
    _trouble: str | None = None
    """The trouble that was reported last; the same one is not reported twice."""

    async def run(self) -> None:
        """Request the address again and again, until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(self.settings().heartbeat_every.total_seconds())

    async def beat(self) -> None:
        """Request the address once, if there is one and every part is healthy; nothing is raised."""
        address = self.env.get(self.settings().heartbeat_env or "", "")
        if not address:
            return
        try:
            is_well = all([await one.is_well() for one in self.watched])
        except StorageError:
            is_well = False  # The bots report this failure themselves.
        if not is_well:
            return
        trouble = await beat(address, self.network)
        outcome = "taken" if trouble is None else "failed"
        self.counts[outcome] += 1
        if trouble != self._trouble:
            self._trouble = trouble
            self.say(f"heartbeat_{outcome}", message=trouble)


async def beat(address: str, network: Network) -> str | None:
    """Request the address once. Return the failure, without the address, which may be a secret; or None."""
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not is_usable or not parts.hostname:
            return "The heartbeat's address must begin with https:// (http only on loopback)."
    except ValueError:
        return "The heartbeat's address cannot be read as one."
    try:
        way, context = network.proxy_of(address), await asyncio.to_thread(network.context)
    except ValueError as error:
        return f"The heartbeat cannot be sent: {error}."
    try:
        # A redirect leads to another address than the configured one: it counts as a failure.
        async with httpx.AsyncClient(
            verify=context, proxy=way, trust_env=False, timeout=DEADLINE_S, follow_redirects=False
        ) as client:
            answer = await client.get(address)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        cure = f" Its certificate is refused. {TRUST}" if REFUSED in str(error) else ""
        return f"The heartbeat was not taken{network.through(address)}: {type(error).__name__}.{cure}"
    return None if answer.is_success else f"The heartbeat was answered with {answer.status_code}."
