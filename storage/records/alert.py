"""Alerts, the problems that each route has reported, and messages on their way."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct, field

Level = Literal["information", "warning", "error"]
MessagePhase = Literal["new", "again", "over"]
"""Whether a message reports a new problem, reminds of a lasting one (`again`), or says that it is over."""
Settled = Literal["notified", "shown", "over", "muted", "expired"]
"""How an alert was settled. `notified`: messages for its routes were made, `shown`: a console showed it."""


class AlertSubject(Struct, frozen=True):
    """The facts that an alert and its problem share."""

    group: str
    """An inbox item's key, such as `failed:acme/api`, or `rule:NAME`."""
    source: str
    """The automation that raised it; empty: raised because of `[notify] on`."""
    route: str
    """The name of a route; `default`: `[[notify.rules]]` choose one."""
    level: Level
    title: str
    about: Mapping[str, str]
    """Facts by name, such as `repository`."""

    @property
    def kind(self) -> str:
        """The kind of subject: the part of `group` before its first colon."""
        return self.group.partition(":")[0]

    @property
    def batch(self) -> str:
        """Subjects with the same value may share a message. Code hosts do not, because their times differ."""
        shared = f"{self.group.partition(':')[2]}:host" if self.kind == "host" else self.kind
        return f"{self.source}:{shared}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The inbox keys that cover it: its group, and its kind within the repository."""
        return self.group, f"{self.kind}:{self.about.get('repository', '')}"


class Alert(AlertSubject, frozen=True, kw_only=True):
    """One event to notify about."""

    key: str
    """Identifies the event; the same in every process at any time."""
    body: str
    at: datetime
    entered_at: datetime | None = None
    """When it was stored; None: not yet."""
    after: tuple[str, ...] = ()
    """If it says that a state is over: the keys of the alerts of its start, one of which must have been reported."""
    is_lasting: bool = False
    """Whether it reports a lasting state instead of an event; if so, it is sent even when it is late."""
    is_followed: bool = False
    """Whether it is about a followed run; if so, it is never combined with other alerts."""


class ReportedProblem(AlertSubject, frozen=True, kw_only=True):
    """An unresolved problem that a route has reported."""

    first_at: datetime
    last_at: datetime
    newest_at: datetime
    """When the newest reported alert happened."""
    count: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.source, self.route


class Message(Struct, frozen=True):
    """A message to send over a route."""

    route: str
    batch: str
    phase: MessagePhase
    level: Level
    title: str
    body: str
    groups: tuple[str, ...]
    about: Mapping[str, str] = field(default_factory=dict)
    count: int = 1


class Delivery(Struct, frozen=True):
    """A message on its way. Its text contains its number."""

    delivery_id: int
    message: Message
    made_at: datetime
    attempts: int = 0
    outcome: str | None = None
    """`delivered`, `failed` or `expired`; None: still on its way."""
    error: str = ""
    origin: int | None = None
    """The failed delivery that this one replaces."""

    @property
    def number(self) -> int:
        """The number in its text; a fallback repeats the number of the failed delivery."""
        return self.origin or self.delivery_id


class Plan(Struct, frozen=True):
    """The messages to send now and the new state of alerts, applied in one step."""

    messages: tuple[Message, ...] = ()
    settled: Mapping[str, Settled] = field(default_factory=dict)
    reported: tuple[ReportedProblem, ...] = ()
    """New and changed problems."""
    over: tuple[ReportedProblem, ...] = ()
    unrouted: tuple[Alert, ...] = ()
