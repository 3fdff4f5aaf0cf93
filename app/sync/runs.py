"""Polling runs: the newest, the active and the vanished, at a cost in proportion to what changes (spec 4.2)."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import nlargest
from statistics import median_low
from typing import Final

from app.api.client import Client
from app.api.errors import ApiError, EndlessListError, RejectedError
from app.events import Announce, RunsChanged
from app.sync.look_up import SECOND, LookUp, LookUpVerdict
from app.sync.polls import OthersPoll, PollRecord, no_others_poll
from app.sync.reader import RunQuery, RunReader, StoredPage
from app.sync.walk import ENDS, Walk, newest
from storage.cache import Cache
from storage.records import ACTIVE_STATUSES, CoverageRange, Run, RunChanges, ServiceTraits

HEAD_RUNS: Final = 20
"""Runs that the head shows at least."""
ENDS_BY_NAME: Final = frozenset(
    {
        *("aborted", "canceled", "cancelled", "done", "error", "errored", "expired", "finished", "killed", "rejected"),
        *("skipped", "succeeded", "success", "terminated", "timed_out", "timeout"),
    }
)
"""Statuses that count as final by their name, until runs are seen to leave them."""
OTHERS: Final = 3
"""Runs of another status that prove that a filter is ignored; fewer may have changed just now."""
PRESENT_PAGES: Final = 5
"""Pages of the newest runs that are read where older ones are listed before them."""
LONGEST_PAUSE: Final = 64
"""Refreshes between two look-ups of a run whose answers prove nothing."""
SETTLED: Final = timedelta(hours=24)
"""A status is final if none of its runs changed for this long, by the service's time."""


@dataclass(slots=True)
class RefreshAnswers:
    """The answers of one refresh."""

    runs: dict[str, Run] = field(default_factory=dict)
    """The runs of the head page, by id."""
    seen: set[str] = field(default_factory=set)
    """The ids of all runs in the head and the sweeps."""
    changes: list[RunChanges] = field(default_factory=list)
    unswept: set[str] = field(default_factory=set)
    """Statuses of which not all runs were shown."""
    is_whole: bool = False
    """Whether one page showed the whole list, and every entry could be read."""
    dropped: int = 0
    """Entries of the head that had no usable id; those of the sweeps may be the same ones."""

    def take(self, stored: StoredPage) -> None:
        """Add a page: the ids that it shows, and what it changed in the cache."""
        self.seen |= {run.run_id for run in stored.page.runs}
        self.changes.append(stored.changes)

    def newest_change(self) -> datetime | None:
        """The time by the service's clock, or somewhat earlier. None: the head's times cannot be read."""
        changes = nlargest(ENDS, (run.updated_at for run in self.runs.values() if run.updated_at is not None))
        return median_low(changes) if changes else None


class RunSync:
    """Keeps the cached runs up to date."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        announce: Announce,
        *,
        clock: Callable[[], datetime],
        page_size: int,
        first_runs: int,
        others_poll: OthersPoll = no_others_poll,
    ) -> None:
        self._client = client
        self.cache = cache
        self._announce = announce
        self.clock = clock
        self.reader = RunReader(client, cache, announce, clock, page_size)
        """Stores any list of runs."""
        self._look_up = LookUp(self.reader)
        self._polls = PollRecord("runs", cache, announce, others_poll)
        self._first_runs = first_runs
        """Runs that the very first refresh reads."""
        self._refreshes = 0
        self._pauses: dict[str, tuple[int, int]] = {}
        """By run: the refresh that looks it up again, and the length of that pause."""

        self._looked_up: dict[str, int] = {}
        """By run: the refresh that looked for it last."""

    async def refresh(self) -> RunChanges:
        """Read the head, sweep active statuses, then look up each active run that neither showed.

        Raises:
            ApiError: A request failed. Runs before it are kept, and the cache remembers the failure.
        """
        try:
            answers = await self._refresh()
        except ApiError as error:
            await self.record(error)
            raise
        await self.record(None, dropped=answers.dropped)
        return _combined(answers.changes)

    async def record(self, error: ApiError | None, *, dropped: int = 0) -> None:
        """Record a poll of runs, and ring the doorbell."""
        await self._polls.keep(self.clock(), error, in_lab=self._client.in_lab, dropped=dropped)

    async def store(self, runs: Iterable[Run], asked_at: datetime | None = None) -> RunChanges:
        """Store runs from any answer, see `RunReader.store`."""
        return await self.reader.store(runs, asked_at)

    async def judge_stuck(self) -> None:
        """Flag the active runs that take far too long, and ring the doorbell if the flags changed."""
        changed = await self.cache.judge_stuck()
        if changed:
            self._announce(RunsChanged(RunChanges(updated=tuple(sorted(changed)))))

    async def service_traits(self) -> ServiceTraits:
        """The service's habits, see `LookUp.traits`."""
        return await self._look_up.traits()

    async def look_up(self, run: Run) -> LookUpVerdict:
        """Look up one run; one that is certainly absent becomes `lost`, one that is not found stays as it is.

        Raises:
            ApiError: The service could not be asked.
        """
        verdict = (await self._look_up.find([run], None))[run.run_id]
        if verdict == "absent":
            await self._lose([run.run_id])
        return verdict

    async def look_for(
        self, missing: Sequence[Run], shown: Sequence[Run], *, is_certain: bool
    ) -> Mapping[str, LookUpVerdict]:
        """Look for runs missing in a list; those certainly absent become `lost`.

        `shown` are runs in that list. `is_certain`: it showed all runs.

        Raises:
            ApiError: The service could not be asked.
        """
        if missing and await self.cache.set_presence([run.run_id for run in missing], "unconfirmed"):
            self._announce(RunsChanged(RunChanges()))
        verdicts: Mapping[str, LookUpVerdict] = dict.fromkeys((run.run_id for run in missing), "absent")
        if missing and not is_certain:
            verdicts = await self._look_up.find(missing, shown)
        await self._lose([run_id for run_id, verdict in verdicts.items() if verdict == "absent"])
        return verdicts

    async def _refresh(self) -> RefreshAnswers:
        self._refreshes += 1
        held = await self.cache.active_runs()
        answers = RefreshAnswers()
        await self._head(answers)
        await self._sweeps(answers)
        changed = _combined(answers.changes)
        ids = {*changed.new, *(moved.run_id for moved in changed.transitions)}
        head = tuple(answers.runs.values())
        recent = [run for run in head if run.run_id in ids]
        await self._look_up.check_offset(recent, head, self._client.budget.heard_ahead)
        missing = [run for run in held if run.run_id not in answers.seen and run.status not in answers.unswept]
        await self._confirm(missing, answers)
        await self.judge_stuck()
        return answers

    async def _head(self, answers: RefreshAnswers) -> None:
        """Read the newest page; the very first time, enough pages to fill the screen."""
        is_first = await self._is_first()
        walk, most = await self.begin_walk(), self._first_runs if is_first else HEAD_RUNS
        with suppress(EndlessListError):
            async for stored in self.reader.read():
                answers.take(stored)
                answers.runs |= {run.run_id: run for run in stored.page.runs}
                answers.dropped += stored.page.dropped
                joined = await self.claim(walk, stored)
                if walk.ended or (joined and not is_first) or walk.runs >= most:
                    break
        if walk.is_behind and not walk.ended:
            await self._read_present(answers)
        if is_first:
            await self.cache.drop_anchor()
        answers.is_whole = walk.ended and len(walk.pages) == 1 and not answers.dropped

    async def _is_first(self) -> bool:
        return not (await self.cache.coverage()).ranges and await self.cache.anchored(()) is None

    async def begin_walk(self) -> Walk:
        """Begin a walk from the newest run downwards."""
        return Walk(self.clock(), next(iter((await self.cache.coverage()).ranges), None))

    async def claim(self, walk: Walk, stored: StoredPage) -> bool:
        """Take the walk's next page and record the completed range; return whether it met what was complete before.

        If it did not, a gap stays for the backfill. If it met another history, everything is fetched again.
        """
        walk.step(stored)
        if walk.refutes_known():
            await self.cache.forget_coverage()
            walk.known = None
        walk.is_behind = await self._is_behind(walk)
        if walk.slipped:
            return False
        found, known = walk.range(), walk.known
        if walk.is_behind:
            if found is not None:
                await self.cache.extend_coverage(found.start, found.end, walk.as_of)
            return walk.ended
        joined = walk.ended or walk.meets(await self._held(walk, by_time=found is not None))
        if found is not None:
            whole = _joined(found, known) if joined and known else found
            coverage = await self.cache.extend_coverage(whole.start, whole.end, walk.as_of)
            joined = joined or coverage.ranges[0].start != found.start
        elif joined:
            await self.cache.touch_coverage(walk.as_of)
        if joined:
            await self.cache.drop_anchor()
        elif found is None:
            await self.cache.mark_unread(is_unread=True)
            # Without times, a place below proves nothing about what is missing above it: begin at the newest run.
            await self.cache.keep_place(None, None)
        return joined

    async def _is_behind(self, walk: Walk) -> bool:
        ahead = self._client.budget.heard_ahead
        if ahead is None:
            return False
        # Runs that arrived during the walk may be newer than all of its first page.
        newest_shown = newest(walk.pages[0].page.runs, walk.as_of + ahead) if len(walk.pages) == 1 else None
        return await self.cache.note_clock(ahead, walk.as_of, newest_shown)

    async def _read_present(self, answers: RefreshAnswers) -> None:
        """Read the newest runs of a service whose clock was set back: they are below the head."""
        ahead = self._client.budget.heard_ahead
        if ahead is None or (await self.cache.traits()).date_filter == "ignored":
            return
        left = PRESENT_PAGES
        async for stored in self.reader.read(RunQuery(until=self.clock() + ahead + SECOND)):
            answers.take(stored)
            left -= 1
            if not left or not stored.changes.new:
                break

    async def _held(self, walk: Walk, *, by_time: bool) -> Container[str]:
        """The walk's runs in ranges that were complete."""
        known = walk.known
        if by_time and known is not None and known.end is not None:
            return {run.run_id for run in walk.shown() if known.holds(run.created_at)}
        return await self.cache.anchored([run.run_id for run in walk.shown()]) or ()

    async def _sweeps(self, answers: RefreshAnswers) -> None:
        """Read all runs of the active statuses, and one page of each status that the spec does not name."""
        service_now = answers.newest_change()
        ignores_status = await self.cache.has_habit("ignores_status", self.clock())
        for status in await self.cache.unsettled_statuses():
            if status.lower() in ENDS_BY_NAME:
                await self._learn_final(status)
        others = await self.cache.unsettled_statuses()
        for status in (*ACTIVE_STATUSES, *others):
            if not status:
                # No filter can request runs without a status.
                answers.unswept.add(status)
            elif not ignores_status:
                ignores_status = not await self._sweep(status, answers)
            if status in others and service_now is not None:
                await self._learn_final(status, service_now - SETTLED)
        if ignores_status:
            answers.unswept |= set(others)

    async def _sweep(self, status: str, answers: RefreshAnswers) -> bool:
        """Read the runs of a status; return whether the service filters by it."""
        try:
            return await self._sweep_pages(status, answers)
        except RejectedError:
            # A service may show a status that its filter refuses.
            if status in ACTIVE_STATUSES:
                raise
            answers.unswept.add(status)
            return True

    async def _sweep_pages(self, status: str, answers: RefreshAnswers) -> bool:
        with suppress(EndlessListError):
            async for stored in self.reader.read(RunQuery(status=status)):
                answers.take(stored)
                others = [run for run in stored.page.runs if run.status != status]
                if 2 * len(others) > len(stored.page.runs):
                    # Further pages are history, not active runs.
                    if status not in ACTIVE_STATUSES:
                        answers.unswept.add(status)
                    elif len(others) >= OTHERS:
                        await self.cache.note_habit("ignores_status", self.clock())
                        return False
                    return True
                if status not in ACTIVE_STATUSES and stored.page.next_token is not None:
                    # More runs than are ever active at a time: only a sign that they move proves otherwise.
                    await self._learn_final(status)
                    answers.unswept.add(status)
                    return True
        return True

    async def _learn_final(self, status: str, unchanged_since: datetime | None = None) -> None:
        if await self.cache.learn_final(status, unchanged_since):
            self._announce(RunsChanged(RunChanges()))

    async def _confirm(self, missing: list[Run], answers: RefreshAnswers) -> None:
        if not missing:
            return
        if await self.cache.set_presence([run.run_id for run in missing], "unconfirmed"):
            self._announce(RunsChanged(RunChanges()))
        due = [run for run in missing if self._pauses.get(run.run_id, (0, 0))[0] <= self._refreshes]
        due = missing if answers.is_whole else sorted(due, key=lambda run: self._looked_up.get(run.run_id, 0))
        verdicts = await self.look_for(due, list(answers.runs.values()), is_certain=answers.is_whole)
        self._looked_up = {run.run_id: self._looked_up.get(run.run_id, 0) for run in missing}
        for run_id, verdict in verdicts.items():
            self._looked_up[run_id] = self._refreshes
            _, pause = self._pauses.pop(run_id, (0, 0))
            if verdict == "unknown":
                pause = min(LONGEST_PAUSE, 2 * pause or 1)
                self._pauses[run_id] = (self._refreshes + pause, pause)

    async def _lose(self, run_ids: Sequence[str]) -> None:
        if run_ids and await self.cache.set_presence(run_ids, "lost"):
            self._announce(RunsChanged(RunChanges()))


def _joined(found: CoverageRange, newest: CoverageRange) -> CoverageRange:
    """The range of a walk joined with the range that it met."""
    start = None if found.start is None or newest.start is None else min(found.start, newest.start)
    ends = [end for end in (found.end, newest.start, newest.end) if end is not None]
    return CoverageRange(start, max(ends, default=None))


def _combined(parts: list[RunChanges]) -> RunChanges:
    return RunChanges(
        new=tuple(run_id for part in parts for run_id in part.new),
        transitions=tuple(transition for part in parts for transition in part.transitions),
        updated=tuple(run_id for part in parts for run_id in part.updated),
    )
