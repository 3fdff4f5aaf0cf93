"""The heartbeat: one GET to an address of the user's own, which tells nothing of the service and gets no token."""

from typing import Final
from urllib.parse import urlsplit

import httpx

from app.address import is_loopback

DEADLINE_S: Final = 10.0


async def beat(address: str) -> str | None:
    """Ask for the address once. Returns what went wrong, without the address, which may be a secret; or None."""
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not is_usable or not parts.hostname:
            return "The heartbeat's address must begin with https:// (http only on loopback)."
        # A redirect would be another address than the one that was chosen: it is not followed, and is a failure.
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S, follow_redirects=False) as client:
            answer = await client.get(address)
    except ValueError:
        return "The heartbeat's address cannot be read as one."
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return f"The heartbeat was not taken: {type(error).__name__}."
    return None if answer.is_success else f"The heartbeat was answered with {answer.status_code}."
