"""Loads settings from a TOML file and the environment, or raises one error that says what to correct."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from app.config.address import base_address
from app.config.environment import NOTHING_CHOSEN, Choice, with_environment
from app.config.notify import read_notify
from app.config.paths import config_path
from app.config.repositories import read_repositories, read_results
from app.config.sections import read_automations, read_commands, read_keys, read_views
from app.config.settings import (
    ENVIRONMENT_PROFILE,
    ConfigError,
    ConsoleSettings,
    HistorySettings,
    PollSettings,
    Profile,
    Settings,
    Template,
)
from app.config.table import ConfigTable, Source
from app.config.token import CommandToken, EnvToken, FileToken, KeyringToken, TokenSource

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


def load(path: Path | None, env: Mapping[str, str], choice: Choice = NOTHING_CHOSEN) -> Settings:
    """Load the settings from a file (see `config_path`; the user's own need not exist) and the environment.

    What the command line chose beats the environment, see `app.config.environment`.

    Raises:
        ConfigError: The file cannot be read, or it or the environment holds a mistake.
    """
    file = config_path(path, env)
    text = _read(file)
    return with_environment(Settings() if text is None else parse(file, text), env, choice)


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
        views=read_views(root),
        keys=read_keys(root),
        commands=read_commands(root),
        templates=tuple(_template(table) for table in root.tables("templates")),
        repositories=read_repositories(root.table("repositories")),
        results=read_results(root.table("results")),
        profiles=_profiles(root.table("profiles"), poll),
        file=file,
    )
    settings = replace(settings, automations=read_automations(root, settings))
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
        reread_days=table.number("reread_days", base.reread_days, least=0, most=_LONGEST_HISTORY_DAYS),
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
