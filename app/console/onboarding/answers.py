"""The answers of the first start: their mistakes, and whether the service accepts them."""

import asyncio
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from app.api.client import Client
from app.api.errors import ApiError, ForbiddenError
from app.config import Profile
from app.config.address import base_address, is_loopback
from app.config.token import CommandToken, EnvToken, FileToken, Token, TokenError, TokenSource, resolve
from app.config.write import name_problem
from app.text import safe_text

TokenOrigin = Literal["pasted", "variable", "file", "command"]
"""The token's source. `pasted`: stored in a file of its own."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One of the token's sources, and the field that asks for it."""

    title: str
    label: str
    hint: str
    placeholder: str = ""


ORIGINS: Final[dict[TokenOrigin, Origin]] = {
    "pasted": Origin(
        "pasted here, kept in a file only you can read", "token", "From its settings: API, Create API Token."
    ),
    "variable": Origin("an environment variable", "variable", "It must be set whenever the console starts."),
    "file": Origin(
        "a file that is there already", "file", "Readable by you alone: chmod 600.", "~/.secrets/runwarden.token"
    ),
    "command": Origin(
        "what a command prints (a password manager)",
        "command",
        "With its arguments; no shell is involved.",
        "pass show runwarden",
    ),
}
_DULL: Final = frozenset({"api", "www", "app", "runs", "agents"})
"""First parts of a host name that do not identify its owner."""
UNWRITTEN: Final = Path()
"""Placeholder until a pasted token is written."""
DEADLINE_S: Final = 20.0
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "not_authorized": ("The service refused the token (401).", "Is it whole, of this service, and not expired?"),
    "forbidden": (
        "The service accepts the token, but it may not list runs (403).",
        "It needs Administrator scope, and its organization API access.",
    ),
    "not_found": ("There is no such API at this address (404).", "The address ends in the version, such as /v1."),
    "rate_limited": ("The organization's rate limit is spent (429).", "Try again in a minute."),
    "server_failed": ("The service fails to answer.", "Try again later."),
    "unusable_answer": ("Something answers there, but not this API.", "Is it the service's base address?"),
    "timed_out": (f"Nothing answered within {DEADLINE_S:.0f} s.", "Is the address right, and is a VPN needed?"),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers, as typed."""

    base_url: str
    name: str
    origin: TokenOrigin
    token: str
    """The token, the variable, the path or the command line, depending on its origin."""
    read_only: bool

    def __repr__(self) -> str:
        # A token may be among them.
        return f"Answers({self.name!r})"


def suggested_name(base_url: str) -> str:
    """Suggest a profile's name from the service's host."""
    try:
        host = urlsplit(base_address(base_url)).hostname or ""
    except ValueError:
        return ""
    if is_loopback(host):
        return "local"
    parts = host.split(".")
    names = [part for part in parts[: max(1, len(parts) - 1)] if part not in _DULL]
    return (names or parts)[0]


def validated(answers: Answers, here: Path) -> tuple[Profile | None, Mapping[str, str]]:
    """The profile, or None with the problems by field; relative paths start at `here`."""
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
    return Profile(answers.name.strip(), base_url, source, answers.read_only), problems


def _source(answers: Answers, here: Path) -> TokenSource | str:
    """The token's source, or the problem with it."""
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
    # A text that begins with a scheme keeps its lower case.
    return f"{text}." if text.startswith("http") else f"{text[:1].upper()}{text[1:]}."


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of asking the service."""

    is_good: bool
    text: str
    """What happened and what to do; printable."""
    token_is_at_fault: bool = False


async def check(new: Profile, pasted: str) -> CheckResult:
    """Ask the service for its newest run, with the pasted token or the one from the profile's source."""
    try:
        token = Token(pasted) if pasted else await _resolved(new.token)
    except TokenError as error:
        return CheckResult(is_good=False, text=safe_text(str(error)), token_is_at_fault=True)
    client = Client(new.base_url, token, deadline_s=DEADLINE_S)
    try:
        await client.list_runs(page_size=1)
    except ApiError as error:
        return _refused(error)
    finally:
        await client.aclose()
    return CheckResult(is_good=True, text="The service accepts the token.")


async def _resolved(source: TokenSource) -> Token:
    env = dict(os.environ)
    try:
        # A command or a keyring may take its time.
        return await asyncio.to_thread(resolve, source, env)
    finally:
        if isinstance(source, EnvToken) and source.variable in env:
            # Reading removed it; the console needs it again.
            os.environ[source.variable] = env[source.variable]


def _refused(error: ApiError) -> CheckResult:
    what, cure = _WORDS.get(error.kind, (safe_text(error.message, limit=200), "Is the address right?"))
    is_token = error.kind == "not_authorized" or isinstance(error, ForbiddenError)
    return CheckResult(is_good=False, text=f"{what} {cure}", token_is_at_fault=is_token)
