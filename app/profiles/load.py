"""Where the configuration and the data are; and loading settings from TOML, the environment and the options.

A file that cannot be read, or has a mistake in it, raises `ConfigError`. The addresses of `[repositories]` are given to
git: nothing in one may become an option.
"""

import errno
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from app.profiles.settings import (
    DEFAULT_ROUTE,
    ENVIRONMENT_PROFILE,
    ConfigError,
    Keys,
    NotifyRoute,
    NotifySettings,
    PollSettings,
    Profile,
    RepositoryAddress,
    Settings,
    UserCommand,
    ViewSettings,
)
from app.profiles.table import LEFT_OUT, KeyPath, Table, check_route
from app.profiles.token import TOKEN_KINDS, EnvToken, TokenSource
from app.profiles.values import base_address
from storage import UnreadableTextError
from storage.records.run import DEFAULT_PLATFORM, Repository

APPLICATION: Final = "runwarden"
CACHE_FILE: Final = "cache.sqlite3"
LEDGER_FILE: Final = "ledger.sqlite3"
STATE_FILE: Final = "state.sqlite3"
_EXAMPLE_FILE: Final = "config.example.toml"
_SLUG_LENGTH: Final = 40
_PLACEHOLDERS: Final = ("path", "owner", "repo", "group", "project")
_WEB: Final = r"(https?|ssh|git|file)://([^/\s]*)(/\S*)"
_SCP: Final = r"(?:[\w.+-]+@)?[A-Za-z0-9\[][\w.:\[\]-]*:[^:\s-]\S*"
_NAME: Final = r"[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]*(?:/[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]*)+"
_EXAMPLE: Final = 'Write it as in "git@github.com:{path}.git", "https://git.example.com/{path}.git" or "~/src/api".'
_PATHS: Final = ("/", "~", "./", "../")
_FIXES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "Correct its permissions."),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space."),
    errno.EISDIR: "Name a file.",
}


def config_path(explicit: Path | None, env: Mapping[str, str]) -> Path:
    """The configuration file: the explicit one, RUNWARDEN_CONFIG, or the user's own; it need not exist."""
    if explicit is not None:
        return explicit.expanduser()
    if named := env.get("RUNWARDEN_CONFIG"):
        return Path(named).expanduser()
    return _user_folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def data_folder(settings: Settings, profile: Profile) -> Path:
    """The folder of one profile's cache and ledger, never shared by two profiles or services."""
    slug = re.sub(r"[^a-z0-9]+", "-", profile.name.lower()).strip("-")[:_SLUG_LENGTH] or "profile"
    # Slugs are not unique (`Acme` and `acme` have the same): the name is hashed too.
    identity = profile.base_url if slug == profile.name else f"{profile.base_url}\n{profile.name}"
    return data_root(settings) / f"{slug}-{sha256(identity.encode()).hexdigest()[:8]}"


def example_text() -> str:
    """The commented example of a configuration: every key, its default and why."""
    from importlib import resources

    packaged = resources.files("app") / _EXAMPLE_FILE
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # A source checkout keeps the only copy at its top level.
    return (Path(__file__).parents[2] / _EXAMPLE_FILE).read_text(encoding="utf-8")


def data_root(settings: Settings) -> Path:
    """The folder above all profiles' data."""
    if settings.data_dir is not None:
        return settings.data_dir
    return _user_folder("XDG_DATA_HOME", ".local/share")


def _user_folder(variable: str, usual: str) -> Path:
    """Runwarden's own folder, in the one that the variable names or in the platform's."""
    # XDG: a relative path is ignored.
    if (folder := Path(os.environ.get(variable, ""))).is_absolute():
        return folder / APPLICATION
    return Path.home() / ("Library/Application Support" if sys.platform == "darwin" else usual) / APPLICATION


class Choice(Struct, frozen=True):
    """The command line's options, which override the environment; each is None if it was not given."""

    config: Path | None = None
    profile: str | None = None
    data_dir: Path | None = None

    @property
    def command_line(self) -> str:
        """The beginning of a command with the same options."""
        options = {"--config": self.config, "--profile": self.profile, "--data-dir": self.data_dir}
        words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        return shlex.join(["runwarden", *words])


NOTHING_CHOSEN: Final = Choice()


def load(path: Path | None, env: Mapping[str, str], choice: Choice = NOTHING_CHOSEN) -> Settings:
    """Load the settings from a file (see `config_path`; the user's own need not exist) and the environment.

    Options beat the environment.
    """
    file = config_path(path, env)
    text = read_text(file)
    if text is None and file != config_path(None, {}):  # the user's own file is optional
        raise no_such_file(file)
    settings = Settings() if text is None else parse(file, text)
    # The environment's settings on top of the file's, and the command line's choice above both.
    beaten = dict(_overridden(settings, env, choice))
    used = {name: value for name, value in env.items() if value and name not in beaten}
    if folder := choice.data_dir or used.get("RUNWARDEN_DATA_DIR"):
        settings = replace(settings, data_dir=Path(folder).expanduser())
    if (address := env.get("RUNWARDEN_BASE_URL")) and beaten.get("RUNWARDEN_BASE_URL") != "--config":
        try:
            profile = Profile(ENVIRONMENT_PROFILE, base_address(address), EnvToken(), poll=settings.poll)
        except UnreadableTextError as error:
            if "RUNWARDEN_BASE_URL" in used:
                raise ConfigError(error.problem, fix=error.fix, key="RUNWARDEN_BASE_URL") from error
        else:
            # An address in the environment wins over the file's default profile.
            profiles = (profile, *settings.profiles)
            settings = replace(settings, profiles=profiles, default_profile=ENVIRONMENT_PROFILE)
    if name := used.get("RUNWARDEN_PROFILE"):
        settings = replace(settings, default_profile=name)
    owner = env.get("RUNWARDEN_BASE_URL", "")
    with suppress(ValueError):
        owner = base_address(owner)
    profiles = settings.profiles
    if owner:
        # The variable RUNWARDEN_TOKEN belongs to the address that the environment names.
        profiles = tuple(_with_own_token(profile, owner) for profile in profiles)
    return replace(
        settings,
        profiles=profiles,
        command_line=choice.command_line,
        unused=tuple(f"{name} is not used: {option} was given." for name, option in beaten.items()),
    )


def _with_own_token(profile: Profile, owner: str) -> Profile:
    """The profile without RUNWARDEN_TOKEN, unless that belongs to its address; `owner` has it."""
    if not isinstance(profile.token, EnvToken) or profile.token.variable != EnvToken().variable:
        return profile
    if profile.base_url == owner:
        return replace(profile, token=EnvToken())
    return replace(profile, token=EnvToken(meant_for=f"RUNWARDEN_BASE_URL is {owner}"))


def read_text(file: Path) -> str | None:
    """The text of a file with its line ends unchanged; None if the file does not exist."""
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(file, "read", error) from error
    except UnicodeDecodeError as error:
        raise ConfigError("this is not UTF-8 text.", fix="Save it as UTF-8.", file=file) from error


def no_such_file(file: Path) -> ConfigError:
    """The error for a file that does not exist."""
    return ConfigError("there is no such file.", fix="Make one with `runwarden config init`.", file=file)


def unusable(file: Path, verb: str, error: OSError) -> ConfigError:
    """The error for a file that cannot be `read` or `written`."""
    fix = _FIXES.get(error.errno or 0, "Name another path.")
    return ConfigError(f"this cannot be {verb}: {error.strerror}.", fix=fix, file=file)


def parse(file: Path, text: str) -> Settings:
    """Parse the text of a file."""
    return _settings(Table(file, text, toml_values(file, text)))


def mistakes(file: Path, text: str) -> tuple[Settings, list[ConfigError]]:
    """The valid part of a file's text, and all mistakes in it except those that follow from another."""
    values: Any = toml_values(file, text)
    errors: dict[KeyPath, ConfigError] = {}
    missing: list[object] = []
    while True:
        try:
            return _settings(Table(file, text, values)), list(errors.values())
        except ConfigError as error:
            # The value at the path of the mistake, or those of its list.
            try:
                names = reduce(getitem, error.path, values)
            except LookupError:
                names = []
            if not any(name in missing for name in (names if isinstance(names, list) else [names])):
                errors.setdefault(error.path, error)
            missing.append(_leave_out(values, error.path))


def _leave_out(values: Any, path: KeyPath) -> object:
    """Remove a key, or the table that lacks it; return its name."""
    *above, last = path
    holder = reduce(getitem, above, values)
    if isinstance(holder, list):
        holder[cast("int", last)] = LEFT_OUT
    elif last in holder:
        del holder[last]
    else:
        return _leave_out(values, path[:-1])
    return last


def toml_values(file: Path, text: str) -> dict[str, object]:
    """Parse a text of TOML; `file` is for the message."""
    import tomllib  # imported only if there is a file: it takes a fifth of the time to start

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"at line (\d+)", str(error))
        line = int(position[1]) if position else None
        raise ConfigError(f"this is not TOML: {error}.", fix="Correct that line.", file=file, line=line) from error


def _settings(root: Table) -> Settings:
    poll = root.table("poll").into(PollSettings)
    profiles = _profiles(root.table("profiles"), poll)
    settings = root.into(
        Settings,
        poll=poll,
        notify=_notify(root.table("notify")),
        views=root.named_tables("views", lambda table: table.into(ViewSettings)),
        keys=dict(_keys(root.table("keys"))),
        commands=root.named_tables("commands", lambda table: table.into(UserCommand)),
        repositories=read_repositories(root.table("repositories")),
        automations=(),
        profiles=profiles,
        file=root.file,
    )
    names = [profile.name for profile in profiles]
    if settings.default_profile not in {None, ENVIRONMENT_PROFILE, *names}:
        root.fail("default_profile", "there is no such profile.", f"There are: {', '.join(names) or 'none'}.")
    if "automations" not in root.values:
        return settings
    from app.automations.read_rules import (
        read_rules,  # imported only if there are automations: it needs a library for schedules
    )

    return replace(settings, automations=read_rules(root, settings))


def _notify(table: Table) -> NotifySettings:
    tables = table.table("routes")
    routes = {name: tables.table(name).into(NotifyRoute, name=name) for name in tables.values}
    names = [DEFAULT_ROUTE, *routes]
    for name, route in routes.items():
        if name == DEFAULT_ROUTE:
            tables.fail(name, "this name means the channels of [notify] itself.", "Choose another name.")
        if route.is_silent:
            fix = "Give it command, desktop, urls_env or urls_file."
            tables.table(name).fail("command", "this route leads nowhere.", fix)
        passed = {name}
        here = route.fallback
        while here and here != DEFAULT_ROUTE:
            check_route(tables.table(name), "fallback", here, names)
            if here in passed:
                tables.table(name).fail("fallback", "this leads back to itself.", "Let it end somewhere.")
            passed.add(here)
            here = routes[here].fallback
    notify = table.into(NotifySettings, routes=tuple(routes.values()))
    for rule, rule_table in zip(notify.rules, table.tables("rules"), strict=True):
        for name in rule.routes:
            check_route(rule_table, "route", name, names)
    return notify


def _profiles(table: Table, poll: PollSettings) -> tuple[Profile, ...]:
    profiles = []
    for name in table.values:
        if name == ENVIRONMENT_PROFILE:
            table.fail(name, "this name belongs to RUNWARDEN_BASE_URL.", "Choose another name.")
        values = table.table(name)
        own_poll = values.table("poll").into(PollSettings, poll)
        token: TokenSource = EnvToken()
        if sources := [key for key in TOKEN_KINDS if key in values.values]:
            if len(sources) > 1:
                values.fail(sources[1], f"the token has two sources, {sources[0]} and this.", "Keep one of them.")
            kind = TOKEN_KINDS[sources[0]]
            token = kind(values.get(sources[0], kind.__annotations__[kind.__struct_fields__[0]]))
        profiles.append(values.into(Profile, also=TOKEN_KINDS, name=name, token=token, poll=own_poll))
    shared = []
    for profile in profiles:
        # Profiles with different addresses do not share a variable, unless they name it.
        others = (other for other in profiles if other.token == profile.token and other.base_url != profile.base_url)
        is_named = not table.table(profile.name).values.keys().isdisjoint(TOKEN_KINDS)
        other = None if is_named else next(others, None)
        token = profile.token if other is None else EnvToken(meant_for=f"the profile {other.name} uses it as well")
        shared.append(replace(profile, token=token))
    return tuple(shared)


def _keys(table: Table) -> Iterator[tuple[str, str]]:
    # `run.continue = "C"` is a table within a table to TOML, and an id to users.
    for name, value in table.values.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{rest}", keys) for rest, keys in _keys(table.table(name)))
        else:
            yield name, table.get(name, Keys)


def _overridden(settings: Settings, env: Mapping[str, str], choice: Choice) -> Iterator[tuple[str, str]]:
    """Yield each environment variable that an option overrides, with that option."""
    # A file that names no service, or several and no default, leaves the choice to the variable.
    only = settings.profiles[0].name if len(settings.profiles) == 1 else None
    default = settings.default_profile or only
    names_service = choice.config is not None and bool(settings.profiles)
    overridden: dict[str, tuple[str, str | None]] = {}
    if choice.config is not None:
        overridden["RUNWARDEN_CONFIG"] = "--config", str(choice.config)
    if choice.profile:
        overridden["RUNWARDEN_PROFILE"] = "--profile", choice.profile
    elif choice.config is not None and default:
        overridden["RUNWARDEN_PROFILE"] = "--config", default
    if choice.profile != ENVIRONMENT_PROFILE and (names_service or choice.profile):
        overridden["RUNWARDEN_BASE_URL"] = "--config" if names_service else "--profile", None
    if choice.data_dir is not None:
        overridden["RUNWARDEN_DATA_DIR"] = "--data-dir", str(choice.data_dir)
    elif choice.config is not None and settings.data_dir is not None:
        overridden["RUNWARDEN_DATA_DIR"] = "--config", str(settings.data_dir)
    for variable, (option, value) in overridden.items():
        if env.get(variable, "") not in {"", value}:
            yield variable, option


def read_repositories(table: Table) -> tuple[RepositoryAddress, ...]:
    """Read the addresses and their patterns, the most specific first."""
    entries = []
    for key in table.values:
        pattern = (key if ":" in key else f"{DEFAULT_PLATFORM}:{key}").casefold()
        address = table.get(key, str).strip()
        if problem := _address_problem(address):
            table.fail(key, problem, _EXAMPLE)
        if address.startswith(_PATHS):
            address = str(table.file.parent / Path(address).expanduser())
        entries.append(RepositoryAddress(pattern, address))
    # Exact names first, then by the number of literal characters.
    literals = {entry: len(re.sub(r"[*?\[\]]", "", entry.pattern)) for entry in entries}
    return tuple(sorted(entries, key=lambda entry: (not set("*?[").isdisjoint(entry.pattern), -literals[entry])))


def address_of(entries: tuple[RepositoryAddress, ...], repository: Repository) -> str | None:
    """The address of a repository, or None if none is configured.

    Raises:
        ValueError: The service's name for it cannot be put into an address; the message says why.
    """
    name = f"{repository.platform or DEFAULT_PLATFORM}:{repository.path}".casefold()
    entry = next((entry for entry in entries if fnmatchcase(name, entry.pattern)), None)
    if entry is None:
        return None
    if "{" not in entry.address:
        return entry.address
    if not re.fullmatch(_NAME, repository.path) or {".", ".."} & set(repository.path.split("/")):
        raise ValueError(f"The service calls the repository {repository.path!r}: no address is made of such a name.")
    group, _, project = repository.path.rpartition("/")
    return entry.address.format(path=repository.path, owner=group, repo=project, group=group, project=project)


def _address_problem(address: str) -> str | None:
    """Why an address must not be passed to git; None if it is safe."""
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", address) if name not in _PLACEHOLDERS]
    if unknown:
        return f"there is no placeholder {{{unknown[0]}}}, only {', '.join(f'{{{name}}}' for name in _PLACEHOLDERS)}."
    if set("{}") & set(re.sub(r"\{\w+\}", "", address)):
        return "a brace stands alone."
    if address.startswith("-") or not address.isprintable() or re.match(r"[\w.+-]+::", address):
        return "this would be an option or a program to git, not an address."
    if parts := re.fullmatch(_WEB, address):
        login, at, host = parts[2].rpartition("@")
        if ":" in login or (at and parts[1].startswith("http")):
            return "an address holds no user or password: git asks your credential helper."
        if "{" in host:
            return "a placeholder must not choose the host."
        if host.startswith("-") or bool(host) == (parts[1] == "file"):
            return "this is not an address."
        return None
    if address.startswith(_PATHS) or ("://" not in address and re.fullmatch(_SCP, address)):
        return None
    return "this is not an address."
