"""The health of the code hosts (spec 4.5), kept apart from the health of our own link."""

from collections.abc import Callable
from datetime import datetime

from app.api.client import Client
from app.api.errors import ApiError
from app.events import Announce, HealthChanged
from app.sync.polls import OthersPoll, PollRecord, no_others_poll
from storage.cache import Cache
from storage.records import HealthChange


class HealthSync:
    """Keeps the cached health of the code hosts up to date."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        announce: Announce,
        *,
        clock: Callable[[], datetime],
        others_poll: OthersPoll = no_others_poll,
    ) -> None:
        self._client = client
        self._cache = cache
        self._announce = announce
        self._clock = clock
        self._polls = PollRecord("health", cache, announce, others_poll)

    async def refresh(self) -> tuple[HealthChange, ...]:
        """Poll once.

        Raises:
            ApiError: The service could not be asked: the hosts' known state does not change.
        """
        try:
            report = await self._client.health()
        except ApiError as error:
            await self.record(error)
            raise
        changes = await self._cache.store_health(report, at=self._clock())
        self._announce(HealthChanged(changes))
        await self.record(None)
        return changes

    async def record(self, error: ApiError | None) -> None:
        """Record a poll of health, and ring the doorbell."""
        await self._polls.keep(self._clock(), error, in_lab=self._client.in_lab)
