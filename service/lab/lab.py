"""The active lab: it stands before the application, carries out scripted faults, and answers under /_lab."""

import asyncio
import dataclasses
import hmac
import logging
import secrets
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.context import CONTEXT, Context
from service.clock import SECOND_MICROS, Clock, rfc3339
from service.lab import connection
from service.lab.faults import ConsumedFault, Fault, FaultScript, operation_of
from service.mail.message import MailError, MailMessage

PREFIX: Final = "/_lab"
_MARK: Final = (b"x-runwarden-lab", b"on")
_logger = logging.getLogger(__name__)


class ShiftedClock:
    """A clock that runs as another does, some seconds ahead of it or behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_s = 0

    def __call__(self) -> int:
        """Return the shifted present, in microseconds since 1970."""
        return self._clock() + self.offset_s * SECOND_MICROS


class FailingMailer:
    """A mailer that always fails (spec 7.1); the service's own sender retries what it refuses."""

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
        """Opens /_lab, and nothing else; new at every start, kept nowhere."""
        self.clock = ShiftedClock(context.expiry_clock)
        self.context = dataclasses.replace(context, expiry_clock=self.clock)
        self.script = FaultScript(lambda: rfc3339(context.clock()))

    def authorizes(self, authorization: str | None) -> bool:
        """Whether a request's Authorization header carries the lab's token."""
        given = (authorization or "").encode("utf-8", "replace")
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())


class FaultInjector:
    """The application with the lab before it; every answer is marked `X-Runwarden-Lab: on`."""

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
        await self._happen(fault, entry, (scope, receive, marked))
        entry.ended = True

    async def _happen(self, fault: Fault, entry: ConsumedFault, request: tuple[Scope, Receive, Send]) -> None:
        scope, receive, send = request
        if fault.kind == "status":
            await connection.read_all(receive)
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            await connection.refuse(send, fault.status or 500, _document(fault), headers)
        elif fault.kind == "reset":
            await connection.read_all(receive)
            await connection.reset(scope, receive)
        else:
            await self._execute(fault, entry, request)

    async def _execute(self, fault: Fault, entry: ConsumedFault, request: tuple[Scope, Receive, Send]) -> None:
        scope, receive, send = request
        if fault.kind == "partial":
            broken = dataclasses.replace(self._lab.context, mailer=FailingMailer())
            scope = {**scope, "state": {**scope["state"], CONTEXT: broken}}
        answer = await connection.hold_back(self._app, scope, receive)
        entry.executed_status = answer.status
        match fault.kind:
            case "lose_answer":
                await connection.reset(scope, receive)
            case "truncate":
                keep = len(answer.body) // 2 if fault.keep_bytes is None else fault.keep_bytes
                await connection.cut_off(scope, receive, send, answer, keep)
            case "drip":
                await connection.drip(receive, send, answer, fault.interval_s)
            case _:
                await connection.pass_on(send, answer)


def _document(fault: Fault) -> dict[str, str]:
    message = fault.message or f"the lab was told to answer {fault.status}"
    return {"message": message, "error_code": fault.error_code or "lab"}


def _marking(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), _MARK]}
        await send(message)

    return marked
