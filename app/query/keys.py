"""The keys of the query language: names, what they take, and what they are for."""

from dataclasses import dataclass
from typing import Final, Literal

Meaning = Literal["status", "repo", "branch", "since", "until", "is"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

    name: Meaning
    aliases: tuple[str, ...]
    example: str
    about: str


KEYS: Final = (
    Key("status", (), "status:failed,queued", "The run's status; several: any of them."),
    Key("repo", ("repository",), "repo:acme/*", "The repository; * matches anything."),
    Key("branch", (), "branch:agent/*", "The branch; * matches anything."),
    Key("since", ("from",), "since:7d", "Created then or later: 2h, 7d, 2026-05-01."),
    Key("until", ("to",), "until:2026-05-01", "Created then or earlier; a date includes its day."),
    Key("is", (), "is:active", "active, ended or stuck."),
)
_BY_NAME: Final = {name: key.name for key in KEYS for name in (key.name, *key.aliases)}
STATES: Final = ("active", "ended", "stuck")
"""What `is:` takes."""


def meaning(name: str) -> Meaning | None:
    """What a key means, in any case; None: it is no key."""
    return _BY_NAME.get(name.casefold())


def near(name: str) -> str | None:
    """The key that was probably meant by a name that is none."""
    from difflib import get_close_matches  # only for what is no key; the console starts without it

    return next(iter(get_close_matches(name.casefold(), _BY_NAME, n=1, cutoff=0.6)), None)


def key_of(name: Meaning) -> Key:
    """A key by its meaning."""
    return next(key for key in KEYS if key.name == name)
