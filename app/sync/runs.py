"""Runs: the newest, the active and the vanished, at a cost in proportion to what changes (spec 4.2)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.api.client import Client, pages
from app.api.errors import ApiError
from app.events import Announce, LinkChanged, RunsChanged
from app.sync.polls import outcome
from storage.cache import Cache
from storage.records import FINAL_STATUSES, Run, RunChanges, RunPage

TICK: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class HeadScan:
    """A walk from the newest run downwards, page by page, without gaps."""

    since: datetime | None = None
    """The oldest creation that was asked for, inclusive. None: down to the very first run."""
    newest: datetime | None = None
    oldest: datetime | None = None
    ended: bool = False
    """The service said that there is no further page."""

    def step(self, page: RunPage) -> None:
        """Take in the next page."""
        times = [run.created_at for run in page.runs if run.created_at is not None]
        self.newest = max([*times, *([self.newest] if self.newest else [])], default=None)
        self.oldest = min([*times, *([self.oldest] if self.oldest else [])], default=None)
        self.ended = page.next_token is None

    async def keep(self, cache: Cache, as_of: datetime) -> None:
        """Record which range of time is now held completely; `as_of` is when the first page was asked for."""
        if self.ended and self.since is None:
            await cache.extend_coverage(None, self.newest, as_of)
        elif self.newest is not None and self.oldest is not None and self.oldest < self.newest:
            # Others of the oldest one's very instant may be on the next page.
            await cache.extend_coverage(self.oldest + TICK, self.newest, as_of)


ACTIVE_STATUSES: Final = ("queued", "working")
"""The statuses of the spec that are not final; others join as they are seen."""
LOOK_UPS: Final = 25
"""Vanished runs looked up in one refresh; the rest stay unconfirmed until the next."""
ROUNDING: Final = timedelta(milliseconds=1)
"""A created_at with more digits than we keep was cut off: the run is at or just after what we hold."""


class RunSync:
    """Keeps the cache's runs as the service has them."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        announce: Announce,
        *,
        clock: Callable[[], datetime],
        page_size: int,
        first_runs: int,
    ) -> None:
        self._client = client
        self.cache = cache
        self._announce = announce
        self.clock = clock
        self._page_size = page_size
        self._first_runs = first_runs
        """How far the very first refresh reaches back, in runs."""

    async def refresh(self) -> RunChanges:
        """Head, active sweeps, then a look-up for each active run that neither showed.

        Raises:
            ApiError: A request failed. What came before it is kept, and the cache remembers the failure.
        """
        try:
            changes = await self._refresh()
        except ApiError as error:
            await self.record(error)
            raise
        await self.record(None)
        return changes

    async def record(self, error: ApiError | None) -> None:
        """Record how a poll of runs went, and ring the doorbell."""
        state = await self.cache.record_poll(outcome("runs", self.clock(), error, in_lab=self._client.in_lab))
        self._announce(LinkChanged(state))

    async def store(self, runs: Iterable[Run], asked_at: datetime | None = None) -> RunChanges:
        """Store runs from any answer of the service, and ring the doorbell if they changed anything.

        Args:
            runs: As the service showed them.
            asked_at: When the request for them began, by our clock; None: now.
        """
        changes = await self.cache.store_runs(tuple(runs), asked_at=asked_at or self.clock())
        if changes:
            self._announce(RunsChanged(changes))
        return changes

    async def judge_stuck(self) -> None:
        """Flag the active runs that take far too long, and ring the doorbell if the flags changed."""
        changed = await self.cache.judge_stuck()
        if changed:
            self._announce(RunsChanged(RunChanges(updated=tuple(sorted(changed)))))

    async def look_up(self, run: Run) -> bool:
        """Ask for one run by the instant of its creation; whether the service still has it.

        Raises:
            ApiError: The service could not be asked; the run stays unconfirmed.
        """
        if run.created_at is None:
            return False
        start, end = run.created_at, run.created_at + ROUNDING
        async for page in pages(
            lambda token: self._client.list_runs(
                page_size=self._page_size, page_token=token, date_from=start, date_to=end
            )
        ):
            await self.store(page.runs)
            if any(found.run_id == run.run_id for found in page.runs):
                return True
            if any(found.created_at is not None and found.created_at < start for found in page.runs):
                break  # The service ignores the dates, and we have walked past the place.
        return False

    async def _refresh(self) -> RunChanges:
        held = {run.run_id: run for run in await self.cache.active_runs()}
        head, seen = await self._head()
        sweeps: list[RunChanges] = [head]
        for status in await self._active_statuses():
            changes, swept = await self._sweep(status)
            sweeps.append(changes)
            seen |= swept
        await self._confirm([run for run_id, run in held.items() if run_id not in seen])
        await self.judge_stuck()
        return _combined(sweeps)

    async def _head(self) -> tuple[RunChanges, set[str]]:
        ranges, asked_at = (await self.cache.coverage()).ranges, self.clock()
        covered_until = ranges[0].end if ranges else None
        changes: list[RunChanges] = []
        seen: set[str] = set()
        walk = HeadScan()
        async for page in pages(lambda token: self._client.list_runs(page_size=self._page_size, page_token=token)):
            changes.append(await self.store(page.runs))
            seen |= {run.run_id for run in page.runs}
            walk.step(page)
            if walk.ended or (walk.oldest and self._far_enough(walk.oldest, covered_until, len(seen))):
                await walk.keep(self.cache, asked_at)
                break
        return _combined(changes), seen

    def _far_enough(self, oldest: datetime, covered_until: datetime | None, fetched: int) -> bool:
        if covered_until is None:
            return fetched >= self._first_runs
        return oldest < covered_until

    async def _active_statuses(self) -> tuple[str, ...]:
        known = await self.cache.known_statuses()
        return tuple(dict.fromkeys([*ACTIVE_STATUSES, *(s for s in known if s not in FINAL_STATUSES)]))

    async def _sweep(self, status: str) -> tuple[RunChanges, set[str]]:
        changes: list[RunChanges] = []
        seen: set[str] = set()
        async for page in pages(
            lambda token: self._client.list_runs(page_size=self._page_size, page_token=token, status=status)
        ):
            changes.append(await self.store(page.runs))
            seen |= {run.run_id for run in page.runs}
            if any(run.status != status for run in page.runs):
                break  # The service ignores the filter; its further pages are history, not active runs.
        return _combined(changes), seen

    async def _confirm(self, missing: list[Run]) -> None:
        if not missing:
            return
        if await self.cache.set_presence([run.run_id for run in missing], "unconfirmed"):
            self._announce(RunsChanged(RunChanges()))
        for run in missing[:LOOK_UPS]:
            if not await self.look_up(run) and run.created_at is not None:
                await self.cache.set_presence([run.run_id], "lost")
                self._announce(RunsChanged(RunChanges()))


def _combined(parts: list[RunChanges]) -> RunChanges:
    return RunChanges(
        new=tuple(run_id for part in parts for run_id in part.new),
        transitions=tuple(transition for part in parts for transition in part.transitions),
        updated=tuple(run_id for part in parts for run_id in part.updated),
    )
