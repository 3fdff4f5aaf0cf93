"""Finds by itself what actions of unknown outcome may have made, and proposes it; a person decides."""

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
from storage.records import Action, RunDetail, RunFilter

LIMIT: Final = 50
"""Candidates of one action."""
MOST: Final = 500
"""Runs around a send that are looked at."""
PAGES: Final = 30
"""Pages that are read to look for one action."""
EXECUTIONS: Final = 1_000
"""How many of our own starts of agents are ruled out: an execution may be listed as a run."""
LOOK_S: Final = 5.0
"""How often the poller looks whether something is unknown."""
AGAIN: Final = timedelta(minutes=1)
"""How soon the service is asked again for the same action; twice as late each time."""
SELDOM: Final = timedelta(hours=1)


@dataclass(slots=True)
class Asked:
    """When the service was asked for an action, and when it may be asked again."""

    again_at: datetime
    pause: timedelta


@dataclass(slots=True)
class Reconciliation:
    """Looks for what actions of unknown outcome may have made."""

    runs: RunSync
    listing: Listing
    ledger: Ledger
    announce: Announce
    _asked: dict[str, Asked] = field(default_factory=dict)
    _proposed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By action: the candidates' ids, as they were announced."""

    async def cached(self, action: Action) -> Proposal:
        """What the action may have made, as far as the cache knows; empty for what the service does not list."""
        cache = self.runs.cache
        send = Send.of(action, await cache.run_clock())
        if send is None:
            return Proposal()
        subject = await cache.detail(send.run_id) if send.run_id is not None else None
        found: list[tuple[Candidate, RunDetail]] = []
        if subject is not None and (turn := send.continued(subject, await self._sent_by_us(action))) is not None:
            found.append((turn, subject))
        branch = send.request.branch_name or (subject.run.branch_name if subject is not None else None) or None
        for detail in await self._around(send, branch):
            candidate = send.created(detail, branch) if detail.run.run_id != send.run_id else None
            if candidate is not None and not await self._is_ours(detail.run.run_id, action):
                found.append((candidate, detail))
        return Proposal(send.ranked(found)[:LIMIT], await self._is_whole(send, subject))

    async def ask(self, action: Action) -> Proposal:
        """What the action may have made, after reading from the service the runs around its send (spec 4.2).

        Raises:
            ApiError: The service could not be asked.
        """
        cache, budget = self.runs.cache, self.runs.reader.client.budget
        if Send.of(action, await cache.run_clock()) is None:
            return Proposal()
        # It teaches how the service dates its runs, too.
        await self.runs.service_traits()
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
        """Look for what is unknown, once the service answers again; seconds until the next look."""
        unknown = [action for action in await self.ledger.actions(kinds=FINDABLE, states=["unknown"]) if action.is_open]
        if not unknown:
            return LOOK_S
        links = await self.runs.cache.links()
        answered_at = [link.last_ok_at for link in links if link.subject == "runs" and not link.is_failing]
        for action in unknown:
            if any(at is not None and at > (action.settled_at or action.created_at) for at in answered_at):
                await self._look(action)
        return LOOK_S

    async def _look(self, action: Action) -> None:
        found, now = await self.cached(action), self.runs.clock()
        asked = self._asked.get(action.action_id)
        is_enough = found.is_whole and (await self.runs.cache.run_clock()).is_known
        if not is_enough and (asked is None or asked.again_at <= now):
            pause = AGAIN if asked is None else min(2 * asked.pause, SELDOM)
            self._asked[action.action_id] = Asked(now + pause, pause)
            with suppress(ApiError):
                found = await self.ask(action)
        ids = tuple(candidate.run.run_id for candidate in found.candidates)
        if ids != self._proposed.get(action.action_id, ()):
            self._proposed[action.action_id] = ids
            self.announce(ActionChanged(action.action_id))

    async def _sent_by_us(self, action: Action) -> list[datetime]:
        """When our other continuations of the same run were sent."""
        others = await self.ledger.for_run(action.subject)
        return [
            other.sending_at
            for other in others
            if other.sending_at is not None and other.kind == action.kind and other.action_id != action.action_id
        ]

    async def _is_ours(self, run_id: str, action: Action) -> bool:
        """Whether another action of ours is known to have made the run."""
        agents = await self.ledger.actions(kinds=["agent.start"], states=["confirmed"], limit=EXECUTIONS)
        made = (*await self.ledger.for_run(run_id), *agents)
        return any(other.result_id == run_id and other.action_id != action.action_id for other in made)

    async def _around(self, send: Send, branch: str | None) -> list[RunDetail]:
        """The cached runs around the send, and those whose times cannot be read."""
        cache, window = self.runs.cache, send.around()
        place = RunFilter(branches=(branch,) if branch and "*" not in branch else ())
        near = await cache.runs(replace(place, since=window.since, until=window.until), MOST)
        timeless = () if near else [run for run in await cache.runs(place, MOST) if run.created_at is None]
        details = await cache.details([run.run_id for run in (*near, *timeless)])
        return [details[run.run_id] for run in (*near, *timeless) if run.run_id in details]

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
