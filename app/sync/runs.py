"""Polling runs: the newest, the active and the vanished, at a cost in proportion to what changes (spec 4.2)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final

from msgspec.structs import replace

from app.api.client import Client
from app.api.errors import (
    ApiError,
    EndlessListError,
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    NoTokenError,
    RejectedError,
    RequestTimeoutError,
    UnreachableError,
)
from app.api.requests import RunQuery
from app.engine.events import Announce, LinkChanged, RunsChanged
from app.sync.walk import SECOND, ReadFailureFacts, RunReader, StoredPage, Walk, dates_are_creations
from storage.cache.cache import Cache
from storage.records import ACTIVE_STATUSES, CLOCK_STEP, ActiveRun, PollOutcome, Presence, Run, RunChanges
from storage.records.activity import Subject
from storage.records.results import FailureFacts, RunTurns, Unavailable
from storage.state import State

LIST_LAG: Final = timedelta(seconds=60)
"""How long the service's list may lag behind its answers to writes; a run shown more recently is not lost."""
HEAD_RUNS: Final = 20
"""Runs that the head shows at least."""
LOOK_UPS: Final = 10
"""Runs looked up in one refresh; the others wait for the next ones."""
MAX_PAUSE: Final = 64
"""Refreshes between two look-ups of a run if the answers do not show whether it still exists."""
POLLER: Final = "poller"
"""The lease of the process that polls."""
_REFUSED: Final = (NoTokenError, NotAuthorizedError, ForbiddenError, NotFoundError)
CANNOT_POLL: Final = (*_REFUSED, UnreachableError, RequestTimeoutError)
"""Failures that may affect only this process: another one can have a different token, address or network."""


@dataclass(slots=True)
class SubjectSync:
    """Keeps one subject in the cache up to date: a subclass polls, and this records each poll and announces it."""

    subject: ClassVar[Subject]
    client: Client
    cache: Cache
    announce: Announce
    clock: Callable[[], datetime]
    leases: State | None = None
    """None if it is unknown whether another process polls; then each process polls for itself."""

    async def record(self, error: ApiError | None, *, dropped: int = 0) -> None:
        """Record a poll that had this error, or none.

        A failure that may concern only this process does not count for the link while another process polls.
        """
        holder = None
        if isinstance(error, CANNOT_POLL) and self.leases is not None:
            holder = await self.leases.lease_owner(POLLER, self.clock())
        outcome = PollOutcome(
            self.subject,
            self.clock(),
            None if error is None else error.kind,
            None if error is None else error.message,
            getattr(error, "status", None),
            self.client.transport.in_lab,
            dropped,
            is_own=holder not in {None, self.cache.process},
        )
        state = await self.cache.record_poll(outcome)
        self.announce(LinkChanged(state, own_failure=None if error is None or state.is_failing else outcome))


@dataclass(slots=True)
class RefreshAnswers:
    """The answers of one refresh."""

    seen: set[str] = field(default_factory=set)
    """The ids of all runs in the head and the sweeps."""
    updated: list[str] = field(default_factory=list)
    """The ids of the cached runs that changed without a new status."""
    unswept: set[str] = field(default_factory=set)
    """Statuses whose runs were not all shown."""
    is_whole: bool = False
    """Whether one page showed the whole list, and every entry could be read."""
    dropped: int = 0
    """Entries of the head without a usable id. Those of the sweeps are not counted: they may be the same entries."""


@dataclass(slots=True, kw_only=True)
class RunSync(SubjectSync):
    """Keeps the cached runs up to date."""

    subject: ClassVar[Subject] = "runs"
    page_size: int
    first_runs: int
    """Runs that the very first refresh reads."""
    turns: Callable[[str], Awaitable[RunTurns | Unavailable]] | None = None
    """Asks the service for a run's turns; raises `ApiError`."""
    failure_facts: ReadFailureFacts | None = None
    reader: RunReader = field(init=False)
    _refreshes: int = 0
    _asked: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The refresh that may look a missing run up again, and the pause before it, by run."""
    dates_are_proven: bool = False
    """Whether a request proved that the service filters by creation."""

    def __post_init__(self) -> None:
        self.reader = RunReader(self.client, self.cache, self.announce, self.clock, self.page_size, self.failure_facts)

    async def refresh(self) -> None:
        """Read the head, sweep active statuses, then look up active runs that neither showed; record a failure."""
        self._refreshes += 1
        answers = RefreshAnswers()
        try:
            active = await self.cache.active_runs()
            await self._head(answers)
            # Read all runs of the active statuses, and one page of each status that may or may not be final.
            for status in (*ACTIVE_STATUSES, *await self.cache.unsettled_statuses()):
                # No filter can request runs without a status, and a service may refuse a status that it shows itself.
                if not status:
                    answers.unswept.add(status)
                    continue
                try:
                    await self._sweep(status, answers)
                except RejectedError:
                    if status in ACTIVE_STATUSES:
                        raise
                    answers.unswept.add(status)
            missing = [run for run in active if run.run_id not in answers.seen and run.status not in answers.unswept]
            await self._confirm(missing, is_whole=answers.is_whole)
            await self._missed_turns(answers.updated)
            await self.learn_of_failures()
            await self.judge_stuck()
        except ApiError as error:
            await self.record(error)
            raise
        await self.record(None, dropped=answers.dropped)

    async def judge_stuck(self) -> None:
        """Flag the active runs that take far too long, and announce it if the flags changed."""
        changed = await self.cache.judge_stuck()
        if changed:
            self.announce(RunsChanged(RunChanges(updated=tuple(sorted(changed)))))

    async def claim(self, walk: Walk, stored: StoredPage) -> bool:
        """Add the walk's next page and record the range that it completes; return whether the rest is known.

        If it is not, a gap stays for the backfill. A list out of order completes nothing.
        """
        if walk.runs == 0:
            if await self.learn_clock():
                walk.known = next(iter((await self.cache.coverage()).ranges), None)
            if (ahead := self.client.budget.heard_ahead) is not None:
                # Claim nothing while the list has runs dated in the future: newer runs may be listed below them.
                present = self.clock() + ahead + CLOCK_STEP
                runs = stored.page.runs
                walk.order.is_odd = any(run.created_at is not None and run.created_at > present for run in runs)
        walk.step(stored, await self.cache.unwalked([run.run_id for run in stored.page.runs]))
        if walk.refuted:
            # Most runs in the known range are new: the service has another history, as after restoring a backup.
            await self.cache.forget_coverage()
            walk.known = None
        range_ = walk.claim()
        is_known = walk.ended or walk.joined or (walk.is_odd and walk.met)
        token = None if is_known else walk.token
        await self.cache.record_walk(range_, walk.as_of, token, walk.order.total, is_odd=walk.is_odd, ended=walk.ended)
        return is_known

    async def learn_clock(self) -> bool:
        """Withdraw claims if the last answer shows that the service's clock was set back; return whether it was."""
        ahead = self.client.budget.heard_ahead
        return ahead is not None and await self.cache.compare_clocks(ahead)

    async def _head(self, answers: RefreshAnswers) -> None:
        """Read the newest page; the very first time, enough pages to fill the screen."""
        coverage = await self.cache.coverage()
        is_first = not coverage.ranges and not coverage.is_disordered
        walk = Walk(self.clock(), next(iter(coverage.ranges), None))
        max_runs = self.first_runs if is_first else HEAD_RUNS
        pages = 0
        with suppress(EndlessListError):
            async for stored in self.reader.read():
                answers.seen |= {run.run_id for run in stored.page.runs}
                answers.updated += stored.changes.updated
                pages += 1
                is_known = await self.claim(walk, stored)
                if is_known or walk.runs >= max_runs:
                    break
        answers.dropped = walk.dropped
        answers.is_whole = walk.ended and pages == 1 and not walk.dropped

    async def _sweep(self, status: str, answers: RefreshAnswers) -> None:
        is_named = status in ACTIVE_STATUSES
        with suppress(EndlessListError):
            async for stored in self.reader.read(RunQuery(status=status)):
                answers.seen |= {run.run_id for run in stored.page.runs}
                answers.updated += stored.changes.updated
                if 2 * sum(run.status != status for run in stored.page.runs) > len(stored.page.runs):
                    # The filter is ignored: further pages are history.
                    if not is_named:
                        answers.unswept.add(status)
                    return
                if not is_named and stored.page.next_token is not None:
                    # So many runs are never active at once, so the status must be final.
                    await self.cache.mark_final(status)
                    self.announce(RunsChanged(RunChanges(final_status=status)))
                    answers.unswept.add(status)
                    return

    async def _confirm(self, missing: Sequence[ActiveRun], *, is_whole: bool) -> None:
        """Mark active runs that were not shown as unconfirmed, and look some of them up. `is_whole`: all was shown."""
        await self._set_presence(missing, "unconfirmed")
        self._asked = {run.run_id: self._asked.get(run.run_id, (0, 0)) for run in missing}
        due = [run for run in missing if self._asked[run.run_id][0] <= self._refreshes]
        for run in sorted(due, key=lambda run: self._asked[run.run_id][0])[:LOOK_UPS]:
            is_clear = await self.look_up(run, is_whole=is_whole)
            pause = 0 if is_clear else min(MAX_PAUSE, 2 * self._asked[run.run_id][1] or 1)
            self._asked[run.run_id] = self._refreshes + pause, pause

    async def _missed_turns(self, updated: Sequence[str]) -> None:
        """Store the turn that a run had between two polls with the same final status, if the service reports it.

        An update alone does not show such a turn. If the service cannot be asked now, the turn stays unknown.
        """
        for run_id in updated[:LOOK_UPS]:
            detail = await self.cache.detail(run_id)
            if self.turns is None or detail is None or not detail.is_final:
                continue
            try:
                reported = await self.turns(run_id)
            except ApiError:
                return
            began = None
            if isinstance(reported, RunTurns) and reported.turns:
                began = reported.turns[-1].started_at
            if began is not None and began > detail.transitions[-1].at:
                # Store both in one transaction, so that no screen shows the run as working.
                working = replace(detail.run, status="working", updated_at=began)
                await asyncio.gather(self.reader.store([working]), self.reader.store([detail.run]))

    async def learn_of_failures(self) -> None:
        """Store what agents ask and which runs were cancelled, after runs have failed.

        If the service cannot be asked now, a later refresh asks again.
        """
        due = await self.cache.questions_due()
        if not due or self.reader.failure_facts is None:
            return
        try:
            answer = await self.reader.failure_facts()
        except ApiError:
            return
        reported = FailureFacts() if isinstance(answer, Unavailable) else answer
        cancelled = await self.cache.store_failure_facts(reported, due)
        if reported.questions or cancelled:
            asking = (question.run_id for question in reported.questions)
            self.announce(RunsChanged(RunChanges(updated=(*asking, *cancelled))))

    async def look_up(self, run: Run | ActiveRun, *, is_whole: bool = False) -> bool:
        """Request one run by its creation time; return whether the answer settles its state.

        It becomes `lost` if the answer shows a neighbour instead, which was last changed at another time: an answer
        without that may be about the times of changes. A run that an answer showed within `LIST_LAG` is only missing.
        `is_whole`: the whole list was shown, without the run.
        """
        if run.created_at is not None:
            neighbour = await self.cache.neighbour(run.created_at, run.run_id)
            times = [run.created_at, *([neighbour] if neighbour else [])]
            since, until = min(times) - SECOND, max(times) + SECOND
            page = (await self.reader.page(RunQuery(since=since, until=until))).page
            if any(shown.run_id == run.run_id for shown in page.runs):
                return True
            is_all = page.next_token is None and not page.dropped
            is_whole = is_whole or (is_all and dates_are_creations(page.runs, since, until))
        if not is_whole:
            return False
        detail = await self.cache.detail(run.run_id)
        if detail is None or abs(self.clock() - detail.last_seen_at) >= LIST_LAG:
            await self._set_presence([run], "lost")
        return True

    async def filters_by_creation(self) -> bool:
        """Whether the service filters by the creation of runs; False unless a request proves it."""
        neighbour = None if self.dates_are_proven else await self.cache.neighbour(self.clock(), "")
        if neighbour is not None:
            since, until = neighbour - SECOND, neighbour + SECOND
            # A service may refuse the request; its history is then fetched page by page.
            with suppress(RejectedError):
                page = (await self.reader.page(RunQuery(since=since, until=until))).page
                self.dates_are_proven = dates_are_creations(page.runs, since, until)
        return self.dates_are_proven

    async def _set_presence(self, runs: Sequence[Run | ActiveRun], presence: Presence) -> None:
        if runs and (changed := await self.cache.set_presence([run.run_id for run in runs], presence)):
            self.announce(RunsChanged(RunChanges(presence=changed)))
