"""The settings as frozen values; a field's default here is the program's default."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.config.errors import ConfigError
from app.token import TokenSource

ENVIRONMENT_PROFILE: Final = "environment"
"""The profile that RUNWARDEN_BASE_URL and RUNWARDEN_TOKEN make."""


@dataclass(frozen=True, slots=True)
class PollSettings:
    """How often and how much is asked of the service."""

    runs_s: float = 10.0
    """Seconds between looks at the runs."""
    health_s: float = 30.0
    """Seconds between looks at the code hosts' health."""
    deadline_s: float = 20.0
    """Seconds within which one request must be answered in full."""
    page_size: int = 100
    """Runs a page, 1 to 100 (spec 8)."""
    first_runs: int = 1_000
    """How many runs the first sync fetches."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How the console looks and what it links to."""

    theme: str = "runwarden"
    run_url: str = ""
    """A web address with `{run_id}`, `{repository}` or `{branch}` in it; empty: runs are not opened in a browser."""
    health_ok: tuple[str, ...] = ("ok", "healthy", "connected")
    """Words of a code host's status that mean that all is well, in lower case; the spec names none."""


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
    """Normal form, see `app.address.base_address`."""
    token: TokenSource
    read_only: bool = False
    """Nothing is ever sent that changes anything."""
    poll: PollSettings = field(default_factory=PollSettings)
    """`[poll]`, with this profile's own `[profiles.NAME.poll]` on top."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured."""

    default_profile: str | None = None
    """None: the environment's profile, or the only one there is."""
    data_dir: Path | None = None
    """None: the user's data folder, as the platform has it."""
    poll: PollSettings = field(default_factory=PollSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    templates: tuple[Template, ...] = ()
    profiles: tuple[Profile, ...] = ()
    """In the order of the file; the environment's first."""
    file: Path | None = None
    """The file these came from; None: there is none."""

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
                "config init` makes. To look around without a service: `runwarden demo`.",
                file=self.file,
            )
        if wanted is None:
            return ConfigError(
                "There are several profiles and none is the default.",
                cure=f"Name one with --profile or in default_profile: {names}.",
                file=self.file,
            )
        return ConfigError(f"There is no profile {wanted!r}.", cure=f"There are: {names}.", file=self.file)
