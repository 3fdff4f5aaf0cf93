"""The runs that a write may have created, and how well each one fits."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from app.api.requests import ContinueRun, StartRun, request_sent
from app.engine.times import span
from storage.records import Action, Run, RunClock, RunDetail, RunFilter
from storage.records.organization import Invitation
from storage.records.results import Turn

TOLERANCE: Final = timedelta(minutes=5)
"""How far from the send a run may be dated, if the service's clock is known."""
UNKNOWN_CLOCK_TOLERANCE: Final = timedelta(hours=26)
"""How far from the send a run may be dated, if the service's clock is not known: zones are up to 26 hours apart."""
PRECISION: Final = timedelta(seconds=10)
"""How exactly the service's clock is known."""
MAX_CARRY_OUT: Final = timedelta(minutes=10)
"""How long after the send a service can still execute it: a crash may be noticed days later."""
LIST_LEAD: Final = timedelta(minutes=2)
"""How long before the send a list that already shows its result can have been requested."""


class Candidate(Struct, frozen=True):
    """A run that the action may have created or continued."""

    run: Run
    seen_at: datetime
    """When the run was first seen, by our clock."""
    after: timedelta | None
    """The time from the send to the run's creation or continuation, by the service's clock; None if unreadable."""
    is_turn: bool = False
    """A continued conversation, not another run."""
    is_observed: bool = False
    """Whether the next turn was seen to begin around the send; otherwise only the last change is known."""
    is_marked: bool = False
    """It shows the action's own id, which nothing else was given."""
    asked: str | None = None
    """Its instructions, or None if the service does not report them."""
    caller: str | None = None
    """Who gave them, or None if that is unknown."""
    is_same: bool | None = None
    """Whether they are the action's own, or None if that is unknown."""
    is_ours: bool | None = None
    """Whether our own token gave them, or None if that is unknown."""

    @property
    def when(self) -> str:
        """The run's time relative to the send, as exactly as the service's clock is known."""
        if self.after is None:
            return "first seen after the send"
        verb = ""
        if self.is_turn:
            verb = "continued " if self.is_observed else "last changed "
        seconds = self.after.total_seconds()
        if -PRECISION <= self.after < timedelta(0):
            return f"{verb}at the send"
        return f"{verb}{span(abs(seconds))} {'after' if seconds >= 0 else 'before'} the send"

    def is_worse(self, best: "Candidate") -> bool:
        """Whether the text, author or time certainly fits worse than the best candidate's."""
        is_foreign = self.is_ours is False and best.is_ours is True
        # A run without a time may be just as close.
        is_close, is_as_close = (c.after is None or abs(c.after) <= PRECISION for c in (best, self))
        return self.is_same is False or is_foreign or (best.after is not None and is_close and not is_as_close)


class Proposal(Struct, frozen=True):
    """The possible results of an unknown action; the user decides."""

    candidates: tuple[Candidate, ...] = ()
    """The candidates, the likeliest first."""
    is_whole: bool = False
    """Whether all runs around the send are known."""
    organizations: tuple[Invitation, ...] = ()
    """The organizations whose invitation went to the address that the action was sent for, the likeliest first."""

    @property
    def is_certain(self) -> bool:
        """Whether only this action can have created the first candidate."""
        return [candidate.is_marked for candidate in self.candidates].count(True) == 1

    @property
    def ids(self) -> tuple[str, ...]:
        runs = (candidate.run.run_id for candidate in self.candidates)
        return (*runs, *(invitation.organization_id for invitation in self.organizations))

    @property
    def likely(self) -> str:
        """The id of the only marked candidate, or of the one that fits best in every respect; may be empty."""
        if len(self.organizations) == 1:
            return self.organizations[0].organization_id
        if not self.candidates:
            return ""
        best, *others = self.candidates
        is_best = best.is_same is True and all(other.is_worse(best) for other in others)
        return best.run.run_id if self.is_certain or is_best else ""


class Send(Struct, frozen=True):
    """The time and purpose of a send, by the clock that run times use."""

    action: Action
    request: StartRun | ContinueRun
    clock: RunClock
    sent_at: datetime
    """When the action was sent, by our clock."""

    @classmethod
    def of(cls, action: Action, clock: RunClock) -> Self | None:
        """The send of an action; None if no list shows its result, or nothing was sent."""
        request = request_sent(action)
        if action.sending_at is None or not isinstance(request, StartRun | ContinueRun):
            return None
        return cls(action, request, clock, action.sending_at)

    @property
    def shown_at(self) -> datetime:
        """When the action was sent, by the clock that run times use."""
        return self.sent_at + self.clock.ahead

    @property
    def ended_at(self) -> datetime:
        """The latest time, by our clock, at which the service may have carried it out."""
        return min(self.action.settled_at or self.sent_at, self.sent_at + MAX_CARRY_OUT)

    @property
    def margin(self) -> timedelta:
        """The largest possible distance between the send and its run's time."""
        return TOLERANCE if self.clock.is_known else UNKNOWN_CLOCK_TOLERANCE

    def search_window(self) -> RunFilter:
        return RunFilter(since=self.shown_at - self.margin, until=self.ended_at + self.clock.ahead + self.margin)

    def matches_target(self, run: Run, branch: str | None) -> bool:
        """Whether the run belongs to the action's repository and to this branch, or to any branch if it is None."""
        repository = self.request.repository
        same = (run.repository.platform, run.repository.path.casefold()) == (
            repository.platform,
            repository.path.casefold(),
        )
        return same and (branch is None or run.branch_name == branch)

    def start_candidate(self, detail: RunDetail, branch: str | None) -> Candidate | None:
        """The run as a candidate for a started run; None if it cannot be the result."""
        run = detail.run
        if detail.first_seen_at < self.sent_at - LIST_LEAD or not self.matches_target(run, branch):
            return None
        if self.clock.is_known and run.created_at is not None and run.created_at < self.shown_at - PRECISION:
            return None
        return self._candidate(detail, run.created_at)

    def continuation_candidate(self, detail: RunDetail, others: Iterable[datetime]) -> Candidate | None:
        """The run as a candidate for a continued conversation; None if it was not continued then.

        After the next of our `others` (when they were sent, by our clock), changes are that one's work.
        """
        margin = PRECISION if self.clock.is_known else UNKNOWN_CLOCK_TOLERANCE
        since = self.shown_at - margin
        until = self.ended_at + self.clock.ahead + max(margin, TOLERANCE)
        following = min((at for at in others if at > self.sent_at), default=None)
        if following is not None:
            until = min(until, following + self.clock.ahead - PRECISION)
        finals = detail.final_statuses
        begun = [t.at for t in detail.transitions if t.old in finals and t.new not in finals and t.at >= since]
        if begun and begun[0] <= until:
            return self._candidate(detail, begun[0], is_turn=True, is_observed=True)
        changed = detail.run.updated_at
        recent = self.shown_at - (PRECISION if self.clock.is_known else TOLERANCE)
        if changed is None or changed < recent or begun or following is not None:
            return None
        return self._candidate(detail, changed, is_turn=True)

    def _candidate(
        self, detail: RunDetail, at: datetime | None, *, is_turn: bool = False, is_observed: bool = False
    ) -> Candidate:
        run = detail.run
        mark = self.action.action_id
        is_marked = False
        with suppress(ValueError):
            document = json.loads(run.raw_json)
            metadata = ""
            if isinstance(document, dict):
                metadata = json.dumps(document.get("metadata"))
            in_branch = not is_turn and mark in run.branch_name
            is_marked = mark in self.action.body_json and (in_branch or mark in metadata)
        after = None if at is None else at - self.shown_at
        return Candidate(run, detail.first_seen_at, after, is_turn, is_observed, is_marked)

    def with_turns(self, candidate: Candidate, turns: Sequence[Turn], caller: str | None) -> Candidate:
        """The candidate with the service's report of its turns. `caller`: the service's name for us, if known."""
        if not turns:
            return candidate
        turn = turns[-1] if candidate.is_turn else turns[0]
        if turn.instructions is None:
            return candidate
        is_same = turn.instructions.strip() == self.request.instructions.strip()
        is_ours = None if caller is None or turn.caller is None else turn.caller == caller
        return replace(candidate, asked=turn.instructions, caller=turn.caller, is_same=is_same, is_ours=is_ours)

    def unlikeliness(self, candidate: Candidate) -> tuple[object, ...]:
        """The key that sorts candidates, the likeliest first."""
        after, is_known = candidate.after, self.clock.is_known
        turn = 0 if candidate.is_observed or is_known else 2
        return (
            not candidate.is_marked,
            turn if candidate.is_turn else 1,
            after is not None and is_known and after < -PRECISION,
            timedelta(0) if is_known else abs(candidate.seen_at - self.sent_at),
            UNKNOWN_CLOCK_TOLERANCE if after is None else abs(after),
            candidate.run.run_id,
        )

    def misfit(self, run: Run) -> str:
        """Why a run that is not a candidate does not fit."""
        if not self.matches_target(run, None):
            return f"it is a run on {run.repository.label}."
        if not self.matches_target(run, self.request.branch_name):
            return f"it is on the branch {run.branch_name}."
        if run.run_id == self.action.subject:
            return "it was not continued when this was sent."
        if run.created_at is None or abs(after := run.created_at - self.shown_at) <= self.margin:
            return "another action made it, or it was there before this was sent."
        seconds = after.total_seconds()
        return f"it was created {span(abs(seconds))} {'after' if seconds > 0 else 'before'} this was sent."
