"""The service's own results (docs/results.md); one that does not offer them is asked again a day later."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from app.api.client import Client
from app.api.errors import ApiError, NotFoundError, NotOfferedError, RejectedError
from storage.records.results import Change, LogChunk, RunTurns, Unavailable

T = TypeVar("T")
NOT_OFFERED: Final = Unavailable("This service does not tell what a run did (it is asked again tomorrow).")


@dataclass(frozen=True, slots=True)
class ServiceExtension:
    """The service's own account of runs; refusals are `Unavailable`, other failures an `ApiError`."""

    client: Client
    is_missing: Callable[[], Awaitable[bool]]
    """Whether the service said within a day that it has no results."""
    note_missing: Callable[[], Awaitable[None]]

    async def turns(self, run_id: str) -> RunTurns | Unavailable:
        """The run's turns."""
        return await self._ask(lambda: self.client.run_detail(run_id))

    async def reason(self, run_id: str) -> str:
        """Why the run's last turn failed; empty: the service does not tell, or cannot be asked."""
        try:
            found = await self.turns(run_id)
        except ApiError:
            return ""
        return "" if isinstance(found, Unavailable) or not found.turns else found.turns[-1].reason or ""

    async def log(self, run_id: str, turn: int, *, offset: int = 0, wait_s: float = 0) -> LogChunk | Unavailable:
        """A piece of a turn's log; a negative offset counts from the end."""
        return await self._ask(lambda: self.client.run_log(run_id, turn, offset=offset, wait_s=int(wait_s)))

    async def diff(self, run_id: str, turn: int | None = None) -> Change | Unavailable:
        """The change of a turn, or of the whole run."""
        return await self._ask(lambda: self.client.run_diff(run_id, turn))

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T | Unavailable:
        if await self.is_missing():
            return NOT_OFFERED
        try:
            return await question()
        except NotOfferedError:
            await self.note_missing()
            return NOT_OFFERED
        except (NotFoundError, RejectedError) as error:
            return Unavailable(f"The service says: {error.message}")
