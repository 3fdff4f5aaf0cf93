"""One request and its answer, with the token masked, within one deadline."""

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

import httpx
import msgspec
from msgspec import Struct

from app.api.errors import (
    ApiError,
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    NoTokenError,
    NotSendableError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    RequestTimeoutError,
    ServerFailedError,
    UncertainError,
    UnreachableError,
    UnusableAnswerError,
)
from app.api.network import REFUSED, TRUST, Network
from app.api.timestamps import retry_after_s
from app.engine.text import shorten
from app.profiles.token import ReadToken, Token, TokenError, TokenSource, source_after_refusal
from app.profiles.values import base_address
from app.version import __version__

log = logging.getLogger(__name__)

CommitHook = Callable[[], Awaitable[None]]
"""Awaited at the last moment before a write's first byte; if it raises, nothing is sent."""

_MAX_BYTES: Final = 8 << 20
"""The largest answer that is read, unless a call allows a larger one."""
_MAX_FAILURE_BYTES: Final = 64 * 1024
_FIRST_BYTE: Final = "http11.send_request_headers.started"
_KEEP_S: Final = 2.0
"""Shorter than any server's patience: a reused connection has not just been closed by the server."""
_CONNECTIONS: Final = 16
_READ: Final = frozenset({200})
_WRITTEN: Final = frozenset({200, 201, 202})
"""The spec leaves most of the success statuses open (4.6)."""
_LAB: Final = "X-Runwarden-Lab"
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~%-]+)+")

_MIN_TOKEN: Final = 6
"""A shorter token protects nothing, and would occur in ordinary words."""
_MAX_MESSAGE: Final = 2_000
_MAX_CODE: Final = 200
_BY_STATUS: Final[Mapping[int, type[RefusedError]]] = {401: NotAuthorizedError, 403: ForbiddenError, 404: NotFoundError}
_CERTAIN: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 428, 429, 431, 451}
)
"""The 4xx that mean, by the spec or by RFC 9110 and 6585, that the request was not carried out. Any other one may come
after it was: 406 judges the answer only, 408 and 499 a connection, 424 a part, 425 an early copy of the request.
"""


def mask(text: str, token: Token) -> str:
    """The text without the token, plain, JSON-escaped, percent-encoded or in hexadecimal; JSON stays valid."""
    value = token.reveal()
    if len(value) < _MIN_TOKEN:
        return text
    escaped = json.dumps(value)[1:-1]
    codes = "".join(f"\\u{ord(letter):04x}" for letter in value)
    capitals = codes.upper().replace("\\U", "\\u")
    percent = "".join(f"%{byte:02X}" for byte in value.encode())
    quoted = quote(value, safe="")
    forms = {value, escaped, escaped.replace("/", "\\/"), codes, capitals, percent, percent.lower(), quoted}
    if quoted != value:
        forms.add(quoted.lower())
    # Longer forms first: they may hold a shorter one.
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "[token]")
    return text


class Reply(Struct, frozen=True):
    """A successful answer that was read completely."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    """The headers by name; case does not matter."""


class Call(Struct, frozen=True):
    """A request, below the base address."""

    path: str
    query: Sequence[tuple[str, str]] = ()
    body: str | None = None
    """The JSON to write, or None if this reads."""
    patience_s: float = 0.0
    """How much longer than usual the answer may take, because the service was asked to wait."""
    most_bytes: int = _MAX_BYTES


@dataclass(slots=True)
class _Passage:
    """The progress of one request; httpx awaits it as its trace."""

    before_first_byte: CommitHook | None
    begun: bool = False
    """Whether bytes of the request may have left this machine."""

    async def __call__(self, event: str, info: dict[str, object]) -> None:
        # A proxy is asked for a tunnel first: nothing of the request has left this machine then.
        if event != _FIRST_BYTE or getattr(info.get("request"), "method", b"") == b"CONNECT":
            return
        if self.before_first_byte is not None:
            try:
                await self.before_first_byte()
            except Exception as error:
                raise _StoppedError(error) from error
        self.begun = True


class _StoppedError(Exception):
    """`before_first_byte` raised its argument; wrapped so that it cannot pass for an error of the connection."""


@dataclass(slots=True)
class Transport:
    """Requests to one service with one token, without redirects, cookies or compressed bodies."""

    base_url: str
    token: Token | TokenError | None
    """The token; without one, None or an error with the reason."""
    deadline_s: float
    on_headers: Callable[[Mapping[str, str], float], None]
    """Called with each answer's headers, and when its request was sent: seconds since 1970."""
    network: Network
    source: TokenSource | None
    """Where a refused token is read again, or None if it is not."""
    _last_reading_s: float | None = field(default=None, init=False)
    """When the token was read from its source (`time.monotonic`); None if it came from elsewhere."""
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    in_lab: bool = field(default=False, init=False)
    """Whether the last answer came from a lab, which scripts faults."""
    _lanes: dict[bool, httpx.AsyncHTTPTransport] = field(default_factory=dict, init=False)
    """The connections: one pool for reads (False), one for writes (True)."""

    def __post_init__(self) -> None:
        """Check the address, without any I/O; `ValueError`: it cannot be used."""
        self.base_url = base_address(self.base_url)
        if self.source is not None and not isinstance(self.source, ReadToken):
            self._last_reading_s = time.monotonic()

    async def aclose(self) -> None:
        while self._lanes:
            _, lane = self._lanes.popitem()
            await lane.aclose()

    async def exchange(self, call: Call, *, before_first_byte: CommitHook | None = None) -> Reply:
        """Send a request once and read its answer; a read is sent again if its token was replaced."""
        used = self.token
        try:
            return await self._send(call, before_first_byte)
        except (NotAuthorizedError, NoTokenError):
            if not await self._has_another_token(used) or call.body is not None:
                raise
            return await self._send(call, None)

    async def _has_another_token(self, used: Token | TokenError | None) -> bool:
        """Whether there is another token than the one that was refused; its source is read again from time to time."""
        async with self._reading:
            if self.token is used and self.source and (again := source_after_refusal(self.source)) is not None:
                source, after_s = again
                now_s = time.monotonic()
                if self._last_reading_s is not None and now_s < self._last_reading_s + after_s:
                    return False
                self._last_reading_s = now_s
                try:
                    token = await asyncio.to_thread(source.read, os.environ)
                except (TokenError, OSError):
                    return False  # The refusal is the more useful error.
                if not isinstance(used, Token) or token.reveal() != used.reveal():
                    self.token = token
        return self.token is not used

    async def _send(self, call: Call, before_first_byte: CommitHook | None) -> Reply:
        if not isinstance(token := self.token, Token):
            raise NoTokenError(str(token or "No token for this service. See why: runwarden token check"))
        passage = _Passage(before_first_byte)
        deadline_s = self.deadline_s + call.patience_s
        try:
            request = self._request(call, token, passage)
        except (ValueError, httpx.InvalidURL) as error:
            raise NotSendableError(f"The request cannot be sent: {error}") from error
        begun_s = time.monotonic()
        outcome = "was broken off"
        try:
            async with asyncio.timeout(deadline_s):
                lane = await self._lane(writes=call.body is not None)
                sent_s = time.time()
                async with aclosing(await lane.handle_async_request(request)) as response:
                    self.in_lab = response.headers.get(_LAB) == "on"
                    self.on_headers(response.headers, sent_s)
                    reply = await _reply(response, call, token)
            outcome = "answered"
        except ApiError as error:
            outcome = f"failed ({error.kind})"
            raise
        except _StoppedError as stopped:
            raise stopped.args[0] from None
        except TimeoutError as error:
            reason = f"No complete answer within {deadline_s:g} s."
            raise RequestTimeoutError(reason, surely_not_sent=not passage.begun) from error
        # The group: a connection tried over several addresses fails as several errors. Its cause is not chained: a
        # broken header's error quotes it, and a log would print an echoed secret.
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ExceptionGroup) as error:
            text = mask(str(error), token)
            # Most resets carry no message, and the exception's class name adds nothing.
            detail = f": {text.rstrip('.')}." if text else "."
            if passage.begun:
                raise UnreachableError(f"The connection was lost before the answer was complete{detail}") from None
            detail += f" {TRUST}" if REFUSED in text else ""
            way = self.network.through(self.base_url)
            raise UnreachableError(f"No connection to {self.base_url}{way}{detail}", surely_not_sent=True) from None
        finally:
            took_ms = (time.monotonic() - begun_s) * 1000
            # Neither headers nor body are ever part of a log.
            log.debug("%s %s %s after %.0f ms", request.method, request.url.raw_path.decode(), outcome, took_ms)
        return reply

    def _request(self, call: Call, token: Token, passage: _Passage) -> httpx.Request:
        target = call.path
        if not _PATH.fullmatch(target) or {".", ".."} & set(target.split("/")):
            raise ValueError(f"{target!r} is not a path below the base address")
        if call.query:
            target += "?" + urlencode(call.query, quote_via=quote, safe="")
        origin = httpx.URL(self.base_url)
        url = httpx.URL(self.base_url + target)
        # The token is sent only to this address: odd input that a URL library might reinterpret is refused here.
        path = origin.raw_path.rstrip(b"/") + target.encode()
        if (url.scheme, url.netloc, url.raw_path) != (origin.scheme, origin.netloc, path):
            raise ValueError("the address would not be the one that was asked for")
        headers = {
            "Authorization": f"Bearer {token.reveal()}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"runwarden/{__version__}",
        }
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        content = None if call.body is None else call.body.encode()
        method = "GET" if content is None else "POST"
        return httpx.Request(method, url, headers=headers, content=content, extensions={"trace": passage})

    async def _lane(self, *, writes: bool) -> httpx.AsyncHTTPTransport:
        if writes not in self._lanes:
            # A write never uses a kept connection: one that the server has just closed would leave its outcome unknown
            # for nothing.
            reused = 0 if writes else _CONNECTIONS
            limits = httpx.Limits(
                max_connections=_CONNECTIONS, max_keepalive_connections=reused, keepalive_expiry=_KEEP_S
            )
            try:
                lane = await self.network.connections(self.base_url, limits)
            except ValueError as error:
                raise NotSendableError(f"The service cannot be asked: {error}.") from error
            self._lanes.setdefault(writes, lane)
        return self._lanes[writes]


async def _reply(response: httpx.Response, call: Call, token: Token) -> Reply:
    """A successful answer, read completely; any other raises an `ApiError`."""
    status = response.status_code
    if status // 100 in (4, 5):
        raise await _failure(response, token)
    if status not in (_READ if call.body is None else _WRITTEN):
        reason = f"The service answered {status}, which the API does not have."
        if response.is_redirect:
            target = mask(response.headers.get("Location", "nowhere"), token)[:200]
            reason = f"The service redirects to {target!r}; the token is never sent there. Correct base_url."
        raise UnusableAnswerError(reason, status=status)
    return Reply(status, await _body(response, call.most_bytes, token), response.headers)


async def _body(response: httpx.Response, max_bytes: int, token: Token) -> bytes:
    status = response.status_code
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        # A compressed answer could unpack to any size, and none was requested.
        reason = mask(f"The answer is encoded ({encoding}), which was not asked for.", token)
        raise UnusableAnswerError(reason, status=status)
    received = bytearray()
    async for chunk in response.aiter_raw():
        received += chunk
        if len(received) > max_bytes:
            raise UnusableAnswerError(f"The answer is larger than {max_bytes // 1024} KiB.", status=status)
    return mask(received.decode("latin-1"), token).encode("latin-1")


class _FailureBody(Struct, frozen=True):
    """The body of a failed answer (spec 2.8)."""

    message: str | None = None
    error_code: str | None = None


async def _failure(response: httpx.Response, token: Token) -> RefusedError:
    """The error of a 4xx or 5xx answer (spec 2.8, 7 and 8).

    An unreadable body does not matter: the status alone decides. The service's message is kept.
    """
    status = response.status_code
    try:
        body = msgspec.json.decode(await _body(response, _MAX_FAILURE_BYTES, token), type=_FailureBody)
    except (UnusableAnswerError, httpx.HTTPError, ValueError, RecursionError):
        body = _FailureBody()
    phrase = f" {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else ""
    message = shorten(body.message or f"The service answered {status}{phrase}.", _MAX_MESSAGE)
    code = None if body.error_code is None else body.error_code[:_MAX_CODE]
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        retry_after = response.headers.get("Retry-After")
        # A date is relative to the answer's own.
        wait_s = None
        if retry_after is not None:
            wait_s = retry_after_s(retry_after, response.headers.get("Date"))
        return RateLimitedError(message, error_code=code, retry_after_s=wait_s)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerFailedError(message, status=status, error_code=code)
    kind = _BY_STATUS.get(status, RejectedError if status in _CERTAIN else UncertainError)
    return kind(message, status=status, error_code=code)
