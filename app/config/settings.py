"""The settings as frozen values; a field's default here is the program's default."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from app.config.token import TokenSource
from storage.base_error import RunwardenError
from storage.records.alert import Level
from storage.records.query import RunSort

if TYPE_CHECKING:
    from app.rules.rule import Rule

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
    """An argument list with placeholders such as `{title}`, see `app.config.load`; no shell. Empty: none."""
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


ENVIRONMENT_PROFILE: Final = "environment"
"""The profile defined by RUNWARDEN_BASE_URL and RUNWARDEN_TOKEN."""


class ConfigError(RunwardenError):
    """The configuration cannot be used; `str()` names file, line, key, what is wrong and the cure."""

    kind: ClassVar[str] = "config"

    def __init__(
        self, message: str, *, cure: str, file: Path | None = None, key: str | None = None, line: int | None = None
    ) -> None:
        self.file = file
        """None: the mistake is not in a file (the environment, or nothing is configured)."""
        self.key = key
        """Dotted, as in `profiles.acme.base_url`."""
        self.line = line
        """Counted from 1; None: it concerns no single line."""
        self.message = message
        self.cure = cure
        location = "" if file is None else f"{file}{f':{line}' if line is not None else ''}: "
        super().__init__(f"{location}{f'{key}: ' if key else ''}{message} {cure}")


@dataclass(frozen=True, slots=True)
class PollSettings:
    """How often the service is polled, and for how many runs."""

    runs_s: float = 10.0
    """Seconds between polls of the runs."""
    health_s: float = 30.0
    """Seconds between polls of the code hosts' health."""
    deadline_s: float = 20.0
    """Seconds until one request must be answered in full."""
    page_size: int = 100
    """Runs per page, 1 to 100 (spec 8)."""
    first_runs: int = 1_000
    """How many runs the first sync fetches."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How much of the service's history is fetched in the background, and kept."""

    days: float = 30.0
    """How many days before the newest run are fetched."""
    runs: int = 100_000
    """The maximum number of runs that are fetched."""
    keep_days: float = 400.0
    """Days after their creation for which runs that have ended are kept. 0: for ever."""
    max_mb: int = 2_000
    """Megabytes beyond which the oldest runs that have ended are dropped. 0: no limit."""
    confirmed_for: ClassVar[timedelta] = timedelta(days=7)
    """How long a run counts as live after the service confirmed it."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How the console looks and what it links to."""

    theme: str = "runwarden"
    run_url: str = ""
    """A web address with `{run_id}`, `{repository}` or `{branch}` in it; empty: runs are not opened in a browser."""
    health_ok: tuple[str, ...] = ("ok", "healthy", "connected")
    """Statuses of a healthy code host, in lower case; the spec names none."""
    send_cap: int = 25
    """Maximum number of runs that one instruction may go to."""
    mouse: bool = True
    """False: leave the mouse to the terminal, for selecting text."""
    tour: bool = False
    """Show a newcomer around, in a line above the keys."""


@dataclass(frozen=True, slots=True)
class RepositoryAddress:
    """The address of repositories whose names match."""

    pattern: str
    """In lower case and with the platform: `github:acme/*`."""
    address: str
    """With placeholders such as `{path}`, see `app.config.repositories`; a local path is absolute."""


@dataclass(frozen=True, slots=True)
class ResultsSettings:
    """How the results of a run are found and kept."""

    reviews: tuple[str, ...] = ("reviews/*.md",)
    """Patterns of the Markdown files that are a run's review."""
    mirrors_mb: int = 2_000
    """Megabytes of fetched repositories beyond which those that were used least recently are dropped."""


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """A view of the runs: a tab that sets the query and the order."""

    name: str
    query: str
    """A valid line of the query language."""
    sort: RunSort | None = None
    """None: keep the table's order."""
    group: str | None = None
    """The grouping; empty: none. None: unchanged."""


@dataclass(frozen=True, slots=True)
class UserCommand:
    """A program of the user's own, offered in the palette."""

    name: str
    argv: tuple[str, ...]
    """With placeholders such as `{run_id}`, see `app.config.load`; no shell is involved."""
    key: str | None = None
    """None: in the palette only."""
    confirm: bool = False
    """Whether to show it in full and ask before running it."""
    terminal: bool = False
    """Whether it gets the terminal, as an editor or a pager needs. False: it runs beside the console."""


@dataclass(frozen=True, slots=True)
class Template:
    """Instructions to start a form with."""

    name: str
    instructions: str


@dataclass(frozen=True, slots=True)
class Profile:
    """One service, seen with one token."""

    name: str
    base_url: str
    """Normal form, see `app.config.address.base_address`."""
    token: TokenSource
    read_only: bool = False
    """Whether writes are refused."""
    poll: PollSettings = field(default_factory=PollSettings)
    """`[poll]`, with this profile's own `[profiles.NAME.poll]` on top."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration."""

    default_profile: str | None = None
    """None: the environment's profile, or the only one there is."""
    data_dir: Path | None = None
    """None: the platform's data folder of the user."""
    poll: PollSettings = field(default_factory=PollSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    views: tuple[ViewSettings, ...] = ()
    """Views of the runs, in the order of their tabs."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys by action id, replacing the console's own: `runwarden config keys` lists the ids."""
    commands: tuple[UserCommand, ...] = ()
    templates: tuple[Template, ...] = ()
    repositories: tuple[RepositoryAddress, ...] = ()
    """The most specific pattern first."""
    results: ResultsSettings = field(default_factory=ResultsSettings)
    automations: tuple["Rule", ...] = ()
    """In the order of the file; `runwarden watch` carries them out."""
    profiles: tuple[Profile, ...] = ()
    """In the order of the file; the environment's first."""
    file: Path | None = None
    """The file these came from; None: there is none."""
    command_line: str = "runwarden"
    """The beginning of a command that means the same service and the same files."""
    unused: tuple[str, ...] = ()
    """A sentence for each environment variable that an option beats."""

    def profile(self, name: str | None = None) -> Profile:
        """The profile of that name; without one the default.

        Raises:
            ConfigError: There is no such profile, or none to choose.
        """
        wanted = name or self.default_profile
        if wanted is None and len(self.profiles) == 1:
            return self.profiles[0]
        for profile in self.profiles:
            if profile.name == (wanted or ENVIRONMENT_PROFILE):
                return profile
        raise self._no_profile(wanted)

    def _no_profile(self, wanted: str | None) -> ConfigError:
        names = ", ".join(profile.name for profile in self.profiles)
        if not names:
            return ConfigError(
                "No service is configured." if wanted is None else f"There is no profile {wanted!r}.",
                cure="Set RUNWARDEN_BASE_URL and RUNWARDEN_TOKEN, or write a profile into the file that `runwarden "
                "config init` makes. To look around without a service: `runwarden demo`, which names its --config.",
                file=self.file,
            )
        if wanted is None:
            return ConfigError(
                "There are several profiles and none is the default.",
                cure=f"Name one with --profile or in default_profile: {names}.",
                file=self.file,
            )
        return ConfigError(f"There is no profile {wanted!r}.", cure=f"There are: {names}.", file=self.file)
