"""A rule: its trigger, its action and its limits."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from app.config.settings import QuietHours

Overlap = Literal["skip", "queue", "allow"]

DEFAULT_CATCH_UP: Final = timedelta(hours=1)
DEFAULT_PAUSE_AFTER: Final = 5
APPROVAL_EXPIRES: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class OnSchedule:
    """At fixed times of a time zone's clock."""

    cron: str
    """Five fields: minute, hour, day of the month, month, day of the week."""
    timezone: str
    """A name of the IANA database."""
    jitter: timedelta = timedelta(0)
    """Each time is moved later by up to this much, always by the same."""


@dataclass(frozen=True, slots=True)
class OnInterval:
    """At a fixed interval, counted from when the rule was first seen."""

    every: timedelta


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

    to: str
    """The new status."""
    was: str | None = None
    """The status before; None: any, and runs first seen with the new one."""
    scope: Scope = Scope()


@dataclass(frozen=True, slots=True)
class OnStuck:
    """A run takes far longer than its repository's runs do."""

    scope: Scope = Scope()


@dataclass(frozen=True, slots=True)
class OnHealth:
    """A code host goes bad, or is well again."""

    is_over: bool = False
    """False: it goes bad. True: it is well again."""
    lasting: timedelta = timedelta(0)
    """How long the state must have lasted."""
    platforms: tuple[str, ...] = ()
    """Globs for the platforms' names; empty means all."""


@dataclass(frozen=True, slots=True)
class OnUnknownAction:
    """The outcome of a write stays unknown."""

    older: timedelta


Trigger = OnSchedule | OnInterval | OnRun | OnStuck | OnHealth | OnUnknownAction


@dataclass(frozen=True, slots=True)
class DoStart:
    """Start a run."""

    instructions: str
    repository: str
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class DoAgent:
    """Start a named agent."""

    agent: str
    repository: str
    branch: str | None = None
    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DoContinue:
    """Continue the run that set the rule off."""

    instructions: str


@dataclass(frozen=True, slots=True)
class DoRetry:
    """Start the run that set the rule off again, with its own instructions as the ledger has them."""


@dataclass(frozen=True, slots=True)
class DoCancel:
    """Cancel the run that set the rule off, where the service offers that."""


@dataclass(frozen=True, slots=True)
class DoNotify:
    """Tell people."""

    route: str
    """One of `[notify.routes]`, or `default` for the channels of `[notify]` itself."""
    title: str = ""
    """Empty: made from the rule's name and what set it off."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class DoCommand:
    """Run a program on this machine; no shell is involved, and its environment holds no token."""

    argv: tuple[str, ...]


Response = DoStart | DoAgent | DoContinue | DoRetry | DoCancel | DoNotify | DoCommand


@dataclass(frozen=True, slots=True)
class Limit:
    """How often a rule may act at most."""

    per_conversation: int = 3
    """For one run, through all its turns and all that was made from it."""
    per_hour: int = 20
    per_day: int = 100


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[automations]]` table."""

    name: str
    """Its identity: a rule that is renamed is another one."""
    on: Trigger
    do: Response
    profile: str | None = None
    """None: every profile that is watched."""
    is_on: bool = True
    overlap: Overlap = "skip"
    """What to do while the run that it started last is still active."""
    catch_up: timedelta = DEFAULT_CATCH_UP
    """How late it may still act, once, for a missed time."""
    pause_after: int = DEFAULT_PAUSE_AFTER
    """Failures in a row after which it pauses itself; 0: never."""
    limit: Limit = field(default_factory=Limit)
    quiet: QuietHours | None = None
    """Hours of the local day in which it does nothing."""
    needs_approval: bool = False
    """Whether a user has to approve its requests."""
    approval_expires: timedelta = APPROVAL_EXPIRES


def fingerprint(rule: Rule) -> str:
    """A digest of the rule's definition."""
    return hashlib.sha256(repr(rule).encode()).hexdigest()


def fingerprint_of(rules: Iterable[Rule]) -> str:
    """A digest of a set of rules, in any order."""
    return hashlib.sha256("".join(sorted(map(fingerprint, rules))).encode()).hexdigest()
