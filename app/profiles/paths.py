"""Paths of the configuration and of each profile's data."""

import os
import re
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from app.profiles.settings import Profile, Settings

APPLICATION: Final = "runwarden"
CACHE_FILE: Final = "cache.sqlite3"
LEDGER_FILE: Final = "ledger.sqlite3"
STATE_FILE: Final = "state.sqlite3"
_EXAMPLE: Final = "config.example.toml"
_SLUG_LENGTH: Final = 40


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


def mirrors_folder(settings: Settings) -> Path:
    """The folder of the repositories that were fetched, which all profiles share; its files may be deleted."""
    return data_root(settings) / "repositories"


def example_text() -> str:
    """The commented example of a configuration: every key, its default and why."""
    from importlib import resources

    packaged = resources.files("app") / _EXAMPLE
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # A source checkout keeps the only copy at its top level.
    return (Path(__file__).parents[2] / _EXAMPLE).read_text(encoding="utf-8")


def data_root(settings: Settings) -> Path:
    """The folder above all profiles' data."""
    if settings.data_dir is not None:
        return settings.data_dir
    return _user_folder("XDG_DATA_HOME", ".local/share")


def _user_folder(variable: str, usual: str) -> Path:
    """Runwarden's own folder, in the one that the variable names or in the platform's."""
    # XDG: a relative path is ignored.
    if (named := Path(os.environ.get(variable, ""))).is_absolute():
        return named / APPLICATION
    return Path.home() / ("Library/Application Support" if sys.platform == "darwin" else usual) / APPLICATION
