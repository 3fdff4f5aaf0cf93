"""The lab in front of the application: it carries out scripted faults, some of them on the connection itself."""

import asyncio
import dataclasses
import hmac
import json
import logging
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.context import CONTEXT, Context
from service.api.protocol import TRANSPORT
from service.clock import SECOND_MICROS, Clock, rfc3339
from service.lab.faults import ConsumedFault, Fault, FaultScript, operation_of
from service.mail.message import MailError, MailMessage

PREFIX: Final = "/_lab"
_MARK: Final = (b"x-runwarden-lab", b"on")
# With a linger time of zero, closing a socket sends RST instead of FIN.
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_logger = logging.getLogger(__name__)


class ShiftedClock:
    """A clock that is some seconds ahead of another, or behind it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_s = 0

    def __call__(self) -> int:
        """Return the shifted present, in microseconds since 1970."""
        return self._clock() + self.offset_s * SECOND_MICROS


class FailingMailer:
    """A mailer that always fails (spec 7.1); the mail sender retries later."""

    def send(self, message: MailMessage) -> None:
        """Refuse.

        Raises:
            MailError: Always.
        """
        raise MailError(f"the lab was told to hold back {message.invitation_id}")


class Lab:
    """The state of the lab: its token, its script, its clock, and the context that the application runs in."""

    def __init__(self, context: Context) -> None:
        self.token = f"rwlab_{secrets.token_urlsafe(24)}"
        """The bearer token for /_lab, and for nothing else; each start makes a new one, and it is not stored."""
        self.clock = ShiftedClock(context.expiry_clock)
        self.context = dataclasses.replace(context, expiry_clock=self.clock)
        self.script = FaultScript(lambda: rfc3339(context.clock()))

    def authorizes(self, authorization: str | None) -> bool:
        """Whether a request's Authorization header carries the lab's token."""
        given = (authorization or "").encode("utf-8", "replace")
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())


class FaultInjector:
    """The application with the lab in front of it; every answer is marked `X-Runwarden-Lab: on`."""

    def __init__(self, lab: Lab, app: ASGIApp, endpoints: FastAPI) -> None:
        self._lab = lab
        self._app = app
        self._endpoints = endpoints
        _logger.warning("THE LAB IS ON: faults, shifted expiry and made-up runs can be ordered under %s", PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or break it as the script says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        marked = _marking(send)
        path: str = scope["path"]
        if path == PREFIX or path.startswith(f"{PREFIX}/"):
            await self._endpoints(scope, receive, marked)
            return
        operation = operation_of(scope["method"], path)
        taken = None if operation is None else self._lab.script.take(operation, path)
        if taken is None:
            await self._app(scope, receive, marked)
            return
        fault, entry = taken
        _logger.warning("lab: fault %d (%s) hits %s", entry.fault_id, fault.kind, path)
        await asyncio.sleep(fault.delay_s)
        await self._carry_out(fault, entry, (scope, receive, marked))
        entry.ended = True

    async def _carry_out(self, fault: Fault, entry: ConsumedFault, request: tuple[Scope, Receive, Send]) -> None:
        scope, receive, send = request
        if fault.kind == "status":
            await _read_all(receive)
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            await _refuse(send, fault.status or 500, _document(fault), headers)
        elif fault.kind == "reset":
            await _read_all(receive)
            await _reset(scope, receive)
        else:
            await self._execute(fault, entry, request)

    async def _execute(self, fault: Fault, entry: ConsumedFault, request: tuple[Scope, Receive, Send]) -> None:
        scope, receive, send = request
        if fault.kind == "partial":
            broken = dataclasses.replace(self._lab.context, mailer=FailingMailer())
            scope = {**scope, "state": {**scope["state"], CONTEXT: broken}}
        answer = await _hold_back(self._app, scope, receive)
        entry.executed_status = answer.status
        match fault.kind:
            case "lose_answer":
                await _reset(scope, receive)
            case "truncate":
                keep = len(answer.body) // 2 if fault.keep_bytes is None else fault.keep_bytes
                await _cut_off(scope, receive, send, answer, keep)
            case "drip":
                await _drip(receive, send, answer, fault.interval_s)
            case _:
                await _pass_on(send, answer)


def _document(fault: Fault) -> dict[str, str]:
    message = fault.message or f"the lab was told to answer {fault.status}"
    return {"message": message, "error_code": fault.error_code or "lab"}


def _marking(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), _MARK]}
        await send(message)

    return marked


@dataclass(slots=True)
class _HeldAnswer:
    """An answer of the application that has not been sent yet."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    @property
    def start(self) -> Message:
        """The message that starts the answer; its Content-Length is that of the whole body, whatever is sent."""
        return {"type": "http.response.start", "status": self.status, "headers": self.headers}


async def _hold_back(app: ASGIApp, scope: Scope, receive: Receive) -> _HeldAnswer:
    """Let the application execute a request, and return its answer instead of sending it."""
    answer = _HeldAnswer()

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], list(message["headers"])
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, keep)
    return answer


async def _pass_on(send: Send, answer: _HeldAnswer) -> None:
    """Send the whole answer."""
    await send(answer.start)
    await send({"type": "http.response.body", "body": answer.body})


async def _read_all(receive: Receive) -> None:
    """Read the request to its end and drop it, so that the client has sent everything when it is answered."""
    while (await receive()).get("more_body", False):
        pass


async def _refuse(send: Send, status: int, document: Mapping[str, object], headers: Mapping[str, str]) -> None:
    """Answer without executing anything."""
    raw = json.dumps(document).encode()
    fields = {"Content-Type": "application/json", "Content-Length": str(len(raw))} | dict(headers)
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
    await _pass_on(send, _HeldAnswer(status, pairs, raw))


async def _reset(scope: Scope, receive: Receive) -> None:
    """Reset the connection: the client's next read fails."""
    transport = _transport(scope)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
    await _until_gone(receive)


async def _cut_off(scope: Scope, receive: Receive, send: Send, answer: _HeldAnswer, keep_bytes: int) -> None:
    """Send the head and the beginning of the body, at most all but its last byte, then close."""
    await send(answer.start)
    kept = answer.body[: min(keep_bytes, len(answer.body) - 1)]
    await send({"type": "http.response.body", "body": kept, "more_body": True})
    _transport(scope).close()
    await _until_gone(receive)


async def _drip(receive: Receive, send: Send, answer: _HeldAnswer, interval_s: float) -> None:
    """Send the body byte by byte, until it is out or the client has left."""
    await send(answer.start)
    for index in range(len(answer.body)):
        await send({"type": "http.response.body", "body": answer.body[index : index + 1], "more_body": True})
        if await _gone_within(receive, interval_s):
            return
    await send({"type": "http.response.body", "body": b""})


def _transport(scope: Scope) -> asyncio.Transport:
    transport: asyncio.Transport = scope["state"][TRANSPORT]
    return transport


async def _until_gone(receive: Receive) -> None:
    # uvicorn logs an error if the application returns without an answer while the client is connected.
    while (await receive())["type"] != "http.disconnect":
        pass


async def _gone_within(receive: Receive, wait_s: float) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            await _until_gone(receive)
    except TimeoutError:
        return False
    return True
