"""The receiver: decides on each delivery once, in one transaction with the runs that it starts and ends."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import takewhile

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS, Clock, parse_duration, rfc3339
from service.errors import ServiceError
from service.reference import PLATFORMS, branch_fault
from service.rules import (
    CLOSED,
    COMMENT,
    CONFIDENTIAL,
    FAILED,
    ISSUE,
    ISSUE_TEXT,
    SCHEDULE,
    HookEvent,
    TriggerRule,
    fire_times,
)
from service.settings import Settings
from service.store import agents, audit, deliveries, organizations, postings, repositories, runs, turns
from service.store.database import Database, lock_subject
from service.store.deliveries import STARTED, SUPERSEDED, WAITING, DeliveryEntry, SubjectKey
from service.store.repositories import Repository
from service.store.runs import InactiveOrganizationError, Run, TurnRequest
from service.store.schema import CANCELLED
from service.text import fence_of, one_line, plural


class UnknownRepositoryError(ServiceError):
    """No repository is configured under the name, or it has another secret."""


class ApprovalError(ServiceError):
    """The delivery to approve does not wait for approval, or its run cannot start; the text says why."""


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """An authentic delivery about a pull request or an issue."""

    platform: str
    id: str
    event: HookEvent
    proven: frozenset[str]
    """The environment variables of the secrets that the delivery was signed with."""
    trace_parent: str | None = None
    own_accounts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By organization: the accounts of the service's tokens on its code hosts, in lower case."""
    events: Mapping[str, HookEvent] = field(default_factory=dict)
    """The event of each organization, completed by its code host."""


@dataclass(frozen=True, slots=True)
class DeliveryDecision:
    """The decision of a rule on a delivery."""

    result: str
    detail: str = ""
    run_id: str | None = None
    request: TurnRequest | None = field(default=None, repr=False)


@dataclass(eq=False)
class Receiver:
    """Decides on deliveries for all organizations."""

    _database: Database
    _settings: Settings
    _clock: Clock

    def receive(self, delivery: WebhookDelivery) -> list[DeliveryDecision]:
        """Decide on a delivery; one that was decided on before is a `duplicate`.

        Raises:
            UnknownRepositoryError: No repository is configured under its path with a secret that signed it.
        """
        common = self._settings.secret_of_webhooks(delivery.platform)
        with self._database.write() as connection:
            pairs = [
                (owner, repo)
                for owner, repo in repositories.everywhere(connection, delivery.platform, delivery.event.path)
                if (repo.webhook_secret_env or common) in delivery.proven
            ]
            if not pairs:
                raise UnknownRepositoryError("the repository is not configured for this webhook")
            return [
                decision
                for owner, repo in pairs
                for decision in self._for_repository(connection, owner, repo, delivery)
            ]

    def start_due(self, key: str) -> None:
        """Start the run of a rule that is due, or record why not, in the transaction that makes it due next time."""
        now = self._clock()
        with self._database.write() as connection:
            due = repositories.begin_due(connection, key, now)
            if due is None:
                return
            rule, repository = due.rule, due.repository
            # Times that are too late to start a run need not be counted.
            since = max(due.due_at, now - parse_duration(rule.catch_up)) - 1
            in_time = [*takewhile(now.__ge__, fire_times(rule.schedule or "", rule.timezone, since))]
            at, path = in_time[-1] if in_time else due.due_at, repository.path.lower()
            subject = SubjectKey(due.organization_id, repository.platform, path, deliveries.NO_NUMBER)
            event = HookEvent(SCHEDULE, path, SCHEDULE, is_bot=False, changed_at=at, occasion=rfc3339(at))
            # Rules may change places, so neither the place nor the time makes it unique.
            name = f"{path}@{event.cause}#{ids.ulid(now)[-8:]}"
            delivery = WebhookDelivery(repository.platform, name, event, frozenset())
            if not in_time:
                decision = DeliveryDecision("missed", f"its start was more than {rule.catch_up} late (catch_up)")
            elif agents.by_name(connection, due.organization_id, rule.agent) is None:
                decision = DeliveryDecision("refused", f"the agent {rule.agent} is not configured")
            elif limit := self._hour_limit(connection, subject, now):
                decision = DeliveryDecision("limited", limit)
            else:
                request = _request(subject, repository, rule, delivery)
                decision = _start(connection, request, self._settings.limits.active_runs, now)
            if at != due.due_at:
                missed = f"for the newest of the times missed since {rfc3339(due.due_at)}"
                decision = replace(decision, detail=f"{decision.detail}; {missed}" if decision.detail else missed)
            self._note(connection, subject, delivery, due.index, rule.agent, decision)

    def _for_repository(
        self, connection: sa.Connection, organization_id: str, repository: Repository, delivery: WebhookDelivery
    ) -> list[DeliveryDecision]:
        # One delivery at a time, so that the numbers and rows read here stay true until the commit.
        lock_subject(connection, "deliveries", organization_id)
        if deliveries.is_known(connection, organization_id, delivery.platform, delivery.id):
            return [DeliveryDecision("duplicate")]
        event = delivery.events.get(organization_id, delivery.event)
        delivery = replace(delivery, event=event)
        about = (repository.path.lower(), event.number, event.issue is not None)
        subject = SubjectKey(organization_id, delivery.platform, *about)
        note = partial(self._note, connection, subject, delivery)
        if event.kind == CLOSED:
            return [note(-1, None, self._close(connection, subject, event))]
        named = {account.lower() for account in self._settings.triggers.own_accounts}
        named |= delivery.own_accounts.get(organization_id, frozenset())
        if event.kind != FAILED and event.sender.lower() in named:
            return [note(-1, None, DeliveryDecision("own", "done by the service's own account"))]
        if event.kind not in {FAILED, COMMENT} and turns.is_own_commit(connection, event.head_sha):
            return [note(-1, None, DeliveryDecision("own", "the service pushed this commit"))]
        if event.fault:
            return [note(-1, None, DeliveryDecision("ignored", event.fault))]
        mismatches = [rule.mismatch(event) for rule in repository.triggers]
        if all(mismatches):
            lines = [f"{rule.agent}: {why}" for rule, why in zip(repository.triggers, mismatches, strict=True)]
            return [note(-1, None, DeliveryDecision("ignored", "; ".join(lines) or "the repository has no rules"))]
        fitting = [index for index, mismatch in enumerate(mismatches) if mismatch is None]
        decisions = []
        for index in fitting:
            decision = self._decide(connection, subject, repository, index, delivery)
            decisions.append(note(index, repository.triggers[index].agent, decision))
        return decisions

    def _decide(
        self,
        connection: sa.Connection,
        subject: SubjectKey,
        repository: Repository,
        index: int,
        delivery: WebhookDelivery,
    ) -> DeliveryDecision:
        event = delivery.event
        rule = repository.triggers[index]
        now = self._clock()
        past = deliveries.acted_on(connection, subject)
        if any((entry.cause, entry.rule, entry.agent) == (event.cause, index, rule.agent) for entry in past):
            what = {COMMENT: "comment", FAILED: "check of this commit", ISSUE: "request"}.get(event.kind, "commit")
            return DeliveryDecision("repeated", f"{rule.agent} has had this {what} by this rule")
        mine = [entry for entry in past if (entry.event, entry.agent) == (event.kind, rule.agent)]
        if event.kind == FAILED:
            # No agent starts that works on this commit, or made it.
            here = [entry.run_id for entry in mine if entry.run_id and entry.head_sha == event.head_sha]
            if turns.open_runs(connection, here):
                return DeliveryDecision("own", f"{rule.agent} is at work on this commit")
            if turns.is_own_commit(connection, event.head_sha):
                used = sum(turns.is_own_commit(connection, entry.head_sha) for entry in mine)
                if used >= rule.own_commits:
                    text = f"the service pushed this commit (own_commits = {rule.own_commits})"
                    return DeliveryDecision("own", text)
        if event.kind == ISSUE and turns.open_runs(connection, [entry.run_id for entry in mine if entry.run_id]):
            return DeliveryDecision("refused", f"{rule.agent} is at work on this issue")
        if reason := self._late(connection, subject, event, now):
            return DeliveryDecision("stale", reason)
        owner = organizations.by_id(connection, subject.organization_id)
        if owner is None or not owner.active:
            return DeliveryDecision("refused", "the organization is not active")
        if agents.by_name(connection, subject.organization_id, rule.agent) is None:
            return DeliveryDecision("refused", f"the agent {rule.agent} is not configured")
        if not event.is_fork and event.issue is None:
            default = event.default_branch or repositories.default_branch(connection, repository.url)
            is_protected = repositories.is_protected(event.head, default, repository.protected)
            if fault := f"the branch {event.head} is protected" if is_protected else branch_fault(event.head):
                return DeliveryDecision("refused", fault)
        most = self._settings.triggers.pull_request_runs_a_day
        if deliveries.started_since(connection, subject, now - DAY_MICROS) >= most:
            what = "issue" if subject.is_issue else "pull request"
            return DeliveryDecision("limited", f"pull_request_runs_a_day: {plural(most, 'run')} for one {what}")
        if limit := self._hour_limit(connection, subject, now):
            return DeliveryDecision("limited", limit)
        reason = f"superseded by {event.head_sha[:12]}, a newer head of pull request {event.number}"
        # A comment cancels nothing, and a run that a comment asked for is not cancelled by the next push.
        if event.kind != COMMENT:
            older = [entry for entry in past if entry.head_sha != event.head_sha and entry.event != COMMENT]
            self._end(connection, older, reason, now)
        request = _request(subject, repository, rule, delivery)
        if event.is_fork and rule.forks == "approve":
            return DeliveryDecision(WAITING, "the head is in a fork", request=request)
        decision = _start(connection, request, self._settings.limits.active_runs, now)
        if decision.run_id and event.issue is not None:
            postings.want(connection, (decision.run_id, 1), "comment", {"issue": event.number}, now)
        return decision

    def _late(self, connection: sa.Connection, subject: SubjectKey, event: HookEvent, now: int) -> str | None:
        """Return why a change comes too late; None: it comes in time."""
        if event.changed_at < deliveries.latest_change(connection, subject, only_closed=event.kind in {COMMENT, ISSUE}):
            return "a later change came first"
        # Older decisions are deleted, so a repetition of an older delivery would not be recognized.
        is_old = event.changed_at < now - int(self._settings.retention.deliveries_days * DAY_MICROS)
        return "older than the decisions that are kept (retention.deliveries_days)" if is_old else None

    def _hour_limit(self, connection: sa.Connection, subject: SubjectKey, now: int) -> str | None:
        most, hour_ago = self._settings.triggers.repository_runs_an_hour, now - DAY_MICROS // 24
        is_reached = deliveries.started_since(connection, subject, hour_ago, in_repository=True) >= most
        return f"repository_runs_an_hour: {plural(most, 'run')} for one repository" if is_reached else None

    def _close(self, connection: sa.Connection, subject: SubjectKey, event: HookEvent) -> DeliveryDecision:
        """Decide on the end of a pull request or an issue: its runs have nothing to work for."""
        now = self._clock()
        if reason := self._late(connection, subject, event, now):
            return DeliveryDecision("stale", reason)
        past = deliveries.acted_on(connection, subject)
        hides = event.cause == CONFIDENTIAL
        what = "issue" if subject.is_issue else "pull request"
        reason = f"{what} {event.number} {'is confidential' if hides else 'was closed'}"
        if hides:
            postings.withdraw_pull_requests(connection, [entry.run_id for entry in past if entry.run_id], reason, now)
        ended = self._end(connection, past, reason, now, even_continued=hides)
        return DeliveryDecision(CLOSED, f"ended {plural(ended, 'run')}")

    def _end(
        self,
        connection: sa.Connection,
        past: Sequence[DeliveryEntry],
        reason: str,
        now: int,
        *,
        even_continued: bool = False,
    ) -> int:
        """Cancel runs that deliveries started, unless a user continued them, and waiting ones; return how many."""
        still_open = turns.open_runs(connection, [entry.run_id for entry in past if entry.run_id])
        ended = 0
        for entry in past:
            if entry.result == WAITING:
                deliveries.conclude(connection, entry.id, SUPERSEDED, reason)
                ended += 1
            elif entry.run_id in still_open and (
                even_continued or turns.of(connection, entry.run_id)[-1].caller == turns.WEBHOOK
            ):
                turns.cancel(connection, entry.run_id, f"{CANCELLED}: {reason}", now)
                _audit(connection, entry, "run.cancel", entry.run_id, reason, now)
                ended += 1
        return ended

    def _note(
        self,
        connection: sa.Connection,
        subject: SubjectKey,
        delivery: WebhookDelivery,
        index: int,
        agent: str | None,
        decision: DeliveryDecision,
    ) -> DeliveryDecision:
        event, now = delivery.event, self._clock()
        entry = DeliveryEntry(
            id=f"dlv_{ids.ulid(now)}",
            **asdict(subject),
            delivery=delivery.id,
            event=event.kind,
            result=decision.result,
            rule=index,
            head_sha=event.head_sha,
            cause=event.cause,
            sender=event.sender[:200],
            detail=decision.detail[:1000],
            agent=agent,
            run_id=decision.run_id,
            request=asdict(decision.request) if decision.request else None,
            changed_at=event.changed_at,
            received_at=now,
        )
        deliveries.record(connection, entry)
        if decision.result in {STARTED, WAITING}:
            action = "trigger.start" if decision.run_id else "trigger.wait"
            _audit(connection, entry, action, decision.run_id or entry.id, f"{agent} on {event.kind}", now)
        return decision


def approve(connection: sa.Connection, entry_id: str, active_runs: int, by: str, now: int) -> Run:
    """Start a waiting run; the operator takes responsibility for anything that the commit makes the agent do.

    Raises:
        ApprovalError: It does not wait, or cannot start now.
    """
    entry = deliveries.by_id(connection, entry_id)
    if entry is None or entry.request is None:
        state = "is not there" if entry is None else f"does not wait: {entry.result} {entry.detail}".rstrip()
        raise ApprovalError(f"{entry_id} {state}")
    decision = _start(connection, TurnRequest(**entry.request), active_runs, now)
    run = runs.by_id(connection, decision.run_id or "")
    if run is None or not deliveries.conclude(connection, entry_id, STARTED, f"approved by {by}", run.id):
        raise ApprovalError(f"{entry_id} cannot start: {decision.detail or 'it does not wait any longer'}")
    return run


def _request(subject: SubjectKey, repository: Repository, rule: TriggerRule, delivery: WebhookDelivery) -> TurnRequest:
    event = delivery.event
    about: dict[str, object] = {"number": event.number}
    parts = [rule.instructions]
    inputs: dict[str, object] = {}
    if event.command:
        inputs["comment"] = {"author": event.sender, "command": event.command, "words": event.words}
        parts += [f"{event.sender} asks: {event.words}"] if event.words else []
    if event.kind == FAILED:
        inputs["check"] = {"name": event.check}
        parts.append(f"What failed: {one_line(event.check)}")
    if event.kind == SCHEDULE:
        about = {"schedule": rule.schedule, "timezone": rule.timezone, "due": event.cause}
    elif event.issue is None:
        about |= {"head": event.head, "base": event.base, "commit": event.head_sha}
        inputs["pull_request"] = about
        parts.append(f"(pull request {PLATFORMS[subject.platform].mark}{event.number}, commit {event.head_sha})")
    else:
        text = f"{event.issue.title}\n\n{event.issue.text}".strip()
        inputs["issue"] = about | asdict(event.issue)
        parts += [f"(issue #{event.number})", ISSUE_TEXT, f"{fence_of(text)}\n{text}\n{fence_of(text)}"]
    origin = {"event": event.kind, "delivery": delivery.id} | about
    return TurnRequest(
        organization_id=subject.organization_id,
        agent=rule.agent,
        platform=subject.platform,
        path=repository.path,
        url=repository.url,
        branch=event.ref.removeprefix("refs/") if event.is_fork else event.head or None,
        instructions="\n\n".join(parts),
        inputs=inputs,
        metadata={"trigger": origin},
        trace_parent=delivery.trace_parent,
        caller=f"{SCHEDULE} {rule.schedule}" if event.kind == SCHEDULE else turns.WEBHOOK,
        head_ref=event.ref if event.is_fork else None,
        head_sha=event.head_sha if event.is_fork else None,
        is_restricted=event.is_fork and rule.forks == "without_secrets",
    )


def _start(connection: sa.Connection, request: TurnRequest, active_runs: int, now: int) -> DeliveryDecision:
    with connection.begin_nested() as accepting:
        try:
            run = runs.accept(connection, request, now)
        except InactiveOrganizationError:
            accepting.rollback()
            return DeliveryDecision("refused", "the organization is not active")
        if runs.has_more_active(connection, request.organization_id, active_runs):
            accepting.rollback()
            return DeliveryDecision("refused", f"the organization has {plural(active_runs, 'run')} queued or working")
    return DeliveryDecision(STARTED, run_id=run.id)


def _audit(connection: sa.Connection, entry: DeliveryEntry, action: str, target: str, detail: str, now: int) -> None:
    actor = f"{SCHEDULE if entry.event == SCHEDULE else turns.WEBHOOK}:{entry.platform}:{entry.delivery[:64]}"
    owner = entry.organization_id
    audit.record(connection, actor, action, now, target=target, organization_id=owner, detail=detail)
