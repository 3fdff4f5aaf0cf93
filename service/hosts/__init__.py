"""Code hosts: requests to them, their health, their tokens, and commits through their API.

Requests are HTTP without redirects, with a limited size and deadline.
"""

import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from service import network
from service.clock import seconds_until
from service.errors import ServiceError
from service.network import cut_off
from service.reference import without_login
from service.text import items, printable, table

LIMITED: Final = frozenset({403, 429})
"""Statuses with which code hosts refuse too many requests."""
GITHUB_VERSION: Final = {"X-GitHub-Api-Version": "2022-11-28"}
"""The header with the version of GitHub's API that the service speaks."""
_MAX_REASON: Final = 300
_MAX_WAIT_S: Final = 3600.0


class HostUnreachableError(ServiceError):
    """The host gave no usable answer in time; the text says what happened."""


class AnswerTooLargeError(HostUnreachableError):
    """The host's answer is larger than the caller accepts."""


@dataclass(frozen=True, slots=True)
class HostResponse:
    """A host's answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: Any
    """The JSON document; None when the body was not JSON."""
    raw: bytes
    took_s: float

    @property
    def is_success(self) -> bool:
        return self.status in range(200, 300)

    @property
    def reason(self) -> str:
        """The host's message about a failure, in brackets, or an empty text."""
        body = table(self.body)
        errors = items(body.get("errors"))
        details = [error.get("message") or error.get("code") if isinstance(error, dict) else error for error in errors]
        parts = [str(part) for part in (body.get("message") or body.get("error"), *details) if part]
        text = " ".join(printable("; ".join(parts)).split())[:_MAX_REASON]
        return f" ({text})" if text else ""

    @property
    def wait_s(self) -> float | None:
        """The seconds for which the host wants no requests; None if it does not state them."""
        headers, resets = self.headers, ["retry-after"]
        resets += [f"{kind}-reset" for kind in ("x-ratelimit", "ratelimit") if headers.get(f"{kind}-remaining") == "0"]
        waits = (seconds_until(headers.get(name, ""), time.time()) for name in resets)
        wait_s = next((wait_s for wait_s in waits if wait_s is not None), None)
        if wait_s is None and self.status in LIMITED and "rate limit" in self.reason.lower():
            return 60.0
        return None if wait_s is None else min(wait_s, _MAX_WAIT_S)


def _reason(error: Exception) -> str:
    """Return why a request failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted: {error.verify_message}; name its authority in SSL_CERT_FILE"
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if reason and isinstance(error, OSError | ValueError):
        return reason
    return f"{type(error).__name__} {reason}".strip()


def ask(
    url: str,
    timeout_s: float,
    *,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    document: object = None,
    largest: int = 1 << 20,
    addresses: Sequence[network.Address] | None = None,
) -> HostResponse:
    """Send one request, with a JSON document or bytes, and read at most `largest` bytes (or `HostUnreachableError`).

    `addresses`: the only ones to connect to; None: those of the host's name, for which the system is asked.
    """
    started = time.monotonic()
    sent = {"User-Agent": "runwarden", "Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    body = document if document is None or isinstance(document, bytes) else json.dumps(document).encode()
    sent |= {} if body is None else {"Content-Type": "application/json"}
    try:
        parts = urlsplit(url)
        host = network.Host.parse(parts.hostname or "")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if parts.scheme not in kinds:
            raise ValueError("the address must begin with https:// or http://")  # noqa: TRY301 — the handler below turns it into the same error as the others
        connection = kinds[parts.scheme](host.text, network.port_of(parts))
        try:
            opened = connection.sock = network.connect(parts, started + timeout_s, addresses)
            # The response takes the socket from the connection, and the deadline still needs it.
            with cut_off(started + timeout_s - time.monotonic(), lambda: opened):
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request(method, target, body=body, headers=sent)
                response = connection.getresponse()
                raw = response.read(largest + 1)
            if len(raw) > largest:
                raise AnswerTooLargeError(f"{without_login(url.partition('?')[0])}: the answer is too large")
            if response.length:
                # read() with a limit does not check that the announced length arrived.
                raise http.client.IncompleteRead(raw, response.length)
            if time.monotonic() - started >= timeout_s:
                # If no length was announced, a body that was cut off looks complete.
                raise TimeoutError
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() - started >= timeout_s:
            reason = f"no whole answer within {timeout_s:g} s"
        else:
            reason = _reason(error)
        raise HostUnreachableError(f"{without_login(url.partition('?')[0])}: {reason}") from error
    received = {name.lower(): value for name, value in response.getheaders()}
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    return HostResponse(response.status, received, document, raw, time.monotonic() - started)
