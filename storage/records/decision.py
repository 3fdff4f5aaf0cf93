"""Decisions: what an automation made of each thing that set it off, and why."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Final, Literal

from storage.lazy_dataclass import dataclass

Outcome = Literal[
    "history",
    "skipped",
    "limited",
    "queued",
    "waiting",
    "approved",
    "acting",
    "done",
    "failed",
    "unknown",
    "interrupted",
    "expired",
]
"""`history`: it was so before the rule was there. `queued` waits for the rule's last run, `waiting` for a person,
`approved` for the next look; `acting` is in progress; the rest is final. `unknown`: it may have been done, or not."""

OPEN_OUTCOMES: Final[frozenset[Outcome]] = frozenset({"queued", "waiting", "approved", "acting"})
ACTED_OUTCOMES: Final[frozenset[Outcome]] = frozenset({"acting", "done", "failed", "unknown", "interrupted"})
"""Those that count towards a limit."""

FINISHED_OUTCOMES: Final[tuple[Outcome, ...]] = ("done", "failed", "unknown")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that sets a rule off: a status, an incident, a point in time."""

    identity: str
    """The same however often, and by whichever process, it is noticed."""
    at: datetime
    """When it happened."""
    conversation: str = ""
    """The conversation it belongs to, as its first run's id; empty: none yet."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Its placeholders' values, as received."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is made of an occurrence."""

    outcome: Outcome
    reason: str = ""
    """A sentence without a full stop; empty where the outcome says it all."""


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """What a rule did before, as far as it bears on what it does next."""

    last_hour: int = 0
    last_day: int = 0
    in_conversation: int = 0
    active_run: str | None = None
    """The run that it started last, where that has not ended."""
    has_queued: bool = False
    paused: str | None = None
    """Why it is paused; None: it is not."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the journal."""

    decision_id: int
    rule: str
    occurrence: Occurrence
    decided_at: datetime
    outcome: Outcome
    reason: str
    settled_at: datetime | None = None
    """None: still open."""
    action_id: str | None = None
    """The ledger's entry for what was sent."""
    result_id: str | None = None
    """The run that it made or continued."""
    request_json: str | None = None
    """Of one that waits for approval: what would be sent, as it was shown."""


BY_HAND: Final = "by "
"""How the reason of a pause begins that a person asked for."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """What is remembered of a rule between two starts."""

    rule: str
    fingerprint: str
    """Of its definition: an edited rule looks forward only."""
    since: datetime
    """When it was first seen as it is now."""
    failures: int = 0
    """In a row."""
    paused: str | None = None
    """Why; None: it is not paused."""
    is_new: bool = False
    """It has not looked yet: what it finds first was there before it."""
