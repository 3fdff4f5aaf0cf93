"""The heartbeat: one GET to the user's own address, without data of the service and without a token."""

from typing import Final
from urllib.parse import urlsplit

import httpx

from app.config.address import is_loopback

DEADLINE_S: Final = 10.0


async def beat(address: str) -> str | None:
    """Request the address once. Return the failure, without the address, which may be a secret; or None."""
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not is_usable or not parts.hostname:
            return "The heartbeat's address must begin with https:// (http only on loopback)."
        # A redirect leads to another address than the configured one: it counts as a failure.
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S, follow_redirects=False) as client:
            answer = await client.get(address)
    except ValueError:
        return "The heartbeat's address cannot be read as one."
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return f"The heartbeat was not taken: {type(error).__name__}."
    return None if answer.is_success else f"The heartbeat was answered with {answer.status_code}."
