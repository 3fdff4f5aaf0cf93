"""The inbox: events that wait for attention."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import Struct

InboxKind = Literal[
    "host", "failed", "unknown", "approval", "question", "stuck", "paused", "limited", "bot", "undelivered", "ended"
]
InboxSeverity = Literal["critical", "decide", "look"]
SEVERITIES: Final[Mapping[InboxKind, InboxSeverity]] = {
    **dict.fromkeys(("host", "failed", "undelivered"), "critical"),
    **dict.fromkeys(("unknown", "approval", "question"), "decide"),
    **dict.fromkeys(("stuck", "paused", "limited", "bot", "ended"), "look"),
}
"""The most severe first: failures, decisions to make, things to know."""
RETRIED: Final[frozenset[InboxKind]] = frozenset({"host", "failed"})
NO_TIME: Final = datetime.fromtimestamp(0, UTC)
"""The time of events without a readable one."""
_ORDER: Final = tuple(dict.fromkeys(SEVERITIES.values()))


class Mark(Struct, frozen=True):
    """A user's decision on an item."""

    done_until: datetime | None = None
    """Done up to here: only later events bring it back."""
    snoozed_until: datetime | None = None
    is_muted: bool = False
    """It does not come back."""
    seen_until: datetime | None = None
    """The last event when it was snoozed; later ones bring it back at once. None: none does."""

    def is_done(self, at: datetime) -> bool:
        return self.done_until is not None and at <= self.done_until

    def hides(self, at: datetime, now: datetime) -> bool:
        """Whether an event of that time is hidden now, or permanently."""
        is_seen = self.seen_until is None or at <= self.seen_until
        return self.is_muted or (is_seen and self.snoozed_until is not None and now < self.snoozed_until)


class InboxEntry(Struct, frozen=True):
    """One event of an inbox item."""

    key: str
    """The key of its marks."""
    at: datetime
    group: str = ""
    """The key of marks on all such events in its repository or on its code host, as `notify ack` sets them."""
    run_id: str = ""
    about: str = ""
    """The run's repository and branch, or the request to approve."""
    status: str = ""
    decision_id: int | None = None


class InboxItem(Struct, frozen=True):
    """An item that needs attention; events with one cause are one item."""

    key: str
    """The same for as long as the item exists."""
    kind: InboxKind
    title: str
    at: datetime
    """The time of the newest event."""
    count: int = 1
    fix: str = ""
    """A command that helps."""
    choices: tuple[str, ...] = ()
    subject: str = ""
    """Its subject: a code host, an action, an automation, a route."""
    entries: tuple[InboxEntry, ...] = ()
    """The events that are not done, newest first."""
    back: str = ""
    """Why it is back after it was put away; empty: it was not."""
    is_old: bool = False
    """The newest event is more than a day old, and the problem does not last."""

    @property
    def severity(self) -> InboxSeverity:
        """Its urgency: old failures rank below new ones."""
        severity = SEVERITIES[self.kind]
        return "look" if self.is_old and severity == "critical" else severity

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs of its events, newest first."""
        return tuple(entry.run_id for entry in self.entries if entry.run_id)

    @property
    def rank(self) -> int:
        """The rank of its severity, the most severe first."""
        return _ORDER.index(self.severity)
