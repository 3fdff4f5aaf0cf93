"""The settings as frozen values, with the program's defaults; `config.example.toml` explains each key."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import force_setattr

from app.profiles.token import TokenSource
from app.profiles.values import (
    MAX_WAIT,
    ONE_OR_MORE,
    Between,
    MistakeError,
    OneOrMore,
    QuietHours,
    Repeat,
    Texts,
    Wait,
    base_address,
    check_placeholders,
)
from storage import RunwardenError, UnreadableTextError
from storage.records.alert import Level
from storage.records.query import GROUPINGS, RunSort

if TYPE_CHECKING:
    from app.automations.rule import Rule

Markup = Literal["text", "markdown", "html"]
ProfileColor = Literal["auto", "red", "green", "blue", "yellow", "purple"]
AlertKind = Literal["failed", "stuck", "host", "link", "job", "action", "run", "rule"]
"""The first parts of inbox keys, which rules may name."""
DEFAULT_ROUTE: Final = "default"
NOTIFY_PLACEHOLDERS: Final = (
    "title", "body", "kind", "level", "profile", "platform", "run_id", "repository", "branch", "status", "count", "id"
)  # fmt: skip
"""Placeholders in a command's arguments, and in the title and the text of a route."""
RUN_PLACEHOLDERS: Final = ("run_id", "repository", "branch", "status")
COMMAND_PLACEHOLDERS: Final = (*RUN_PLACEHOLDERS, "profile", "base_url")


class NotifyRoute(Struct, frozen=True):
    """A named set of channels for notifications."""

    NO_KEYS: ClassVar = ("name",)
    """Fields that are no keys of its table."""
    name: str
    command: tuple[str, ...] = ()
    desktop: bool = False
    urls_env: str | None = None
    urls_file: Path | None = None
    title: str = ""
    """The title, with placeholders. If it or `text` is empty, the notification's own is used."""
    text: str = ""
    markup: Markup = "text"
    repeat: Repeat | None = None
    give_up: Repeat = timedelta(days=1)
    fallback: str = ""

    def __post_init__(self) -> None:
        for key, texts in (("command", self.command), ("title", (self.title,)), ("text", (self.text,))):
            check_placeholders(key, texts, NOTIFY_PLACEHOLDERS)

    @property
    def is_silent(self) -> bool:
        """Whether it has no channel."""
        return not (self.desktop or self.command or self.urls_env or self.urls_file)


class NotifyRule(Struct, frozen=True):
    """A row of the routing table: matching alerts go over its routes; the first match counts."""

    routes: OneOrMore = field(name="route")
    severity: Level = "information"
    kind: Annotated[tuple[AlertKind, ...], ONE_OR_MORE] = ()
    repository: OneOrMore = ()
    hours: QuietHours | None = None


NOTIFY_SUBJECTS: Final = frozenset({"pinned", "stuck", "health", "link", "automations"})
"""Words of `[notify] on` that are no status of a run."""


class NotifySettings(Struct, frozen=True):
    """The subjects and channels of notifications."""

    on: Texts = ("pinned", "failed", "stuck", "health", "link", "automations")
    bell: bool = True
    desktop: bool = False
    command: Texts = ()
    quiet: QuietHours | None = None
    hold_s: Annotated[float, Between(0, 3_600)] = 60.0
    routes: tuple[NotifyRoute, ...] = ()
    rules: tuple[NotifyRule, ...] = ()
    group_wait: Wait = timedelta(seconds=30)
    group_interval: Wait = timedelta(minutes=5)
    heartbeat_env: str = ""
    heartbeat_every: Annotated[timedelta, Between(timedelta(seconds=10), MAX_WAIT)] = timedelta(minutes=1)

    def __post_init__(self) -> None:
        check_placeholders("command", self.command, NOTIFY_PLACEHOLDERS)

    @property
    def silent(self) -> frozenset[str]:
        """The routes without a working channel."""
        return frozenset(route.name for route in (self.route(DEFAULT_ROUTE), *self.routes) if route.is_silent)

    def route(self, name: str) -> NotifyRoute:
        """The route of this name; `default`, or a missing one, is made of the channels above."""
        default = NotifyRoute(DEFAULT_ROUTE, self.command, self.desktop)
        return next((route for route in self.routes if route.name == name), default)

    def is_quiet(self, route: str, now: datetime) -> bool:
        """Whether the channels above, if the route means those, have to be quiet."""
        return route == DEFAULT_ROUTE and self.quiet is not None and self.quiet.cover(now.astimezone().time())


PRODUCTION: Final = re.compile(r"\bprod|_prod")
"""Finds the names of profiles that are red unless configured otherwise: a word in them begins with `prod`."""
ENVIRONMENT_PROFILE: Final = "environment"
"""The profile defined by RUNWARDEN_BASE_URL and RUNWARDEN_TOKEN."""


class ConfigError(RunwardenError):
    """The configuration cannot be used; `str()` names file, line, key, problem and fix."""

    kind = "config"

    path: tuple[str | int, ...] = ()
    """The place of the key in its file, in the form of `app.profiles.table`; empty where that is not known."""

    def __init__(
        self, message: str, *, fix: str, file: Path | None = None, key: str | None = None, line: int | None = None
    ) -> None:
        self.file = file
        """None if the mistake is not in a file (the environment, or nothing is configured)."""
        self.key = key
        """Dotted, as in `profiles.acme.base_url`."""
        self.line = line
        """Counted from 1, or None if it concerns no single line."""
        self.message = message
        self.fix = fix
        location = ""
        if file is not None:
            location = f"{file}: " if line is None else f"{file}:{line}: "
        if key:
            location = f"{location}{key}: "
        super().__init__(f"{location}{message} {fix}".rstrip())


class PollSettings(Struct, frozen=True):
    """How often the service is polled, and for how many runs."""

    runs_s: Annotated[float, Between(1, 86_400)] = 10.0
    health_s: Annotated[float, Between(1, 86_400)] = 30.0
    deadline_s: Annotated[float, Between(0.1, 600)] = 20.0
    page_size: Annotated[int, Between(1, 100)] = 100
    """Runs per page, 1 to 100 (spec 8)."""
    first_runs: Annotated[int, Between(1, 1_000_000)] = 1_000


class HistorySettings(Struct, frozen=True):
    """How much of the service's history is fetched in the background, and kept."""

    days: Annotated[float, Between(0, 36_500)] = 30.0
    runs: Annotated[int, Between(0, 100_000_000)] = 100_000
    keep_days: Annotated[float, Between(0, 36_500)] = 400.0
    max_mb: Annotated[int, Between(0, 10_000_000)] = 2_000
    confirmed_for: ClassVar[timedelta] = timedelta(days=7)
    """How long a run counts as live after the service confirmed it."""


class ConsoleSettings(Struct, frozen=True):
    """The console's looks and links."""

    theme: str = "runwarden"
    run_url: str = ""
    health_ok: tuple[str, ...] = ("ok", "healthy", "connected")
    send_cap: Annotated[int, Between(1, 500)] = 25
    needs_you: bool = True
    mouse: bool = True

    def __post_init__(self) -> None:
        force_setattr(self, "health_ok", tuple(word.casefold() for word in self.health_ok))
        used = set(re.findall(r"\{([^{}]*)\}", self.run_url))
        is_web = self.run_url.startswith(("https://", "http://"))
        if self.run_url and not (is_web and used and used <= {"run_id", "repository", "branch"}):
            fix = 'Write it as in "https://example.com/runs/{run_id}"; {repository} and {branch} may be used as well.'
            raise MistakeError("run_url", "this is not a web address with a placeholder for the run.", fix)


class RepositoryAddress(Struct, frozen=True):
    """The address of repositories whose names match."""

    pattern: str
    """A pattern in lower case and with the platform: `github:acme/*`."""
    address: str
    """An address with placeholders such as `{path}`, see `app.profiles.load`; a local path is absolute."""


class ResultsSettings(Struct, frozen=True):
    """How the results of a run are found and kept."""

    reviews: Texts = ("reviews/*.md",)
    mirrors_mb: Annotated[int, Between(1, 10_000_000)] = 2_000


def _query(text: str) -> str:
    from app.runs.query import parse  # only where there are views: it is on the way to the first painted screen

    if problems := parse(text, datetime.now(UTC)).problems:
        first = problems[0]
        raise UnreadableTextError(f"at character {first.start + 1}: {first.message}", first.fix)
    return text


def _order(text: str) -> RunSort:
    from app.runs.query import read_order

    return read_order(text)


def _grouping(text: str) -> str:
    if text not in GROUPINGS:
        raise UnreadableTextError(f"runs are not grouped by {text!r}.", f"Write {' or '.join(GROUPINGS)}.")
    return text


def _keys(text: str) -> str:
    if len(text.split()) > 1 or text != text.strip():
        raise UnreadableTextError(
            "a key has no blanks in it.", 'Write it as in "C", "ctrl+l" or "f5", several with commas.'
        )
    return text


Keys = Annotated[str, _keys]


class ViewSettings(Struct, frozen=True):
    """A view of the runs: a tab that sets the query and the order."""

    name: str
    query: Annotated[str, _query] = ""
    sort: Annotated[RunSort | None, _order] = None
    group: Annotated[str | None, _grouping] = None
    """The grouping: empty for none, None for no change."""


class UserCommand(Struct, frozen=True):
    """A user-defined program, offered in the palette."""

    name: str
    argv: tuple[str, ...]
    key: Annotated[str | None, _keys] = None
    confirm: bool = False
    terminal: bool = False

    def __post_init__(self) -> None:
        check_placeholders("argv", self.argv, COMMAND_PLACEHOLDERS)


class Template(Struct, frozen=True):
    """Instructions to start a form with."""

    name: str
    instructions: str


class Profile(Struct, frozen=True):
    """One service, seen with one token."""

    NO_KEYS: ClassVar = ("name", "token")
    name: str
    base_url: Annotated[str, base_address]
    """Normal form, see `app.profiles.values.base_address`."""
    token: TokenSource
    read_only: bool = False
    poll: PollSettings = PollSettings()
    """`[poll]`, with this profile's own `[profiles.NAME.poll]` on top."""
    proxy: str = "environment"
    ca_file: Path | None = None
    client_cert: Path | None = None
    color: ProfileColor = "auto"
    """The colour of its name; `auto`: see `Settings.color_of`."""


class Settings(Struct, frozen=True):
    """The whole configuration."""

    NO_KEYS: ClassVar = ("file", "command_line", "unused")
    default_profile: str | None = None
    """None stands for the environment's profile, or the only one there is."""
    data_dir: Path | None = None
    """None stands for the platform's data folder of the user."""
    poll: PollSettings = PollSettings()
    history: HistorySettings = HistorySettings()
    console: ConsoleSettings = ConsoleSettings()
    notify: NotifySettings = NotifySettings()
    views: tuple[ViewSettings, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[UserCommand, ...] = ()
    templates: tuple[Template, ...] = ()
    repositories: tuple[RepositoryAddress, ...] = ()
    """The most specific pattern first."""
    results: ResultsSettings = ResultsSettings()
    automations: tuple["Rule", ...] = ()
    profiles: tuple[Profile, ...] = ()
    """The profiles in the order of the file; the environment's first."""
    file: Path | None = None
    """The file these came from, or None if there is none."""
    command_line: str = "runwarden"
    """The beginning of a command that means the same service and the same files."""
    unused: tuple[str, ...] = ()
    """A sentence for each environment variable that an option beats."""

    def color_of(self, name: str) -> str:
        """The colour of a profile's name, or empty if there is no other profile.

        `auto` is red for a profile named like `prod`; the others get the other colours in turn.
        """
        colors = {profile.name: profile.color for profile in self.profiles}
        own = colors.get(name, "auto")
        if own != "auto":
            return own
        if PRODUCTION.search(name.casefold()):
            return "red" if len(colors) > 1 else ""
        plain = [key for key, color in colors.items() if color == "auto" and not PRODUCTION.search(key.casefold())]
        others: tuple[str, ...] = get_args(ProfileColor)[2:]
        if name in plain and len(colors) > 1:
            return others[plain.index(name) % len(others)]
        return ""

    def profile(self, name: str | None = None) -> Profile:
        """The profile of that name, or the default without one; if there is none, raise `ConfigError`."""
        chosen = name or self.default_profile
        if chosen is None and len(self.profiles) == 1:
            return self.profiles[0]
        for profile in self.profiles:
            if profile.name == (chosen or ENVIRONMENT_PROFILE):
                return profile
        names = ", ".join(profile.name for profile in self.profiles)
        problem = f"There is no profile {chosen!r}."
        fix = f"There are: {names}."
        if not names:
            problem = "No service is configured." if chosen is None else problem
            fix = (
                "Set RUNWARDEN_BASE_URL and RUNWARDEN_TOKEN, or write a profile into the file that `runwarden config "
                "init` makes. To look around without a service: `runwarden demo`, which names its --config."
            )
        elif chosen is None:
            problem = "There are several profiles and none is the default."
            fix = f"Name one with --profile or in default_profile: {names}."
        raise ConfigError(problem, fix=fix, file=self.file)
