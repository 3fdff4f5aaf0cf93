"""What happened between this machine and the service: writes from the ledger, polls from the cache."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from storage.records.link import Subject

T = TypeVar("T")

ANSWERED = "answered"
"""A poll's outcome: the service gave what was asked for."""
FAILED = "failed"
"""A poll's outcome: it did not, whatever the reason."""


@dataclass(frozen=True, slots=True)
class PollSpan:
    """Polls of one subject that went alike, one after the other without a gap."""

    span_id: int
    """Grows with time."""
    subject: Subject
    first_at: datetime
    last_at: datetime
    polls: int
    error_kind: str | None = None
    """None: they were answered. Otherwise an `ApiError.kind`."""
    error_message: str | None = None
    """Of the last of them."""
    http_status: int | None = None

    @property
    def kind(self) -> str:
        """As a filter names it."""
        return f"poll.{self.subject}"

    @property
    def outcome(self) -> str:
        """As a filter names it."""
        return ANSWERED if self.error_kind is None else FAILED


@dataclass(frozen=True, slots=True)
class ActivityFilter:
    """All conditions hold together; an empty one excludes nothing."""

    kinds: tuple[str, ...] = ()
    """`ActionKind`s, and `poll.` with a subject."""
    outcomes: tuple[str, ...] = ()
    """`ActionState`s, `answered` and `failed`."""
    search: str = ""
    """Words that must all occur, in any case."""
    since: datetime | None = None
    """Inclusive: what began or ended at or after it."""
    is_open: bool = False
    """Only writes that still owe their outcome."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that must all occur, folded."""
        return tuple(self.search.casefold().split())


Tally = Mapping[tuple[str, str], int]
"""How many there are of each kind and outcome."""


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The newest that a filter lets through, and how many there are besides."""

    newest: tuple[T, ...] = ()
    matching: int = 0
    """How many the filter lets through, the newest among them."""
    tally: Tally = field(default_factory=dict)
    """Of everything there is, whatever the filter says."""
