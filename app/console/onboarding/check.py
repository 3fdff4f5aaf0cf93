"""Whether a service answers at an address and takes a token: asked before anything is written."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.api.client import Client
from app.api.errors import ApiError, ForbiddenError
from app.config.write import NewProfile
from app.text import safe_text
from app.token import EnvToken, Token, TokenError, TokenSource, resolve

DEADLINE_S: Final = 20.0

_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "not_authorized": ("The service refused the token (401).", "Is it whole, of this service, and not expired?"),
    "forbidden": (
        "The service takes the token, but it may not list runs (403).",
        "It needs Administrator scope, and its organization API access.",
    ),
    "not_found": ("There is no such API at this address (404).", "The address ends in the version, such as /v1."),
    "rate_limited": ("The organization's rate limit is spent (429).", "Try again in a minute."),
    "server_failed": ("The service fails to answer.", "Try again later."),
    "unusable_answer": ("Something answers there, but not this API.", "Is it the service's base address?"),
    "timed_out": (f"Nothing answered within {DEADLINE_S:.0f} s.", "Is the address right, and is a VPN needed?"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of asking."""

    is_good: bool
    text: str
    """What happened, and what to do about it; printable."""
    token_is_at_fault: bool = False


async def check(new: NewProfile, pasted: str) -> Verdict:
    """Asks the service for its newest run.

    Args:
        new: Where, and where the token is.
        pasted: The token itself, if it was pasted; empty: `new` says where it is.
    """
    try:
        token = Token(pasted) if pasted else await _resolved(new.token)
    except TokenError as error:
        return Verdict(is_good=False, text=safe_text(str(error)), token_is_at_fault=True)
    client = Client(new.base_url, token, deadline_s=DEADLINE_S)
    try:
        await client.list_runs(page_size=1)
    except ApiError as error:
        return _refused(error)
    finally:
        await client.aclose()
    return Verdict(is_good=True, text="The service answers and takes the token.")


async def _resolved(source: TokenSource) -> Token:
    env = dict(os.environ)
    try:
        # A command or a keyring may take its time.
        return await asyncio.to_thread(resolve, source, env)
    finally:
        if isinstance(source, EnvToken) and source.variable in env:
            # Reading took it away; the console that opens next reads it again.
            os.environ[source.variable] = env[source.variable]


def _refused(error: ApiError) -> Verdict:
    what, cure = _WORDS.get(error.kind, (safe_text(error.message, limit=200), "Is the address right?"))
    is_token = error.kind == "not_authorized" or isinstance(error, ForbiddenError)
    return Verdict(is_good=False, text=f"{what} {cure}", token_is_at_fault=is_token)
