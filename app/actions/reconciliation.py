"""Proposes the runs that unknown actions may have created; whether a cancellation took effect, the run itself shows."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.candidates import LIST_LEAD, PRECISION, TOLERANCE, Candidate, Proposal, Send
from app.actions.refusals import ActionRefusedError, DoubtfulIdError
from app.api.errors import ApiError, EndlessListError, NotOfferedError
from app.api.requests import CancelRun, OnboardProject, ResendInvitation, SayToRun, WriteRequest, request_sent
from app.engine.events import ActionChanged
from app.results.service import ServiceExtension
from app.sync.listing import Listing
from app.sync.runs import RunSync
from storage.errors import LedgerRefusedError
from storage.records import CANCELLED, UNUSED_STATES, WRITE_KINDS, Action, ActionFilter, RunDetail, RunFilter

LISTED: Final = frozenset({"organization.create", *(name for name, kind in WRITE_KINDS.items() if kind.is_listed)})
"""Kinds of writes whose results a service may list: runs, and invitations to organizations."""
_PLAUSIBLE: Final = re.compile(r"[^\s@/]*[0-9_][^\s@/]*")
"""An id has a digit, or a prefix."""
MAX_CANDIDATES: Final = 50
MAX_NEAR: Final = 500
"""Runs around a send that are looked at."""
MAX_ASKED: Final = 9
"""Candidates whose words the service is asked for."""
MAX_PAGES: Final = 30
MAX_STARTS: Final = 1_000
"""Our newest starts of agents that are ruled out: an execution may be listed as a run."""
LOOK_S: Final = 2.0
"""Seconds between two looks at unknown actions, or at runs that follow-ups wait for."""
REST_S: Final = 15.0
"""Seconds until a new unknown action is noticed, while none is known."""
AGE_PART: Final = 10
"""The search for an unknown action repeats after this fraction of the action's age."""
ASK_AGAIN: Final = timedelta(minutes=1)
"""How soon the service is asked again for the same action; later the older the action is."""
MAX_PAUSE: Final = timedelta(hours=1)
"""The longest time between two looks for the same action."""


@dataclass(slots=True)
class Search:
    """The search for one action."""

    look_at: datetime
    ask_at: datetime
    proposed: tuple[str, ...] = ()
    """The ids of the candidates that were announced last."""


@dataclass(slots=True)
class Reconciliation:
    """Searches for the results of actions whose outcome is unknown."""

    runs: RunSync
    listing: Listing
    extension: ServiceExtension
    actions: Actions
    _searches: dict[str, Search] = field(default_factory=dict)

    async def cached_proposal(self, action: Action) -> Proposal:
        """The possible results of an action in the cache; empty if the service does not list them."""
        cache = self.runs.cache
        send = Send.of(action, await cache.run_clock())
        if send is None:
            return Proposal()
        subject = await cache.detail(action.subject) if action.subject else None
        # When our other continuations of the same run were sent.
        continued_at = [
            other.sending_at
            for other in await self.actions.ledger.for_run(action.subject)
            if other.sending_at is not None
            and other.kind == action.kind
            and other.state not in UNUSED_STATES
            and other.action_id != action.action_id
        ]
        turn = None if subject is None else send.continuation_candidate(subject, continued_at)
        branch = send.request.branch_name or (subject.run.branch_name if subject is not None else None) or None
        around = await self._runs_around(send, branch)
        # A run older than one seen before the send is older than the send, whatever the service's clock shows.
        seen = (detail.run.created_at for detail in around if detail.first_seen_at < send.sent_at - LIST_LEAD)
        oldest = max(filter(None, seen), default=None)
        fitting = [
            candidate
            for candidate in (send.start_candidate(detail, branch) for detail in around)
            if candidate is not None
            and (not oldest or not candidate.run.created_at or candidate.run.created_at >= oldest - PRECISION)
        ]
        taken = await self._taken_run_ids(action, fitting)
        candidates = [*filter(None, [turn]), *(candidate for candidate in fitting if candidate.run.run_id not in taken)]
        # Whether the cache holds every run that the send may have created.
        coverage = await cache.coverage()
        is_whole = coverage.is_current(send.ended_at) and not send.search_window().gaps_in(coverage)
        is_whole &= not action.subject or (subject is not None and subject.last_seen_at > send.ended_at)
        return Proposal(tuple(sorted(candidates, key=send.unlikeliness)[:MAX_CANDIDATES]), is_whole)

    async def _runs_around(self, send: Send, branch: str | None) -> list[RunDetail]:
        """The cached runs around the send; if there are none, those whose times cannot be read."""
        cache = self.runs.cache
        window = send.search_window()
        label = send.request.repository.label
        labels = [name for name in await cache.repositories() if name.casefold() == label.casefold()]
        # The filter would read a name with a star as a pattern, so it is left out; `Send` checks each match again.
        condition = RunFilter(
            repositories=tuple(name for name in labels or [label] if "*" not in name),
            branches=(branch,) if branch and "*" not in branch else (),
        )
        runs = await cache.runs(replace(condition, since=window.since, until=window.until), MAX_NEAR)
        runs = runs or tuple(run for run in await cache.runs(condition, MAX_NEAR) if run.created_at is None)
        details = await cache.details([run.run_id for run in runs])
        return [details[run.run_id] for run in runs if run.run_id in details]

    async def _taken_run_ids(self, action: Action, fitting: Sequence[Candidate]) -> set[str | None]:
        """The runs that another of our actions made, and the one that this action continued."""
        ledger = self.actions.ledger
        others: list[Action] = []
        if fitting:
            others += await ledger.actions(ActionFilter(["agent.start"], ["confirmed"]), limit=MAX_STARTS)
        for candidate in fitting:
            others += await ledger.for_run(candidate.run.run_id)
        return {action.subject, *(other.result_id for other in others if other.action_id != action.action_id)}

    async def ask(self, action: Action) -> Proposal:
        """The possible results, after reading the runs around the send from the service (spec 4.2).

        Of an organization, what the service's list of invitations shows. Raises `ApiError`.
        """
        if action.kind == "organization.create":
            return await self._ask_invitations(action)
        cache = self.runs.cache
        await self.runs.reader.client.budget.settle()
        send = Send.of(action, await cache.run_clock())
        if send is None:
            return Proposal()
        if action.subject and (continued := await cache.detail(action.subject)) is not None:
            await self.runs.look_up(continued.run)
        is_whole, pages = True, 0
        try:
            async for _ in self.listing.pages(send.search_window(), limit=None):
                pages += 1
                if pages == MAX_PAGES:
                    is_whole = False
                    break
        except EndlessListError:
            is_whole = False
        proposal = await self.cached_proposal(action)
        described: list[Candidate] = []
        # The service's name for our token, taken from the run that we started last.
        caller = None
        if proposal.candidates:
            for start in await self.actions.ledger.actions(ActionFilter(["run.start"], ["confirmed"]), limit=1):
                reported = await self.extension.turns_now(start.result_id or "")
                caller = None
                if reported is not None and reported.turns:
                    caller = reported.turns[0].caller
        for candidate in proposal.candidates[:MAX_ASKED]:
            answer = await self.extension.turns_now(candidate.run.run_id)
            described.append(candidate if answer is None else send.with_turns(candidate, answer.turns, caller))
        # Candidates with the same instructions come first, those with others last; then those of our own token.
        ordered = sorted(
            (*described, *proposal.candidates[MAX_ASKED:]),
            key=lambda c: (not c.is_marked, c.is_same is False, not c.is_same, c.is_ours is False, not c.is_ours),
        )
        return Proposal(tuple(ordered), is_whole)

    async def _ask_invitations(self, action: Action) -> Proposal:
        """The organizations invited at this address that none of our other actions created, newest first."""
        client = self.runs.reader.client
        created = ActionFilter(["organization.create"], ["confirmed"])
        others = {other.result_id for other in await self.actions.ledger.actions(created, limit=MAX_STARTS)}
        invitations = await client.invitations()
        ahead = client.budget.heard_ahead
        # The service mails the invitation after the request; an earlier mail belongs to an older organization.
        since = None
        if ahead is not None and action.sending_at is not None:
            since = action.sending_at + ahead - TOLERANCE
        matches = [
            invitation
            for invitation in invitations
            if invitation.email.casefold() == action.subject.casefold()
            and invitation.organization_id not in others
            and (since is None or invitation.sent_at is None or invitation.sent_at >= since)
        ]
        by_id = {invitation.organization_id: invitation for invitation in matches}
        return Proposal(organizations=tuple(by_id.values()))

    async def check(self, action: Action, result_id: str) -> None:
        """Raise a `DoubtfulIdError` if this probably is not the action's result; the user may know better."""
        request = request_sent(action)
        kind = WRITE_KINDS[action.kind]
        if action.kind == "gitlab.onboard":
            sent = request.project_path if isinstance(request, OnboardProject) else None
            if sent and result_id != sent:
                reason = f"{result_id!r} is not the project's path: it was sent for {sent}."
                raise DoubtfulIdError(f"{reason} {kind.id_source}")
            if not sent and "/" not in result_id:
                raise DoubtfulIdError(f"{result_id!r} is not the project's path. {kind.id_source}")
            return
        match request:
            case CancelRun(run_id=own) if own != result_id:
                raise DoubtfulIdError(f"{result_id!r} is not the run that was to be cancelled, {own}.")
            case ResendInvitation(invitation_id=own) if own != result_id:
                raise DoubtfulIdError(f"{result_id!r} is not the invitation that was sent again, {own}.")
            case CancelRun() | ResendInvitation():
                return
            case SayToRun():
                with _asking(f"has {result_id}"):
                    turns = (await self.runs.reader.client.run_detail(request.run_id)).turns
                texts = {message.message_id: message.text for turn in turns for message in turn.messages}
                if texts.get(result_id) != request.text:
                    problem = "another message of this id"
                    if result_id not in texts:
                        problem = "no such message"
                    raise DoubtfulIdError(f"The run {request.run_id} has {problem}: {result_id}.")
                return
        detail = await self.runs.cache.detail(result_id)
        if detail is None and not _PLAUSIBLE.fullmatch(result_id):
            raise DoubtfulIdError(f"{result_id!r} does not look like {kind.id_name}. {kind.id_source}")
        if detail is not None and action.kind == "organization.create":
            raise DoubtfulIdError(f"{result_id!r} is a run's id. {kind.id_source}")
        others = await self.actions.ledger.actions(ActionFilter([action.kind], ["confirmed"]), limit=MAX_STARTS)
        makers = {other.action_id for other in others if other.result_id == result_id} - {action.action_id}
        if makers and action.kind != "run.continue":
            raise DoubtfulIdError(f"{result_id} is what {min(makers)} made. {kind.id_source}")
        if action.kind == "organization.create":
            await self._check_organization(action, result_id)
        elif kind.is_listed:
            await self._check_run(action, result_id)

    async def _check_organization(self, action: Action, organization_id: str) -> None:
        with _asking(f"knows {organization_id}"), suppress(NotOfferedError):
            invitations = await self.runs.reader.client.invitations()
            emails = {invitation.email for invitation in invitations if invitation.organization_id == organization_id}
            if not emails:
                raise DoubtfulIdError(f"The service knows no organization {organization_id}.")
            if action.subject.casefold() not in map(str.casefold, emails):
                raise DoubtfulIdError(f"{organization_id} was created for {min(emails)}, not for {action.subject}.")

    async def _check_run(self, action: Action, run_id: str) -> None:
        cache = self.runs.cache
        detail = await cache.detail(run_id)
        proposal = await self.cached_proposal(action)
        if detail is None:
            with _asking(f"lists {run_id}"):
                proposal = await self.ask(action)
            detail = await cache.detail(run_id)
        if run_id in proposal.ids:
            return
        if detail is None:
            raise DoubtfulIdError(f"The service lists no run {run_id} from around the time it was sent.")
        if (send := Send.of(action, await cache.run_clock())) is not None:
            raise DoubtfulIdError(f"{run_id} does not fit: {send.misfit(detail.run)}")

    async def work(self) -> float:
        """Search for unknown actions once the service answers; return the seconds until the next check."""
        if not (unresolved := await self.actions.ledger.unresolved()):
            return REST_S
        links = await self.runs.cache.links()
        answered_at = [link.last_ok_at for link in links if link.subject == "runs" and not link.is_failing]
        # Cancellations first: a search may take minutes.
        for action in sorted(unresolved, key=lambda action: action.kind != CancelRun.kind):
            now = self.actions.clock()
            ended_at = action.settled_at or action.created_at
            search = self._searches.setdefault(action.action_id, Search(now, now))
            if now < search.look_at:
                continue
            if action.kind == CancelRun.kind and not self.actions.read_only:
                search.look_at = now + min(max(now - action.created_at, timedelta(seconds=LOOK_S)), MAX_PAUSE)
                with suppress(ActionRefusedError, LedgerRefusedError):  # Another process recorded the outcome first.
                    await settle_from_turns(self.actions, action)
            if not WRITE_KINDS[action.kind].is_listed or not any(at and at > ended_at for at in answered_at):
                continue
            age = now - ended_at
            search.look_at = now + min(max(age / AGE_PART, timedelta(seconds=LOOK_S)), MAX_PAUSE)
            proposal = await self.cached_proposal(action)
            is_enough = proposal.is_whole and (await self.runs.cache.run_clock()).is_known
            if not is_enough and search.ask_at <= now:
                search.ask_at = now + min(max(age, ASK_AGAIN), MAX_PAUSE)
                with suppress(ApiError):
                    proposal = await self.ask(action)
            if proposal.ids != search.proposed:
                search.proposed = proposal.ids
                self.actions.announce(ActionChanged(action.action_id))
        return LOOK_S


@contextmanager
def _asking(question: str) -> Iterator[None]:
    """Raise a `DoubtfulIdError` if the service fails; `what` ends its sentence “Whether the service …”."""
    try:
        yield
    except ApiError as error:
        raise DoubtfulIdError(f"Whether the service {question} could not be asked: {error}") from error


async def settle_from_turns(actions: Actions, action: Action) -> Action:
    """Record the outcome of an unknown cancellation, if the run's turn shows it; return the action.

    Raises `ActionRefusedError` or `LedgerRefusedError` if it cannot be recorded.
    """
    request = request_sent(action)
    if action.state != "unknown" or action.resolution is not None or not isinstance(request, CancelRun):
        return action
    try:
        turns = (await actions.client.run_detail(request.run_id)).turns
    except ApiError:
        return action
    # The cancellation was for the last turn, unless that turn started later.
    sent_at = action.sending_at or action.created_at
    begun = [turn for turn in turns if turn.started_at is None or turn.started_at <= sent_at] or turns
    if not begun:
        return action
    if (turn := begun[-1]).outcome == CANCELLED:
        return await actions.resolve(action.action_id, request.run_id)
    # While the run is active, the request may still be on its way.
    if turn.outcome is None:
        return action
    return await actions.resolve(action.action_id, None)


async def submit_and_settle(
    actions: Actions,
    request: WriteRequest,
    key: str | None = None,
    *,
    again: bool = False,
    patience_s: float | None = None,
) -> Action:
    """The action after `Actions.submit`; the run is checked if a cancellation's outcome is unknown."""
    action = await actions.submit(request, key=key, again=again)
    # Consoles and bots look again in the background; another process may have recorded the outcome first.
    with suppress(TimeoutError, ActionRefusedError, LedgerRefusedError):
        async with asyncio.timeout(patience_s):
            return await settle_from_turns(actions, action)
    return await actions.ledger.action(action.action_id) or action
