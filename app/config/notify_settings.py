"""The settings of `[notify]`: its routes and its rules."""

import re
from dataclasses import dataclass
from datetime import time, timedelta
from pathlib import Path
from typing import Final, Literal, Self

from storage.records.alert import Level

Markup = Literal["text", "markdown", "html"]
_QUIET_HOURS: Final = r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A part of the day, which goes over midnight if its end is earlier than its start."""

    start: time
    """Inclusive."""
    end: time
    """Exclusive."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Hours as people write them: `22:00-07:00`.

        Raises:
            ValueError: The text is not such hours; the message shows an example.
        """
        found = re.fullmatch(_QUIET_HOURS, text)
        try:
            start, end = (time(int(found[n]), int(found[n + 1])) for n in (1, 3)) if found else (None, None)
        except ValueError:
            start = end = None
        if start is None or end is None or start == end:
            raise ValueError(f"{text!r} are not valid hours: write them as in 22:00-07:00")
        return cls(start, end)

    def cover(self, local: time) -> bool:
        """Whether this time of the day is quiet."""
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end


@dataclass(frozen=True, slots=True)
class NotifyRoute:
    """A named set of channels for notifications."""

    name: str
    command: tuple[str, ...] = ()
    """As `NotifySettings.command`."""
    desktop: bool = False
    urls_env: str | None = None
    """The environment variable that holds Apprise's addresses, with blanks between them."""
    urls_file: Path | None = None
    """The file that holds them, one a line; its owner alone may read it."""
    title: str = ""
    """The title, with placeholders; empty: the notification's own. So is `text`."""
    text: str = ""
    markup: Markup = "text"
    """The markup of title and text, for Apprise."""
    repeat: timedelta | None = None
    """How often the notification of an unacknowledged problem is repeated. None: never."""
    give_up: timedelta = timedelta(days=1)
    """After how long nothing is repeated or delivered any longer."""
    fallback: str = ""
    """The route that is used when this one fails. Empty: the channels of `[notify]`, if it has any."""


@dataclass(frozen=True, slots=True)
class NotifyRule:
    """A row of the routing table: matching alerts go over its routes; the first match counts."""

    routes: tuple[str, ...]
    severity: Level = "information"
    """The lowest severity that matches."""
    kinds: tuple[str, ...] = ()
    """Beginnings of inbox keys, such as `failed` or `host`. Empty: all."""
    repositories: tuple[str, ...] = ()
    """Globs of repositories. Empty: all, and alerts that belong to no repository."""
    hours: QuietHours | None = None
    """The hours of the local day in which the rule holds. None: always."""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """The subjects and channels of notifications."""

    on: tuple[str, ...] = ("pinned", "failed", "stuck", "health", "link", "automations")
    """`pinned`: whatever a followed run does. `stuck`, `health` and `link`, the token included. `automations` that wait
    for approval, reach a limit or pause themselves. Any other word is the status of a run."""
    bell: bool = True
    desktop: bool = False
    command: tuple[str, ...] = ()
    """An argument list with placeholders such as `{title}`, see `app.config.sections`; no shell. Empty: none."""
    quiet: QuietHours | None = None
    """When bell, desktop and command are off. None: never."""
    hold_s: float = 60.0
    """How long a problem must last before it is reported, and a recovery before it counts."""
    routes: tuple[NotifyRoute, ...] = ()
    """Named ways for automations and `rules`."""
    rules: tuple[NotifyRule, ...] = ()
    """The routing table; empty: the channels above take everything."""
    group_wait: timedelta = timedelta(seconds=30)
    """How long a bot collects alerts of a group before its first message."""
    group_interval: timedelta = timedelta(minutes=5)
    """The shortest time between two messages of a group."""
    heartbeat_env: str = ""
    """The environment variable with the address that is asked for while all is well. Empty: none."""
    heartbeat_every: timedelta = timedelta(minutes=1)

    @property
    def silent(self) -> frozenset[str]:
        """The routes without a working channel."""
        named = (self.route("default"), *self.routes)
        return frozenset(
            route.name for route in named if not (route.desktop or route.command or route.urls_env or route.urls_file)
        )

    def route(self, name: str) -> NotifyRoute:
        """The route of this name; `default`, or a missing one, is made of the channels above."""
        own = NotifyRoute("default", self.command, self.desktop)
        return next((route for route in self.routes if route.name == name), own)
