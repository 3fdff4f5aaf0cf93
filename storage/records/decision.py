"""Decisions: how an automation handled each occurrence, and why."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, get_args

from msgspec import Struct, field

OpenOutcome = Literal["queued", "waiting", "approved", "acting"]
Outcome = Literal["history", "skipped", "limited", OpenOutcome, "done", "failed", "unknown", "interrupted", "expired"]
"""`history`: older than the rule. `queued` waits for the rule's last run, `waiting` for approval, `approved` for the
next look; `acting` is in progress. The rest is final. `unknown`: it may have been done, or not."""

OPEN_OUTCOMES: Final[frozenset[Outcome]] = frozenset(get_args(OpenOutcome))
ACTED_OUTCOMES: Final[frozenset[Outcome]] = frozenset({"acting", "done", "failed", "unknown", "interrupted"})
"""Outcomes that count towards a limit."""

WHEN_ENDED: Final = "[when ended] run.continue"
"""Stored like a rule's name: a continuation that waits until its run has ended."""
FINISHED_OUTCOMES: Final[tuple[Outcome, ...]] = ("done", "failed", "unknown")
BY_HAND: Final = "by "
"""The beginning of a manual pause's reason."""


class Occurrence(Struct, frozen=True):
    """An event that triggers a rule: a status, an incident, a point in time."""

    identity: str
    """Identifies the occurrence: the same in every process, at any time."""
    at: datetime
    conversation: str = ""
    """The conversation it belongs to, as its first run's id; empty: none yet."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Its placeholders' values, as received."""

    @property
    def cause(self) -> str:
        """What happened, in words; the facts are as received."""
        kind = self.identity.partition(":")[0]
        origin = {"asked": "by hand", "proposed": "by a program", "at": "schedule"}.get(kind, "")
        names = ("run.id", "run.status", "run.repository", "run.branch", "host.platform", "host.status", "action.id")
        about = " ".join(filter(None, (self.facts.get(name) for name in names)))
        if kind == "action":
            about = f"unknown outcome: {about}"
        return ": ".join(filter(None, (origin, about))) or self.identity


class Verdict(Struct, frozen=True):
    """The decision on an occurrence."""

    outcome: Outcome
    reason: str = ""
    """A sentence without a full stop; empty if the outcome says it all."""


class RuleHistory(Struct, frozen=True):
    """A rule's history, as far as it affects the next decision."""

    last_hour: int = 0
    last_day: int = 0
    in_conversation: int = 0
    active_run: str | None = None
    """The run that it started last, if that has not ended."""
    has_queued: bool = False
    paused: str | None = None
    """Why it is paused; None: it is not."""


AnswerWord = Literal["approved", "rejected"]


class Answer(Struct, frozen=True):
    """A person's answer to a decision that waited for approval."""

    word: AnswerWord
    by: str
    """The person on the machine, as `ann@desk`."""
    at: datetime

    @property
    def text(self) -> str:
        """The answer in words: `approved by ann@desk`."""
        return f"{self.word} by {self.by}"


class Decision(Struct, frozen=True):
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
    """The ledger's entry for the request."""
    result_id: str | None = None
    """The run that it made or continued."""
    request_json: str | None = None
    """The request as shown for approval."""
    answer: Answer | None = None
    """None: no person answered it."""

    @property
    def run_id(self) -> str:
        """The run that triggered it; empty: none did."""
        return self.occurrence.facts.get("run.id", "")

    @property
    def why(self) -> str:
        """Its reason, after who answered it."""
        answer = "" if self.answer is None else self.answer.text
        if answer in self.reason:
            return self.reason
        return "; ".join(filter(None, (answer, self.reason)))


class RuleState(Struct, frozen=True):
    """A rule's stored state: its definition's digest, its failures and its pause."""

    rule: str
    fingerprint: str
    """The digest of its definition: an edited rule does not act on earlier events."""
    since: datetime
    """When its present definition was first seen."""
    failures: int = 0
    paused: str | None = None
    """Why; None: it is not paused."""
    news_from: datetime | None = None
    """Anything that the service dated before this is history. None: the rule has not looked yet."""

    @property
    def is_new(self) -> bool:
        """Whether the rule has not looked yet."""
        return self.news_from is None
