"""Alerts: news for people, what was sent over each route, and messages not delivered yet."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct, field

Level = Literal["information", "warning", "error"]
MessagePhase = Literal["new", "again", "over"]
"""What a message says of a problem: it is new, lasts (`again`), or is over."""
Settled = Literal["told", "shown", "over", "muted", "expired"]
"""The end of an alert; `shown`: a console told it."""


class AlertSubject(Struct, frozen=True):
    """The subject of alerts."""

    group: str
    """An inbox item's key, such as `failed:acme/api`, or `rule:NAME`."""
    source: str
    """The automation that raises it; empty: Runwarden's own `[notify] on`."""
    route: str
    """The name of the route; `default`: the rules choose one."""
    level: Level
    title: str
    about: Mapping[str, str]
    """Facts by name, such as `repository`."""

    @property
    def kind(self) -> str:
        """What the alert is about: the part of `group` before its first colon."""
        return self.group.partition(":")[0]

    @property
    def batch(self) -> str:
        """Subjects with the same value may share a message."""
        return f"{self.source}:{self.kind}"

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys in the inbox: the group, and all of its kind in the repository."""
        return self.group, f"{self.kind}:{self.about.get('repository', '')}"


class Alert(AlertSubject, frozen=True, kw_only=True):
    """One event that people are to be told of."""

    key: str
    """Identifies the event: the same in every process, at any time."""
    body: str
    at: datetime
    entered_at: datetime | None = None
    """None: not entered yet."""
    after: tuple[str, ...] = ()
    """For the end of a state, the keys of its beginning: told only if one of them was. Empty: always told."""
    is_lasting: bool = False
    """It tells of a lasting state, not of an event, and is told even if it is late."""
    is_followed: bool = False
    """It concerns a followed run, and is never told together with others."""


class ToldProblem(AlertSubject, frozen=True, kw_only=True):
    """What a route was told of a problem that is not over."""

    first_at: datetime
    """When it was told first."""
    last_at: datetime
    """When it was told last."""
    newest_at: datetime
    """When the newest told alert happened."""
    count: int = 1
    """The number of alerts."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies a told problem: its group, its source and the route it was sent over."""
        return self.group, self.source, self.route


class Message(Struct, frozen=True):
    """A message to be sent over a route."""

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
    """A message that is being delivered; its number is in its text."""

    delivery_id: int
    message: Message
    made_at: datetime
    due_at: datetime
    attempts: int = 0
    outcome: str | None = None
    """`delivered`, `failed` or `expired`; None: still on its way."""
    error: str = ""
    origin: int | None = None
    """The failed delivery that this one replaces."""

    @property
    def number(self) -> int:
        """The number in its text: a fallback repeats that of the failed one."""
        return self.origin or self.delivery_id


class Plan(Struct, frozen=True):
    """The messages to send now, and the new state of alerts; applied as one step."""

    messages: tuple[Message, ...] = ()
    settled: Mapping[str, Settled] = field(default_factory=dict)
    """By the alert's key."""
    told: tuple[ToldProblem, ...] = ()
    """New or changed."""
    over: tuple[ToldProblem, ...] = ()
    unrouted: tuple[Alert, ...] = ()
    """No rule matches them."""
