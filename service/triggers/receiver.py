"""The receiver: decides on each delivery once, in one transaction with the runs that it starts and ends."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS, Clock, Micros, parse_duration, rfc3339
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


def receive(database: Database, settings: Settings, clock: Clock, delivery: WebhookDelivery) -> list[DeliveryDecision]:
    """Decide on a delivery for each organization; one that was decided on before is a `duplicate`.

    Raises:
        UnknownRepositoryError: No repository is configured under its path with a secret that signed it.
    """
    platform = delivery.platform
    common = settings.secret_of_webhooks(delivery.platform)
    decisions = []
    with database.write() as connection:
        for owner, repository in repositories.everywhere(connection, platform, delivery.event.path):
            if (repository.webhook_secret_env or common) not in delivery.proven:
                continue
            # One delivery at a time, so that the numbers and rows read here stay true until the commit.
            lock_subject(connection, "deliveries", owner)
            if deliveries.is_known(connection, owner, platform, delivery.id):
                decisions.append(DeliveryDecision("duplicate"))
                continue
            event = delivery.events.get(owner, delivery.event)
            subject = SubjectKey(owner, platform, repository.path.lower(), event.number, event.issue is not None)
            decisions += _Case(connection, settings, clock(), subject, repository, delivery, event).decide()
        if not decisions:
            raise UnknownRepositoryError("the repository is not configured for this webhook")
    return decisions


def start_due(database: Database, settings: Settings, clock: Clock, key: str) -> None:
    """Start the run of a rule that is due, or record why not, in the transaction that makes it due next time."""
    now = clock()
    with database.write() as connection:
        due = repositories.begin_due(connection, key, now)
        if due is None:
            return
        rule, repository = due.rule, due.repository
        # Times that are too old to start a run need not be counted.
        since = max(due.due_at, now - parse_duration(rule.catch_up)) - 1
        in_time = [*takewhile(now.__ge__, fire_times(rule.schedule or "", rule.timezone, since))]
        at = in_time[-1] if in_time else due.due_at
        path = repository.path.lower()
        subject = SubjectKey(due.organization_id, repository.platform, path, deliveries.NO_NUMBER)
        event = HookEvent(SCHEDULE, path, SCHEDULE, is_bot=False, changed_at=at, occasion=rfc3339(at))
        # Rules can be reordered, so neither the index nor the time is unique.
        name = f"{path}@{event.cause}#{ids.ulid(now)[-8:]}"
        delivery = WebhookDelivery(repository.platform, name, event, frozenset())
        case = _Case(connection, settings, now, subject, repository, delivery, event)
        if not in_time:
            decision = DeliveryDecision("missed", f"its start was more than {rule.catch_up} late (catch_up)")
        elif agents.by_name(connection, due.organization_id, rule.agent) is None:
            decision = DeliveryDecision("refused", f"the agent {rule.agent} is not configured")
        elif limit := case.hour_limit():
            decision = DeliveryDecision("limited", limit)
        else:
            decision = _start(connection, case.request(rule), settings.limits.active_runs, now)
        if at != due.due_at:
            missed = f"for the newest of the times missed since {rfc3339(due.due_at)}"
            decision = replace(decision, detail=f"{decision.detail}; {missed}" if decision.detail else missed)
        case.note(decision, due.index)


@dataclass(eq=False)
class _Case:
    """A delivery to one organization, within the transaction that decides on it."""

    connection: sa.Connection
    settings: Settings
    now: Micros
    subject: SubjectKey
    repository: Repository
    delivery: WebhookDelivery
    event: HookEvent
    """The delivery's event, completed by this organization's code host."""

    def decide(self) -> list[DeliveryDecision]:
        event, rules = self.event, self.repository.triggers
        accounts = {account.lower() for account in self.settings.triggers.own_accounts}
        accounts |= self.delivery.own_accounts.get(self.subject.organization_id, frozenset())
        mismatches = [rule.mismatch(event) for rule in rules]
        if event.kind == CLOSED:
            decision = self._close()
        elif event.kind != FAILED and event.sender.lower() in accounts:
            decision = DeliveryDecision("own", "done by the service's own account")
        elif event.kind not in {FAILED, COMMENT} and turns.is_own_commit(self.connection, event.head_sha):
            decision = DeliveryDecision("own", "the service pushed this commit")
        elif event.fault:
            decision = DeliveryDecision("ignored", event.fault)
        elif all(mismatches):
            lines = [f"{rule.agent}: {reason}" for rule, reason in zip(rules, mismatches, strict=True)]
            decision = DeliveryDecision("ignored", "; ".join(lines) or "the repository has no rules")
        else:
            fitting = [index for index, mismatch in enumerate(mismatches) if mismatch is None]
            return [self.note(self._by_rule(index), index) for index in fitting]
        return [self.note(decision)]

    def _by_rule(self, index: int) -> DeliveryDecision:
        """Start the run of a rule that fits, or say why not."""
        event, rule = self.event, self.repository.triggers[index]
        past = deliveries.acted_on(self.connection, self.subject)
        refusal = self._repetition(index, rule, past) or self._refusal(rule)
        if refusal is not None:
            return refusal
        # A comment cancels nothing, and a run that a comment asked for is not cancelled by the next push.
        if event.kind != COMMENT:
            older = [entry for entry in past if entry.head_sha != event.head_sha and entry.event != COMMENT]
            self._end(older, f"superseded by {event.head_sha[:12]}, a newer head of pull request {event.number}")
        request = self.request(rule)
        if event.is_fork and rule.forks == "approve":
            return DeliveryDecision(WAITING, "the head is in a fork", request=request)
        decision = _start(self.connection, request, self.settings.limits.active_runs, self.now)
        if decision.run_id and event.issue is not None:
            postings.want(self.connection, (decision.run_id, 1), "comment", {"issue": event.number}, self.now)
        return decision

    def _repetition(self, index: int, rule: TriggerRule, past: Sequence[DeliveryEntry]) -> DeliveryDecision | None:
        """The decision if this rule's agent has had the event before, is at work on it, or caused it."""
        event, connection = self.event, self.connection
        if any((entry.cause, entry.rule, entry.agent) == (event.cause, index, rule.agent) for entry in past):
            subject = {COMMENT: "comment", FAILED: "check of this commit", ISSUE: "request"}.get(event.kind, "commit")
            return DeliveryDecision("repeated", f"{rule.agent} has had this {subject} by this rule")
        same_agent = [entry for entry in past if (entry.event, entry.agent) == (event.kind, rule.agent)]
        if event.kind == FAILED:
            # Start no agent that is working on this commit or created it.
            on_commit = [entry.run_id for entry in same_agent if entry.run_id and entry.head_sha == event.head_sha]
            if turns.open_runs(connection, on_commit):
                return DeliveryDecision("own", f"{rule.agent} is at work on this commit")
            if turns.is_own_commit(connection, event.head_sha):
                used = sum(turns.is_own_commit(connection, entry.head_sha) for entry in same_agent)
                if used >= rule.own_commits:
                    text = f"the service pushed this commit (own_commits = {rule.own_commits})"
                    return DeliveryDecision("own", text)
        if event.kind == ISSUE and turns.open_runs(connection, [entry.run_id for entry in same_agent if entry.run_id]):
            return DeliveryDecision("refused", f"{rule.agent} is at work on this issue")
        reason = self._late()
        return DeliveryDecision("stale", reason) if reason else None

    def _refusal(self, rule: TriggerRule) -> DeliveryDecision | None:
        """The decision if the organization, its agent, the branch or a limit allows no run."""
        event = self.event
        connection = self.connection
        repository = self.repository
        owner = organizations.by_id(connection, self.subject.organization_id)
        if owner is None or not owner.active:
            return DeliveryDecision("refused", "the organization is not active")
        if agents.by_name(connection, owner.id, rule.agent) is None:
            return DeliveryDecision("refused", f"the agent {rule.agent} is not configured")
        if not event.is_fork and event.issue is None:
            default = event.default_branch or repositories.default_branch(connection, repository.url)
            is_protected = repositories.is_protected(event.head, default, repository.protected)
            if fault := f"the branch {event.head} is protected" if is_protected else branch_fault(event.head):
                return DeliveryDecision("refused", fault)
        most = self.settings.triggers.pull_request_runs_a_day
        if deliveries.started_since(connection, self.subject, self.now - DAY_MICROS) >= most:
            text = f"pull_request_runs_a_day: {plural(most, 'run')} for one {self._noun}"
            return DeliveryDecision("limited", text)
        limit = self.hour_limit()
        return DeliveryDecision("limited", limit) if limit else None

    @property
    def _noun(self) -> str:
        return "issue" if self.subject.is_issue else "pull request"

    def _late(self) -> str | None:
        only_closed = self.event.kind in {COMMENT, ISSUE}
        at = self.event.changed_at
        if at < deliveries.latest_change(self.connection, self.subject, only_closed=only_closed):
            return "a later change came first"
        # Older decisions are deleted, so a repetition of an older delivery would not be recognized.
        is_old = at < self.now - int(self.settings.retention.deliveries_days * DAY_MICROS)
        if is_old:
            return "older than the decisions that are kept (retention.deliveries_days)"
        return None

    def hour_limit(self) -> str | None:
        """Return the refusal if the repository reached its hourly number of runs, or None."""
        most = self.settings.triggers.repository_runs_an_hour
        hour_ago = self.now - DAY_MICROS // 24
        is_reached = deliveries.started_since(self.connection, self.subject, hour_ago, in_repository=True) >= most
        if is_reached:
            return f"repository_runs_an_hour: {plural(most, 'run')} for one repository"
        return None

    def _close(self) -> DeliveryDecision:
        """Decide on the closing of a pull request or an issue, which makes its runs pointless."""
        if reason := self._late():
            return DeliveryDecision("stale", reason)
        past = deliveries.acted_on(self.connection, self.subject)
        hides = self.event.cause == CONFIDENTIAL
        reason = f"{self._noun} {self.event.number} {'is confidential' if hides else 'was closed'}"
        if hides:
            run_ids = [entry.run_id for entry in past if entry.run_id]
            postings.withdraw_pull_requests(self.connection, run_ids, reason, self.now)
        count = self._end(past, reason, even_continued=hides)
        return DeliveryDecision(CLOSED, f"ended {plural(count, 'run')}")

    def _end(self, past: Sequence[DeliveryEntry], reason: str, *, even_continued: bool = False) -> int:
        """Cancel runs that deliveries started, unless a user continued them, and waiting ones; return how many."""
        connection = self.connection
        still_open = turns.open_runs(connection, [entry.run_id for entry in past if entry.run_id])
        count = 0
        for entry in past:
            if entry.result == WAITING:
                deliveries.conclude(connection, entry.id, SUPERSEDED, reason)
                count += 1
            elif entry.run_id in still_open and (
                even_continued or turns.of(connection, entry.run_id)[-1].caller == turns.WEBHOOK
            ):
                turns.cancel(connection, entry.run_id, f"{CANCELLED}: {reason}", self.now)
                _audit(connection, entry, "run.cancel", entry.run_id, reason, self.now)
                count += 1
        return count

    def note(self, decision: DeliveryDecision, index: int = -1) -> DeliveryDecision:
        """Record a decision, made by the rule with an index or, at -1, by none; return it."""
        event = self.event
        agent = None if index < 0 else self.repository.triggers[index].agent
        entry = DeliveryEntry(
            id=f"dlv_{ids.ulid(self.now)}",
            **asdict(self.subject),
            delivery=self.delivery.id,
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
            received_at=self.now,
        )
        deliveries.record(self.connection, entry)
        if decision.result in {STARTED, WAITING}:
            action = "trigger.start" if decision.run_id else "trigger.wait"
            target = decision.run_id or entry.id
            _audit(self.connection, entry, action, target, f"{agent} on {event.kind}", self.now)
        return decision

    def request(self, rule: TriggerRule) -> TurnRequest:
        event = self.event
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
            mark = PLATFORMS[self.subject.platform].mark
            parts.append(f"(pull request {mark}{event.number}, commit {event.head_sha})")
        else:
            text = f"{event.issue.title}\n\n{event.issue.text}".strip()
            inputs["issue"] = about | asdict(event.issue)
            parts += [f"(issue #{event.number})", ISSUE_TEXT, f"{fence_of(text)}\n{text}\n{fence_of(text)}"]
        return TurnRequest(
            organization_id=self.subject.organization_id,
            agent=rule.agent,
            platform=self.subject.platform,
            path=self.repository.path,
            url=self.repository.url,
            branch=event.ref.removeprefix("refs/") if event.is_fork else event.head or None,
            instructions="\n\n".join(parts),
            inputs=inputs,
            metadata={"trigger": {"event": event.kind, "delivery": self.delivery.id} | about},
            trace_parent=self.delivery.trace_parent,
            caller=f"{SCHEDULE} {rule.schedule}" if event.kind == SCHEDULE else turns.WEBHOOK,
            head_ref=event.ref if event.is_fork else None,
            head_sha=event.head_sha if event.is_fork else None,
            is_restricted=event.is_fork and rule.forks == "without_secrets",
        )


def approve(connection: sa.Connection, entry_id: str, active_runs: int, approver: str, now: Micros) -> Run:
    """Start a waiting run; the operator takes responsibility for anything that the commit makes the agent do.

    Raises:
        ApprovalError: It does not wait, or cannot start now.
    """
    entry = deliveries.by_id(connection, entry_id)
    if entry is None or entry.request is None:
        state = "is not there"
        if entry is not None:
            state = f"does not wait: {entry.result} {entry.detail}".rstrip()
        raise ApprovalError(f"{entry_id} {state}")
    decision = _start(connection, TurnRequest(**entry.request), active_runs, now)
    run = runs.by_id(connection, decision.run_id or "")
    if run is None or not deliveries.conclude(connection, entry_id, STARTED, f"approved by {approver}", run.id):
        raise ApprovalError(f"{entry_id} cannot start: {decision.detail or 'it does not wait any longer'}")
    return run


def _start(connection: sa.Connection, request: TurnRequest, active_runs: int, now: Micros) -> DeliveryDecision:
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


def _audit(connection: sa.Connection, entry: DeliveryEntry, action: str, target: str, detail: str, now: Micros) -> None:
    actor = f"{SCHEDULE if entry.event == SCHEDULE else turns.WEBHOOK}:{entry.platform}:{entry.delivery[:64]}"
    owner = entry.organization_id
    audit.record(connection, actor, action, now, target=target, organization_id=owner, detail=detail)
