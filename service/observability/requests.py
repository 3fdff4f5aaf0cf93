"""Requests for operators: each has an id, one log line, and a count in the metrics."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.observability.log import bound

RECORD: Final = "runwarden.request"
"""Key in the ASGI scope's `state`: the record of this request."""
UNMATCHED: Final = "unmatched"
"""The route of a request that matches none: its own path is arbitrary text from the caller."""
_HEADER: Final = b"x-request-id"
_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_VERSION: Final = re.compile(r"/v[0-9]+(?=/)")
_PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})
_FAULT: Final = 500
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RequestRecord:
    """One request, filled in while it is answered."""

    request_id: str
    method: str
    route: str = UNMATCHED
    """The template of its path."""
    status: int | None = None
    """The answer's status; None: the connection ended without an answer."""
    duration_s: float = 0.0
    organization: str | None = None
    """The slug of the caller's organization; None: the caller is unknown."""
    actor: str | None = None
    """The alias of the caller's token or, without one, its id."""
    token_id: str | None = None


def observe_requests(app: ASGIApp, count: Callable[[RequestRecord], None]) -> ASGIApp:
    """Wrap the application: log and count every request, and name it in the answer's `X-Request-Id`."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        names = [value for name, value in scope["headers"] if name == _HEADER]
        is_named = len(names) == 1 and _WELL_FORMED.fullmatch(names[0])
        request_id = bytes(names[0]).decode("ascii") if is_named else f"req_{secrets.token_hex(12)}"
        record = RequestRecord(request_id, scope["method"])
        scope.setdefault("state", {})[RECORD] = record

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                mark = (_HEADER, record.request_id.encode())
                message = {**message, "headers": [*message.get("headers", ()), mark]}
            await send(message)

        started = time.perf_counter()
        with bound(request_id=record.request_id):
            try:
                await app(scope, receive, send_noted)
            finally:
                record.duration_s = time.perf_counter() - started
                template: str | None = getattr(scope.get("route"), "path", None)
                if template is not None:
                    # The framework names a route without the prefix of its router.
                    prefix = _VERSION.match(scope["path"])
                    record.route = template if prefix is None or _VERSION.match(template) else prefix[0] + template
                count(record)
                has_failed = (record.status or 0) >= _FAULT
                # A successful probe has no line in the log.
                if has_failed or record.route not in _PROBES:
                    keys = ("actor", "token_id", "organization", "method", "route", "status")
                    fields = {name: getattr(record, name) for name in keys}
                    fields |= {"duration_ms": round(record.duration_s * 1000, 1)}
                    _logger.log(logging.WARNING if has_failed else logging.INFO, "request", extra=fields)

    return answer


def request_record(scope: Scope) -> RequestRecord:
    """Return the record of a request, or an unused one where no observer wraps the application."""
    record: RequestRecord = scope.get("state", {}).get(RECORD) or RequestRecord("", "")
    return record
