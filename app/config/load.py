"""Loads settings from a TOML file, the environment and the options, or raises one error that says what to correct."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.config.address import base_address
from app.config.notify import read_notify
from app.config.paths import config_path
from app.config.repositories import read_repositories, read_results
from app.config.settings import (
    ENVIRONMENT_PROFILE,
    ConfigError,
    ConsoleSettings,
    HistorySettings,
    PollSettings,
    Profile,
    Settings,
    Template,
    UserCommand,
    ViewSettings,
)
from app.config.table import ConfigTable, Source
from app.config.token import CommandToken, EnvToken, FileToken, KeyringToken, TokenSource
from storage.records.query import GROUPINGS

if TYPE_CHECKING:
    from app.rules.rule import Rule

_TOKEN_KEYS: Final = ("token_env", "token_file", "token_command", "token_keyring")
_LONGEST_S: Final = 86_400.0
_MOST_FIRST_RUNS: Final = 1_000_000
_LONGEST_HISTORY_DAYS: Final = 36_500
_MOST_RUNS: Final = 100_000_000
_MOST_MEGABYTES: Final = 10_000_000
_LARGEST_PAGE: Final = 100
"""The API's limit (spec 8)."""
_LARGEST_SEND_CAP: Final = 500
_PLACEHOLDERS: Final = frozenset({"run_id", "repository", "branch"})
COMMAND_PLACEHOLDERS: Final = ("run_id", "repository", "branch", "status", "profile", "base_url")
"""Placeholders in a command's arguments; the first four are facts of the run in focus."""
_SHOWN_KEYS: Final = 'Write it as in "C", "ctrl+l" or "f5"; several with commas between them.'


@dataclass(frozen=True, slots=True)
class Choice:
    """The command line's options, each of which beats the environment. None: not given."""

    config: Path | None = None
    profile: str | None = None
    data_dir: Path | None = None

    @property
    def command_line(self) -> str:
        """The beginning of a command with the same options."""
        options = {"--config": self.config, "--profile": self.profile, "--data-dir": self.data_dir}
        given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        return shlex.join(["runwarden", *given])


NOTHING_CHOSEN: Final = Choice()


def load(path: Path | None, env: Mapping[str, str], choice: Choice = NOTHING_CHOSEN) -> Settings:
    """Load the settings from a file (see `config_path`; the user's own need not exist) and the environment.

    What the command line chose beats the environment, see `app.config.load`.

    Raises:
        ConfigError: The file cannot be read, or it or the environment holds a mistake.
    """
    file = config_path(path, env)
    text = _read(file)
    return _with_environment(Settings() if text is None else parse(file, text), env, choice)


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if file == config_path(None, {}):
            return None  # the user's own file is optional
        raise ConfigError("there is no such file.", cure="Make one with `runwarden config init`.", file=file) from error
    except OSError as error:
        raise ConfigError(
            f"this cannot be read: {error.strerror}.", cure="Correct its permissions.", file=file
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("this is not UTF-8 text.", cure="Save it as UTF-8.", file=file) from error


def parse(file: Path, text: str) -> Settings:
    """Parse the text of a file.

    Raises:
        ConfigError: It holds a mistake.
    """
    return _settings(ConfigTable(Source(file, text), toml_values(file, text)))


def toml_values(file: Path, text: str) -> dict[str, object]:
    """Parse a text of TOML; `file` is for the message.

    Raises:
        ConfigError: It is not TOML.
    """
    import tomllib  # imported only if there is a file: it takes a fifth of the time to start

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else None
        raise ConfigError(f"this is not TOML: {error}.", cure="Correct that line.", file=file, line=line) from error


def _settings(root: ConfigTable) -> Settings:
    file = root.source.file
    poll = _poll(root.table("poll"), PollSettings())
    data_dir = root.optional_text("data_dir")
    settings = Settings(
        default_profile=root.optional_text("default_profile"),
        data_dir=None if data_dir is None else file.parent / Path(data_dir).expanduser(),
        poll=poll,
        history=_history(root.table("history")),
        console=_console(root.table("console")),
        notify=read_notify(root.table("notify")),
        views=_views(root),
        keys=dict(_keys(root.table("keys"))),
        commands=_commands(root),
        templates=tuple(_template(table) for table in root.tables("templates")),
        repositories=read_repositories(root.table("repositories")),
        results=read_results(root.table("results")),
        profiles=_profiles(root.table("profiles"), poll),
        file=file,
    )
    settings = replace(settings, automations=_automations(root, settings))
    root.finish()
    names = [profile.name for profile in settings.profiles]
    if settings.default_profile not in {None, ENVIRONMENT_PROFILE, *names}:
        root.fail("default_profile", "there is no such profile.", f"There are: {', '.join(names) or 'none'}.")
    return settings


def _poll(table: ConfigTable, base: PollSettings) -> PollSettings:
    poll = PollSettings(
        runs_s=table.number("runs_s", base.runs_s, least=1, most=_LONGEST_S),
        health_s=table.number("health_s", base.health_s, least=1, most=_LONGEST_S),
        deadline_s=table.number("deadline_s", base.deadline_s, least=0.1, most=600),
        page_size=table.whole("page_size", base.page_size, least=1, most=_LARGEST_PAGE),
        first_runs=table.whole("first_runs", base.first_runs, least=1, most=_MOST_FIRST_RUNS),
    )
    table.finish()
    return poll


def _history(table: ConfigTable) -> HistorySettings:
    base = HistorySettings()
    history = HistorySettings(
        days=table.number("days", base.days, least=0, most=_LONGEST_HISTORY_DAYS),
        runs=table.whole("runs", base.runs, least=0, most=_MOST_RUNS),
        keep_days=table.number("keep_days", base.keep_days, least=0, most=_LONGEST_HISTORY_DAYS),
        max_mb=table.whole("max_mb", base.max_mb, least=0, most=_MOST_MEGABYTES),
    )
    table.finish()
    return history


def _console(table: ConfigTable) -> ConsoleSettings:
    base = ConsoleSettings()
    console = ConsoleSettings(
        theme=table.text("theme", base.theme),
        run_url=table.text("run_url", base.run_url),
        health_ok=tuple(word.casefold() for word in table.texts("health_ok", base.health_ok)),
        send_cap=table.whole("send_cap", base.send_cap, least=1, most=_LARGEST_SEND_CAP),
        mouse=table.flag("mouse", default=base.mouse),
        tour=table.flag("tour", default=base.tour),
    )
    table.finish()
    used = set(re.findall(r"\{([^{}]*)\}", console.run_url))
    if console.run_url and not (console.run_url.startswith(("https://", "http://")) and used and used <= _PLACEHOLDERS):
        cure = 'Write it as in "https://example.com/runs/{run_id}"; {repository} and {branch} may be used as well.'
        table.fail("run_url", "this is not a web address with a placeholder for the run.", cure)
    return console


def _template(table: ConfigTable) -> Template:
    template = Template(table.required_text("name"), table.required_text("instructions"))
    table.finish()
    return template


def _profiles(table: ConfigTable, poll: PollSettings) -> tuple[Profile, ...]:
    profiles = []
    for name in table.values:
        if name == ENVIRONMENT_PROFILE:
            table.fail(name, "this name belongs to RUNWARDEN_BASE_URL.", "Choose another name.")
        profiles.append(_profile(name, table.table(name), poll))
    named = {name for name in table.values if any(key in table.table(name).values for key in _TOKEN_KEYS)}
    return tuple(each if each.name in named else _unshared(each, profiles) for each in profiles)


def _unshared(profile: Profile, profiles: Sequence[Profile]) -> Profile:
    """The profile, whose token is refused where a profile with another address would use the same variable."""
    for other in profiles:
        if other.token == profile.token and other.base_url != profile.base_url:
            return replace(profile, token=EnvToken(shared_with=other.name))
    return profile


def _profile(name: str, table: ConfigTable, poll: PollSettings) -> Profile:
    address = table.required_text("base_url")
    try:
        base_url = base_address(address)
    except ValueError as error:
        table.fail("base_url", f"{error}.", "Correct the address.")
    profile = Profile(
        name=name,
        base_url=base_url,
        token=_token(table),
        read_only=table.flag("read_only", default=False),
        poll=_poll(table.table("poll"), poll),
    )
    table.finish()
    return profile


def _token(table: ConfigTable) -> TokenSource:
    given = [key for key in _TOKEN_KEYS if key in table.values]
    if len(given) > 1:
        table.fail(given[1], f"the token has two sources, {given[0]} and this.", "Keep one of them.")
    if (file := table.optional_text("token_file")) is not None:
        return FileToken(table.source.file.parent / Path(file).expanduser())
    if argv := table.texts("token_command", ()):
        return CommandToken(argv)
    if (name := table.optional_text("token_keyring")) is not None:
        return KeyringToken(name)
    return EnvToken(table.optional_text("token_env") or EnvToken().variable)


def _commands(root: ConfigTable) -> tuple[UserCommand, ...]:
    commands: list[UserCommand] = []
    for table in root.tables("commands"):
        command = _command(table)
        if command.name.casefold() in {other.name.casefold() for other in commands}:
            table.fail("name", "another command has this name.", "Rename one of them.")
        commands.append(command)
    return tuple(commands)


def _keys(table: ConfigTable) -> Iterator[tuple[str, str]]:
    # `run.continue = "C"` is a table within a table to TOML, and an id to people.
    for name, value in table.values.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{rest}", keys) for rest, keys in _keys(table.table(name)))
        else:
            yield name, _key(table, name)
    table.finish()


def _key(table: ConfigTable, name: str) -> str:
    keys = table.required_text(name)
    if keys != "".join(keys.split()):
        table.fail(name, "a key has no blanks in it.", _SHOWN_KEYS)
    return keys


def _command(table: ConfigTable) -> UserCommand:
    command = UserCommand(
        name=table.required_text("name"),
        argv=table.texts("argv", ()),
        key=_key(table, "key") if "key" in table.values else None,
        confirm=table.flag("confirm", default=False),
        terminal=table.flag("terminal", default=False),
    )
    table.known.add("key")
    table.finish()
    if not command.argv:
        table.fail("argv", "this key is missing.", 'Add the program and its arguments: argv = ["less", "{run_id}.log"]')
    for name in re.findall(r"\{([^{}]*)\}", "\n".join(command.argv)):
        if name not in COMMAND_PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in COMMAND_PLACEHOLDERS)
            table.fail("argv", f"there is no placeholder {{{name}}}.", f"There are: {known}.")
    return command


def _automations(root: ConfigTable, settings: Settings) -> tuple["Rule", ...]:
    root.known.add("automations")
    if "automations" not in root.values:
        return ()
    from app.rules.read import read_rules  # imported only if there are automations: it needs a library for schedules

    profiles = [profile.name for profile in settings.profiles]
    return read_rules(root, profiles=profiles, routes=["default", *(route.name for route in settings.notify.routes)])


def _views(root: ConfigTable) -> tuple[ViewSettings, ...]:
    views: list[ViewSettings] = []
    for table in root.tables("views"):
        view = _view(table)
        if view.name.casefold() in {other.name.casefold() for other in views}:
            table.fail("name", "another view has this name.", "Rename one of them.")
        views.append(view)
    return tuple(views)


def _view(table: ConfigTable) -> ViewSettings:
    from app.query import (
        parse,  # only where there are views: it is on the way to the first painted screen
        read_order,
    )

    name, query, order = table.required_text("name"), table.text("query", ""), table.optional_text("sort")
    group = table.optional_text("group")
    table.finish()
    if problems := parse(query, datetime.now(UTC)).problems:
        table.fail("query", f"at character {problems[0].start + 1}: {problems[0].message}", problems[0].cure)
    if group is not None and group not in GROUPINGS:
        table.fail("group", f"runs are not grouped by {group!r}.", f"Write {' or '.join(GROUPINGS)}.")
    try:
        return ViewSettings(name, query, None if order is None else read_order(order), group)
    except ValueError as error:
        table.fail("sort", f"{error}.", "Correct the column.")


def _with_environment(settings: Settings, env: Mapping[str, str], choice: Choice) -> Settings:
    """The file's settings with the environment's on top, and the command line's choice above both."""
    beaten = dict(_beaten(settings, env, choice))
    used = {name: value for name, value in env.items() if value and name not in beaten}
    if choice.data_dir is not None:
        settings = replace(settings, data_dir=choice.data_dir.expanduser())
    elif folder := used.get("RUNWARDEN_DATA_DIR"):
        settings = replace(settings, data_dir=Path(folder).expanduser())
    if (address := env.get("RUNWARDEN_BASE_URL")) and beaten.get("RUNWARDEN_BASE_URL") != "--config":
        settings = _with_address(settings, address, is_used="RUNWARDEN_BASE_URL" in used)
    if name := used.get("RUNWARDEN_PROFILE"):
        settings = replace(settings, default_profile=name)
    return replace(
        settings,
        profiles=tuple(_with_own_token(profile, env.get("RUNWARDEN_BASE_URL")) for profile in settings.profiles),
        command_line=choice.command_line,
        unused=tuple(f"{name} is not used: {option} was given." for name, option in beaten.items()),
    )


def _beaten(settings: Settings, env: Mapping[str, str], choice: Choice) -> Iterator[tuple[str, str]]:
    """The environment variables that an option contradicts, each with the option that beats it."""
    by_config, by_profile = choice.config and "--config", choice.profile and "--profile"
    only = settings.profiles[0].name if len(settings.profiles) == 1 else None
    # A file that names no service, or several and no default, leaves the choice to the variable.
    names_service = by_config and settings.profiles and "--config"
    named = choice.profile or settings.default_profile or only
    folder = choice.data_dir or settings.data_dir
    asks_for_address = choice.profile == ENVIRONMENT_PROFILE
    beaten_by = {
        "RUNWARDEN_CONFIG": (by_config, str(choice.config)),
        "RUNWARDEN_PROFILE": (by_profile or (by_config and named and "--config"), named),
        "RUNWARDEN_BASE_URL": (None if asks_for_address else names_service or by_profile, None),
        "RUNWARDEN_DATA_DIR": ("--data-dir" if choice.data_dir else by_config and folder and "--config", str(folder)),
    }
    for variable, (option, value) in beaten_by.items():
        if option and env.get(variable, "") not in {"", value}:
            yield variable, option


def _with_address(settings: Settings, address: str, *, is_used: bool) -> Settings:
    try:
        profile = Profile(ENVIRONMENT_PROFILE, base_address(address), EnvToken(), poll=settings.poll)
    except ValueError as error:
        if not is_used:
            return settings
        raise ConfigError(f"{error}.", cure="Correct the address.", key="RUNWARDEN_BASE_URL") from error
    # An address in the environment wins over the file's default profile.
    return replace(settings, profiles=(profile, *settings.profiles), default_profile=ENVIRONMENT_PROFILE)


def _with_own_token(profile: Profile, address: str | None) -> Profile:
    """The profile, whose token is refused where RUNWARDEN_BASE_URL says that it belongs to another address."""
    if not address or not isinstance(profile.token, EnvToken) or profile.token.variable != EnvToken().variable:
        return profile
    try:
        owner = base_address(address)
    except ValueError:
        owner = address
    return replace(profile, token=EnvToken(belongs_to=None if owner == profile.base_url else owner))
