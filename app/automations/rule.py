"""A rule: its trigger, its action with the placeholders in its texts, its limits, and the decision to act."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Struct, field

from app.engine.text import as_argument, fill
from app.engine.times import MAX_DURATION, span
from app.profiles.values import Between, OneOrMore, QuietHours
from storage.records import ActionKind
from storage.records.decision import Occurrence, RuleHistory, Verdict
from storage.records.results import Severity

Overlap = Literal["skip", "queue", "allow"]

UNLIMITED: Final = 10_000
Count = Annotated[int, Between(1, UNLIMITED)]


class OnSchedule(Struct, frozen=True):
    """A trigger at fixed times of a time zone's clock."""

    cron: str = field(name="schedule")
    """Five fields: minute, hour, day of the month, month, day of the week."""
    timezone: str = "UTC"
    jitter: timedelta = timedelta(0)
    """Each time is delayed by up to this much; the delay of a time never changes."""


class OnInterval(Struct, frozen=True):
    """A trigger at a fixed interval, counted from when the rule was first seen."""

    every: Annotated[timedelta, Between(timedelta(minutes=1), MAX_DURATION)]


class Scope(Struct, frozen=True):
    """The runs that a trigger applies to, as globs of which one must match; empty means all."""

    repositories: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Metadata that the run must have: each name, with globs of which one must match its value."""


class OnRun(Struct, frozen=True):
    """A run changes its status, or finishes with a finding or a cost."""

    NO_KEYS: ClassVar = ("scope",)
    to: str = field(default="", name="run")
    """The new status, or empty for any final one."""
    was: str | None = field(default=None, name="from")
    """The status before, or None for any, including runs first seen with the new status."""
    scope: Scope = Scope()
    finding: Severity | None = None
    """The least severity of a finding in its last turn."""
    budget: Annotated[float, Between(0.01, 1.0)] | None = None
    """The least share of its budget that the run used."""

    @property
    def needs_results(self) -> bool:
        """Whether the run's results have to be fetched from the service."""
        return self.finding is not None or self.budget is not None


class OnStuck(Struct, frozen=True):
    """A run takes far longer than usual in its repository."""

    scope: Scope = Scope()


class OnHealth(Struct, frozen=True):
    """A code host becomes unhealthy, or recovers."""

    health: Literal["not ok", "recovered"] = "not ok"
    lasting: timedelta = field(default=timedelta(0), name="for")
    platforms: OneOrMore = field(default=(), name="platform")
    """Globs for the platforms' names; empty means all."""


class OnUnknownAction(Struct, frozen=True):
    """The outcome of a write stays unknown."""

    older: timedelta = timedelta(0)
    action: Literal["unknown"] = "unknown"


class OnProposal(Struct, frozen=True):
    """A program proposes the write; no event triggers it."""


Trigger = OnSchedule | OnInterval | OnRun | OnStuck | OnHealth | OnUnknownAction | OnProposal


class DoStart(Struct, frozen=True):
    """Start a run."""

    instructions: str = field(name="start")
    repository: str
    branch: str | None = None


class DoAgent(Struct, frozen=True):
    """Start a named agent."""

    agent: str
    repository: str
    branch: str | None = None
    inputs: tuple[tuple[str, str], ...] = ()


class DoContinue(Struct, frozen=True):
    """Continue the run that triggered the rule."""

    instructions: str = field(name="continue")


class DoRetry(Struct, frozen=True):
    """Start the run that triggered the rule again, with the same instructions."""


class DoCancel(Struct, frozen=True):
    """Cancel the run that triggered the rule, if the service supports it."""


class DoNotify(Struct, frozen=True):
    """Send a notification."""

    route: str = field(name="notify")
    """One of `[notify.routes]`, or `default` for the channels of `[notify]` itself."""
    title: str = ""
    """If it is empty, it is derived from the rule's name and its trigger."""
    text: str = ""


class DoCommand(Struct, frozen=True):
    """Run a program on this machine, without a shell and without tokens in its environment."""

    argv: tuple[str, ...] = field(name="command")


class DoSend(Struct, frozen=True):
    """Send the request stored with the decision."""

    kind: ActionKind


Response = DoStart | DoAgent | DoContinue | DoRetry | DoCancel | DoNotify | DoCommand | DoSend


class Limit(Struct, frozen=True):
    """How often a rule may act."""

    per_conversation: Count = 3
    """The limit for one run, its turns, and the runs made from it."""
    per_hour: Count = 20
    per_day: Count = 100


NO_LIMIT: Final = Limit(UNLIMITED, UNLIMITED, UNLIMITED)


class Rule(Struct, frozen=True):
    """One `[[automations]]` table."""

    name: str
    """Identifies the rule: a renamed rule is a new one."""
    on: Trigger
    do: Response
    profile: str | None = None
    """None stands for every watched profile."""
    is_on: bool = field(default=True, name="enabled")
    overlap: Overlap = "skip"
    """The behaviour while the last run that it started is still active."""
    catch_up: timedelta = timedelta(hours=1)
    """How late it may still act; for several missed times it acts once."""
    pause_after: Annotated[int, Between(0, 10_000)] = 5
    """The number of failures in a row after which it pauses itself; 0: never."""
    limit: Limit = Limit()
    quiet: QuietHours | None = None
    needs_approval: bool = field(default=False, name="approval")
    approval_expires: timedelta = timedelta(hours=24)


def fingerprint(rule: Rule) -> str:
    return hashlib.sha256(repr(rule).encode()).hexdigest()


def fingerprint_of(rules: Iterable[Rule]) -> str:
    """A digest of several rules; their order does not matter."""
    return hashlib.sha256("".join(sorted(map(fingerprint, rules))).encode()).hexdigest()


_RUN: Final = ("run.id", "run.repository", "run.branch", "run.status", "run.was", "run.reason")
ALWAYS_KNOWN: Final = ("rule.name", "profile.name", "time", "date")
KNOWN: Final[Mapping[type, tuple[str, ...]]] = {
    OnRun: _RUN,
    OnStuck: _RUN,
    OnHealth: ("host.platform", "host.status"),
    OnUnknownAction: ("action.id", "action.kind", "action.subject"),
}
"""The placeholders available with a trigger, in addition to `ALWAYS_KNOWN`."""
_PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z_]*(?:\.[a-z_]+)?)\}")
"""Matches no braces of JSON or of a shell."""


def texts_of(do: Response) -> Iterator[str]:
    """All texts of a response that may contain placeholders."""
    match do:
        case DoStart(instructions, repository, branch):
            yield from filter(None, (instructions, repository, branch))
        case DoAgent(_, repository, branch, inputs):
            yield from filter(None, (repository, branch, *(value for _, value in inputs)))
        case DoContinue(instructions):
            yield instructions
        case DoNotify(_, title, text):
            yield from (title, text)
        case DoCommand(argv):
            yield from argv


def names_in(text: str) -> list[str]:
    """The names of all placeholders in a text, including unknown ones."""
    return [name for name in _PLACEHOLDER.findall(text) if "." in name or name in ALWAYS_KNOWN]


def filled_argument(argument: str, facts: Mapping[str, str]) -> str:
    """A program's argument with its placeholders filled; a value cannot turn it into an option or a file name."""
    text = fill(argument, facts)
    return as_argument(text) if _PLACEHOLDER.match(argument) else text


def decide(rule: Rule, occurrence: Occurrence, past: RuleHistory, now: datetime) -> Verdict:
    return next(_objections(rule, occurrence, past, now), Verdict("acting"))


def lasts(rule: Rule) -> bool:
    """Whether the trigger is a lasting state instead of an event; a state is checked again after quiet hours."""
    return isinstance(rule.on, OnStuck | OnHealth | OnUnknownAction)


def is_quiet(rule: Rule, now: datetime) -> bool:
    return rule.quiet is not None and rule.quiet.cover(now.astimezone().time())


def _objections(rule: Rule, occurrence: Occurrence, past: RuleHistory, now: datetime) -> Iterator[Verdict]:
    late = now - occurrence.at
    limit = rule.limit
    if past.paused is not None:
        yield Verdict("skipped", f"the rule is paused: {past.paused}")
    if late > rule.catch_up and not lasts(rule):
        allowed = span(rule.catch_up.total_seconds(), pads_hours=False)
        yield Verdict("skipped", f"{span(late.total_seconds())} late; catch_up is {allowed}")
    if is_quiet(rule, now):
        yield Verdict("skipped", "in quiet hours")
    for count, most, where, key in (
        (past.in_conversation, limit.per_conversation, "in this conversation", "per_conversation"),
        (past.last_hour, limit.per_hour, "in the last hour", "per_hour"),
        (past.last_day, limit.per_day, "in the last 24 hours", "per_day"),
    ):
        if count >= most and most < UNLIMITED:
            yield Verdict("limited", f"{count} {where}: limit.{key}")
    if past.active_run is not None and rule.overlap == "skip":
        yield Verdict("skipped", f"its run {past.active_run} is still active; overlap is skip")
    if past.active_run is not None and rule.overlap == "queue":
        if past.has_queued:
            yield Verdict("skipped", "one is queued already; overlap is queue")
        yield Verdict("queued", f"waits for its run {past.active_run}")
    if rule.needs_approval:
        yield Verdict("waiting", f"waits for approval until {now + rule.approval_expires:%Y-%m-%d %H:%M} UTC")
