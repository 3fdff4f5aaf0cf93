"""A rule: its trigger, its action and its limits."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Literal

from app.config.settings import Between, OneOrMore, QuietHours
from app.times import MAX_DURATION

Overlap = Literal["skip", "queue", "allow"]

Count = Annotated[int, Between(1, 10_000)]


@dataclass(frozen=True, slots=True)
class OnSchedule:
    """At fixed times of a time zone's clock."""

    cron: str = field(metadata={"key": "schedule"})
    """Five fields: minute, hour, day of the month, month, day of the week."""
    timezone: str = "UTC"
    """A name of the IANA database."""
    jitter: timedelta = timedelta(0)
    """Each time is moved later by up to this much, always by the same."""


@dataclass(frozen=True, slots=True)
class OnInterval:
    """At a fixed interval, counted from when the rule was first seen."""

    every: Annotated[timedelta, Between(timedelta(minutes=1), MAX_DURATION)]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which runs a trigger concerns: globs, of which any may match; empty means all."""

    repositories: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Metadata that the run must have, all of it: each name with globs of which any may match its value."""


@dataclass(frozen=True, slots=True)
class OnRun:
    """A run changes its status."""

    to: str = field(metadata={"key": "run"})
    """The new status."""
    was: str | None = field(default=None, metadata={"key": "from"})
    """The status before; None: any, and runs first seen with the new one."""
    scope: Scope = field(default=Scope(), metadata={"key": None})


@dataclass(frozen=True, slots=True)
class OnStuck:
    """A run takes far longer than its repository's runs do."""

    scope: Scope = Scope()


@dataclass(frozen=True, slots=True)
class OnHealth:
    """A code host goes bad, or is well again."""

    health: Literal["not ok", "recovered"] = "not ok"
    lasting: timedelta = field(default=timedelta(0), metadata={"key": "for"})
    """How long the state must have lasted."""
    platforms: OneOrMore = field(default=(), metadata={"key": "platform"})
    """Globs for the platforms' names; empty means all."""

    @property
    def is_over(self) -> bool:
        """False: it goes bad. True: it is well again."""
        return self.health == "recovered"


@dataclass(frozen=True, slots=True)
class OnUnknownAction:
    """The outcome of a write stays unknown."""

    older: timedelta = timedelta(0)
    action: Literal["unknown"] = "unknown"


Trigger = OnSchedule | OnInterval | OnRun | OnStuck | OnHealth | OnUnknownAction


@dataclass(frozen=True, slots=True)
class DoStart:
    """Start a run."""

    instructions: str = field(metadata={"key": "start"})
    repository: str
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class DoAgent:
    """Start a named agent."""

    agent: str
    repository: str
    branch: str | None = None
    inputs: tuple[tuple[str, str], ...] = field(default=(), metadata={"key": None})


@dataclass(frozen=True, slots=True)
class DoContinue:
    """Continue the run that set the rule off."""

    instructions: str = field(metadata={"key": "continue"})


@dataclass(frozen=True, slots=True)
class DoRetry:
    """Start the run that set the rule off again, with its own instructions as the ledger has them."""


@dataclass(frozen=True, slots=True)
class DoCancel:
    """Cancel the run that set the rule off, where the service offers that."""


@dataclass(frozen=True, slots=True)
class DoNotify:
    """Tell people."""

    route: str = field(metadata={"key": "notify"})
    """One of `[notify.routes]`, or `default` for the channels of `[notify]` itself."""
    title: str = ""
    """Empty: made from the rule's name and what set it off."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class DoCommand:
    """Run a program on this machine; no shell is involved, and its environment holds no token."""

    argv: tuple[str, ...] = field(metadata={"key": "command"})


Response = DoStart | DoAgent | DoContinue | DoRetry | DoCancel | DoNotify | DoCommand


@dataclass(frozen=True, slots=True)
class Limit:
    """How often a rule may act at most."""

    per_conversation: Count = 3
    """For one run, through all its turns and all that was made from it."""
    per_hour: Count = 20
    per_day: Count = 100


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[automations]]` table."""

    name: str
    """Its identity: a rule that is renamed is another one."""
    on: Trigger = field(metadata={"key": None})
    do: Response = field(metadata={"key": None})
    profile: str | None = None
    """None: every profile that is watched."""
    is_on: bool = field(default=True, metadata={"key": "enabled"})
    overlap: Overlap = "skip"
    """What to do while the run that it started last is still active."""
    catch_up: timedelta = timedelta(hours=1)
    """How late it may still act, once, for a missed time."""
    pause_after: Annotated[int, Between(0, 10_000)] = 5
    """Failures in a row after which it pauses itself; 0: never."""
    limit: Limit = field(default_factory=Limit)
    quiet: QuietHours | None = None
    """Hours of the local day in which it does nothing."""
    needs_approval: bool = field(default=False, metadata={"key": "approval"})
    """Whether a user has to approve its requests."""
    approval_expires: timedelta = timedelta(hours=24)


def fingerprint(rule: Rule) -> str:
    """A digest of the rule's definition."""
    return hashlib.sha256(repr(rule).encode()).hexdigest()


def fingerprint_of(rules: Iterable[Rule]) -> str:
    """A digest of a set of rules, in any order."""
    return hashlib.sha256("".join(sorted(map(fingerprint, rules))).encode()).hexdigest()
