"""Following: which runs a person watches to their end, what moved meanwhile, and who tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from storage.thread import DatabaseThread

if TYPE_CHECKING:
    from storage.records.following import Mark, Moves, PinnedRun, StuckRun

STUCK_CAP: Final = 200
"""Stuck runs given at a time, those that have been active for longest."""


@dataclass(frozen=True, slots=True)
class Following:
    """Pins, moves and claims, in the cache's file; every method may raise `StorageError`."""

    writer: DatabaseThread
    reader: DatabaseThread

    # What it needs is imported with its first use: the first picture shows none of it.

    async def pin(self, run_id: str, *, at: datetime) -> None:
        """Watch a run to its end; one that is watched already stays so."""
        from storage.cache import pins

        await self.writer.run(partial(pins.pin, run_id=run_id, at=at))

    async def unpin(self, run_id: str) -> bool:
        """Watch a run no more; whether it was watched."""
        from storage.cache import pins

        return await self.writer.run(partial(pins.unpin, run_id=run_id))

    async def unpin_ended(self) -> int:
        """Let go of the watched runs that have ended or are not there any more; how many those were."""
        from storage.cache import pins

        return await self.writer.run(pins.unpin_ended)

    async def pins(self) -> "tuple[PinnedRun, ...]":
        """The watched runs: those still active first, each group by when it was pinned."""
        from storage.cache import pins

        return await self.reader.run(pins.pins)

    async def stuck_runs(self) -> "tuple[StuckRun, ...]":
        """The runs flagged as stuck, those that have been active for longest first."""
        from storage.cache import stuck

        return await self.reader.run(partial(stuck.stuck_runs, limit=STUCK_CAP))

    async def mark(self) -> "Mark":
        """The mark that was kept; where there is none, everything that is held now counts as seen."""
        from storage.cache import moves

        return await self.reader.run(moves.mark)

    async def keep(self, mark: "Mark", *, at: datetime) -> None:
        """Keep a mark for whoever looks next, in this process or a later one; it never goes back."""
        from storage.cache import moves

        await self.writer.run(partial(moves.keep, here=mark, at=at))

    async def moves(self, after: "Mark", *, since: datetime) -> "Moves":
        """What moved after the mark; of runs first seen after it, those that came to be as they are since then."""
        from storage.cache import moves

        return await self.reader.run(partial(moves.moves, after=after, since=since))

    async def claim(self, keys: Sequence[str], *, at: datetime) -> frozenset[str]:
        """Claim the right to tell of these; those that nobody had claimed before, in any process, at any time."""
        from storage.cache import claims

        return await self.writer.run(partial(claims.claim, keys=keys, at=at))

    async def claimed(self, keys: Sequence[str]) -> frozenset[str]:
        """Those of these that somebody has claimed."""
        from storage.cache import claims

        return await self.reader.run(partial(claims.claimed, keys=keys))
