"""The inbox: what happened and is not dealt with yet."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

from storage.lazy_dataclass import dataclass

Kind = Literal["host", "failed", "unknown", "approval", "stuck", "paused", "limited", "bot", "undelivered", "ended"]
Severity = Literal["critical", "decide", "look"]
SEVERITIES: Final[Mapping[Kind, Severity]] = {
    "host": "critical",
    "failed": "critical",
    "undelivered": "critical",
    "unknown": "decide",
    "approval": "decide",
    "stuck": "look",
    "paused": "look",
    "limited": "look",
    "bot": "look",
    "ended": "look",
}
"""The most severe first: what is broken, what waits for a decision, what is good to know."""
NO_TIME: Final = datetime.fromtimestamp(0, UTC)
"""Of what has no readable time, and of what never was."""
_ORDER: Final = tuple(dict.fromkeys(SEVERITIES.values()))


@dataclass(frozen=True, slots=True)
class Mark:
    """What a person did with an item."""

    done_until: datetime | None = None
    """Dealt with up to here: only what came later brings it back."""
    snoozed_until: datetime | None = None
    is_muted: bool = False
    """It does not come back."""
    seen_until: datetime | None = None
    """What was there when it was snoozed; what came later brings it back at once. None: nothing does."""

    def is_done(self, at: datetime) -> bool:
        """Whether what happened then is dealt with."""
        return self.done_until is not None and at <= self.done_until

    def hides(self, at: datetime, now: datetime) -> bool:
        """Whether what happened then is put off now, or for good."""
        is_seen = self.seen_until is None or at <= self.seen_until
        return self.is_muted or (is_seen and self.snoozed_until is not None and now < self.snoozed_until)


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """One thing that happened."""

    key: str
    """What marks are kept under."""
    at: datetime
    run_id: str = ""
    branch_name: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something that a person should look at; what has one cause is one item."""

    key: str
    """The same for as long as it is the same thing."""
    kind: Kind
    title: str
    at: datetime
    """The newest of what happened."""
    count: int = 1
    cure: str = ""
    """What to do about it, as a command."""
    subject: str = ""
    """What it is about: a code host, an action, a decision, an automation, a route."""
    group: str = ""
    """What all causes in its repository are marked under."""
    entries: tuple[InboxEntry, ...] = ()
    """What happened, newest first; of very many the newest."""
    newest: tuple[InboxEntry, ...] = ()
    """The newest entry under each key: what marks the whole item."""
    back: str = ""
    """Why it is here again, after it was put away; empty: it was not."""
    is_old: bool = False
    """The newest of it happened more than a day ago."""

    @property
    def severity(self) -> Severity:
        """How pressing it is: what broke long ago does not stand beside what burns now; a bad host still burns."""
        severity = SEVERITIES[self.kind]
        return "look" if self.is_old and severity == "critical" and self.kind != "host" else severity

    @property
    def rank(self) -> int:
        """The place of its severity, the most severe first."""
        return _ORDER.index(self.severity)
