"""Finds the runs that unknown actions may have made, and proposes them; the user decides."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from app.api.errors import ApiError, EndlessListError
from app.events import ActionChanged, Announce
from app.reconcile.candidates import FINDABLE, Candidate, Proposal, Send
from app.sync.listing import Listing
from app.sync.runs import RunSync
from storage.ledger import Ledger
from storage.records import UNUSED_STATES, Action, ActionFilter, RunDetail, RunFilter

LIMIT: Final = 50
"""Candidates of one action."""
MOST: Final = 500
"""Runs around a send that are looked at."""
PAGES: Final = 30
"""Pages that are read to look for one action."""
EXECUTIONS: Final = 1_000
"""Our newest starts of agents that are ruled out: an execution may be listed as a run."""
LOOK_S: Final = 2.0
"""How often the poller looks for unknown actions."""
REST_S: Final = 5.0
"""Seconds until a new unknown action is noticed."""
AGE_PART: Final = 10
"""An old unknown action is searched for again after this part of its age."""
AGAIN: Final = timedelta(minutes=1)
"""How soon the service is asked again for the same action; twice as late each time."""
SELDOM: Final = timedelta(hours=1)


@dataclass(slots=True)
class Search:
    """The search for one action."""

    look_at: datetime
    ask_at: datetime
    """When the service may be asked."""
    pause: timedelta = AGAIN
    proposed: tuple[str, ...] = ()
    """The ids of the candidates that were announced last."""


@dataclass(slots=True)
class Reconciliation:
    """Looks for what actions of unknown outcome may have made."""

    runs: RunSync
    listing: Listing
    ledger: Ledger
    announce: Announce
    _searches: dict[str, Search] = field(default_factory=dict)
    """The searches, by action."""

    async def cached(self, action: Action) -> Proposal:
        """The possible results of an action in the cache; empty: the service does not list them."""
        cache = self.runs.cache
        send = Send.of(action, await cache.run_clock())
        if send is None:
            return Proposal()
        subject = await cache.detail(send.run_id) if send.run_id is not None else None
        found: list[tuple[Candidate, RunDetail]] = []
        if subject is not None and (turn := send.continued(subject, await self._sent_by_us(action))) is not None:
            found.append((turn, subject))
        branch = send.request.branch_name or (subject.run.branch_name if subject is not None else None) or None
        created = [(send.created(detail, branch), detail) for detail in await self._around(send, branch)]
        ours = await self._ours(action, [detail.run.run_id for candidate, detail in created if candidate is not None])
        found += [(each, detail) for each, detail in created if each is not None and detail.run.run_id not in ours]
        return Proposal(send.ranked(found)[:LIMIT], await self._is_whole(send, subject))

    async def ask(self, action: Action) -> Proposal:
        """The possible results, after reading the runs around the send from the service (spec 4.2).

        Raises:
            ApiError: The service could not be asked.
        """
        cache, budget = self.runs.cache, self.runs.reader.client.budget
        if Send.of(action, await cache.run_clock()) is None:
            return Proposal()
        await budget.settle()
        send = Send.of(action, await cache.run_clock())
        if send is None:
            return Proposal()
        subject = await cache.detail(send.run_id) if send.run_id is not None else None
        if subject is not None:
            await self.runs.look_up(subject.run)
        is_whole = await self._read(send)
        found = await self.cached(action)
        return replace(found, is_whole=is_whole)

    async def work(self) -> float:
        """Search for unknown actions, once the service answers again; return the seconds until the next look."""
        unknown = [action for action in await self.ledger.unresolved() if action.kind in FINDABLE]
        if not unknown:
            return REST_S
        links = await self.runs.cache.links()
        answered_at = [link.last_ok_at for link in links if link.subject == "runs" and not link.is_failing]
        for action in unknown:
            if any(at is not None and at > (action.settled_at or action.created_at) for at in answered_at):
                await self._look(action)
        return LOOK_S

    async def _look(self, action: Action) -> None:
        now = self.runs.clock()
        search = self._searches.setdefault(action.action_id, Search(now, now))
        if now < search.look_at:
            return
        age = now - (action.settled_at or action.created_at)
        search.look_at = now + min(max(age / AGE_PART, timedelta(seconds=LOOK_S)), SELDOM)
        found = await self.cached(action)
        is_enough = found.is_whole and (await self.runs.cache.run_clock()).is_known
        if not is_enough and search.ask_at <= now:
            search.ask_at, search.pause = now + search.pause, min(2 * search.pause, SELDOM)
            with suppress(ApiError):
                found = await self.ask(action)
        ids = tuple(candidate.run.run_id for candidate in found.candidates)
        if ids != search.proposed:
            search.proposed = ids
            self.announce(ActionChanged(action.action_id))

    async def _sent_by_us(self, action: Action) -> list[datetime]:
        """When our other continuations of the same run were sent."""
        others = await self.ledger.for_run(action.subject)
        return [
            other.sending_at
            for other in others
            if other.sending_at is not None
            and other.kind == action.kind
            and other.state not in UNUSED_STATES
            and other.action_id != action.action_id
        ]

    async def _ours(self, action: Action, run_ids: Collection[str]) -> frozenset[str | None]:
        """Those runs that another action of ours made, and the continued one."""
        made = (
            await self.ledger.actions(ActionFilter(["agent.start"], ["confirmed"]), limit=EXECUTIONS) if run_ids else ()
        )
        for run_id in run_ids:
            made += await self.ledger.for_run(run_id)
        return frozenset({action.subject, *(each.result_id for each in made if each.action_id != action.action_id)})

    async def _around(self, send: Send, branch: str | None) -> list[RunDetail]:
        """The cached runs around the send, and those whose times cannot be read."""
        cache, window = self.runs.cache, send.around()
        label = send.request.repository.label
        labels = [each for each in await cache.repositories() if each.casefold() == label.casefold()]
        # A name with a star would be a pattern, so the filter omits it; `Send` checks each match again.
        condition = RunFilter(
            repositories=tuple(each for each in labels or [label] if "*" not in each),
            branches=(branch,) if branch and "*" not in branch else (),
        )
        timed = await cache.runs(replace(condition, since=window.since, until=window.until), MOST)
        timeless = () if timed else [run for run in await cache.runs(condition, MOST) if run.created_at is None]
        details = await cache.details([run.run_id for run in (*timed, *timeless)])
        return [details[run.run_id] for run in (*timed, *timeless) if run.run_id in details]

    async def _is_whole(self, send: Send, subject: RunDetail | None) -> bool:
        """Whether the cache misses nothing that the send may have made."""
        window, coverage = send.around(), await self.runs.cache.coverage()
        is_current = coverage.is_current(send.ended_at) and not coverage.gaps_within(window.since, window.until)
        return is_current and (send.run_id is None or (subject is not None and subject.last_seen_at > send.ended_at))

    async def _read(self, send: Send) -> bool:
        """Read the runs around the send into the cache; whether all of them were read."""
        count = 0
        try:
            async for _ in self.listing.pages(send.around(), limit=None):
                count += 1
                if count == PAGES:
                    return False
        except EndlessListError:
            return False
        return True
