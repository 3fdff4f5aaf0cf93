"""One door to what a run did: git first or the service's results first, said which, and why where neither has it."""

from typing import Protocol

from storage.records.results import Change, LogChunk, RunTurns, Unavailable


class ServiceResults(Protocol):
    """The extension of the API (docs/results.md); what it refuses is `Unavailable`, all else an `ApiError`."""

    async def turns(self, run_id: str) -> RunTurns | Unavailable:
        """The run's turns."""

    async def log(self, run_id: str, turn: int, *, offset: int = 0, wait_s: float = 0) -> LogChunk | Unavailable:
        """A piece of a turn's log; a negative offset counts from the end."""

    async def diff(self, run_id: str, turn: int | None = None) -> Change | Unavailable:
        """The change of a turn, or of the whole run, with `source="service"`."""
