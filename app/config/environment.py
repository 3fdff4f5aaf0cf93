"""Settings from the environment, which the command line overrides."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from app.config.address import base_address
from app.config.settings import ENVIRONMENT_PROFILE, ConfigError, Profile, Settings
from app.config.token import EnvToken


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


def with_environment(settings: Settings, env: Mapping[str, str], choice: Choice) -> Settings:
    """The file's settings with the environment's on top, and the command line's choice above both.

    Raises:
        ConfigError: The address in the environment counts, and cannot be used.
    """
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
