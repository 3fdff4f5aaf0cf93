"""What a newcomer answered, as a profile to write, or as what is wrong with the answers. Pure."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from app.address import base_address, is_loopback
from app.config.write import NewProfile, name_problem
from app.token import CommandToken, EnvToken, FileToken, Token, TokenError, TokenSource

Origin = Literal["pasted", "variable", "file", "command"]
"""Where the token comes from. `pasted`: from here, and into a file of its own."""

ORIGINS: Final[dict[Origin, str]] = {
    "pasted": "pasted here, kept in a file only you can read",
    "variable": "an environment variable",
    "file": "a file that is there already",
    "command": "what a command prints (a password manager)",
}
_DULL: Final = frozenset({"api", "www", "app", "runs", "agents"})
"""First parts of a host's name that say nothing of whose it is."""
UNWRITTEN: Final = Path()
"""Where a pasted token will be is known once it is written."""


@dataclass(frozen=True, slots=True)
class Answers:
    """As typed."""

    base_url: str
    name: str
    origin: Origin
    token: str
    """The token itself, the variable, the path or the command line, by its origin."""
    read_only: bool

    def __repr__(self) -> str:
        # A token may be among them.
        return f"Answers({self.name!r})"


def suggested_name(base_url: str) -> str:
    """A name for a service's profile: the telling part of its host."""
    try:
        host = urlsplit(base_address(base_url)).hostname or ""
    except ValueError:
        return ""
    if is_loopback(host):
        return "local"
    parts = host.split(".")
    telling = [part for part in parts[: max(1, len(parts) - 1)] if part not in _DULL]
    return (telling or parts)[0]


def understood(answers: Answers, here: Path) -> tuple[NewProfile | None, Mapping[str, str]]:
    """The profile, and what is wrong by field; there is a profile where nothing is.

    Args:
        answers: As typed.
        here: Where relative paths count from.
    """
    problems: dict[str, str] = {}
    base_url = ""
    try:
        base_url = base_address(answers.base_url)
    except ValueError as error:
        problems["base_url"] = _sentence(str(error))
    if problem := name_problem(answers.name.strip()):
        problems["name"] = problem
    source = _source(answers, here)
    if isinstance(source, str):
        problems["token"] = source
    if problems or isinstance(source, str):
        return None, problems
    return NewProfile(answers.name.strip(), base_url, source, answers.read_only), problems


def _source(answers: Answers, here: Path) -> TokenSource | str:
    """Where the token comes from, or what is wrong with it."""
    typed = answers.token.strip()
    match answers.origin:
        case "pasted":
            return _pasted(typed)
        case "variable":
            is_name = typed.isascii() and typed.replace("_", "a").isalnum() and not typed[0].isdigit()
            return EnvToken(typed) if is_name else "A variable's name is letters, digits and _."
        case "file":
            return FileToken(here / Path(typed).expanduser()) if typed else "Which file?"
        case "command":
            return _command(typed)


def _pasted(typed: str) -> TokenSource | str:
    try:
        Token(typed)
    except TokenError as error:
        return str(error)
    return FileToken(UNWRITTEN)


def _command(typed: str) -> TokenSource | str:
    try:
        argv = tuple(shlex.split(typed))
    except ValueError:
        return "A quote is not closed."
    return CommandToken(argv) if argv else "Which command?"


def _sentence(text: str) -> str:
    # A scheme is written as it is.
    return f"{text}." if text.startswith("http") else f"{text[:1].upper()}{text[1:]}."
