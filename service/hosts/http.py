"""HTTP to a code host: one request, no redirects, no proxies, a bounded answer, under one deadline."""

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

_LARGEST_ANSWER: Final = 1 << 20
_CHUNK: Final = 65_536


class UnreachableError(Exception):
    """The host gave no usable answer in time; the text says what happened."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host answered."""

    status: int
    body: Any
    """The JSON document; None when it was none."""
    took_s: float


def ask(url: str, timeout_s: float, *, headers: dict[str, str] | None = None) -> Answer:
    """Send one GET and read the answer.

    Raises:
        UnreachableError: No connection, no answer within the deadline, or no HTTP.
    """
    started = time.monotonic()
    given = {"User-Agent": "runwarden", "Accept": "application/json", "Accept-Encoding": "identity"} | (headers or {})
    try:
        parts = urlsplit(url)
        connection = _connection(parts.scheme, parts.hostname or "", parts.port, timeout_s)
        try:
            connection.request("GET", f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", headers=given)
            response = connection.getresponse()
            raw = _read(response, started + timeout_s)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnreachableError(f"{url}: {type(error).__name__} {error}") from error
    return Answer(response.status, _json(raw), time.monotonic() - started)


def _connection(scheme: str, host: str, port: int | None, timeout_s: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    raise ValueError("the address must begin with https:// or http://")


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    chunks: list[bytes] = []
    # A time-out of the socket starts anew with each byte; the deadline does not.
    while chunk := response.read1(_CHUNK):
        chunks.append(chunk)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer takes too long")
        if sum(map(len, chunks)) > _LARGEST_ANSWER:
            raise ValueError("the answer is too large")
    return b"".join(chunks)


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
