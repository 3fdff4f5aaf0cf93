"""The heartbeat: as long as every profile's service is asked with success, an address hears of it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.api.heartbeat import beat
from app.config import NotifySettings
from app.notify.delivery import Say
from storage.errors import StorageError


class Watched(Protocol):
    """The parts that must be well."""

    async def is_well(self) -> bool:
        """Whether its polls succeed."""


@dataclass(slots=True)
class Heartbeat:
    """A dead man's switch: silence is the alarm."""

    settings: Callable[[], NotifySettings]
    """As they are now: a reload may change them."""
    env: Mapping[str, str]
    watched: Sequence[Watched]
    say: Say
    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of `taken` and `failed`."""
    _trouble: str | None = None
    """The trouble that was reported last: once is enough."""

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(self.settings().heartbeat_every.total_seconds())

    async def beat(self) -> None:
        """Beat once, if there is an address and all is well; nothing is raised."""
        address = self.env.get(self.settings().heartbeat_env or "", "")
        if not address or not await self._is_well():
            return
        trouble = await beat(address)
        outcome = "taken" if trouble is None else "failed"
        self.counts[outcome] += 1
        if trouble != self._trouble:
            self._trouble = trouble
            self.say(f"heartbeat_{outcome}", message=trouble)

    async def _is_well(self) -> bool:
        try:
            return all([await one.is_well() for one in self.watched])
        except StorageError:
            # The bots report it themselves; an unreadable part is not well.
            return False
