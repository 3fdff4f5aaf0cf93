"""The lab: faults, time and history on demand, for testing clients of the service. It must be switched on.

It is in front of the application, and carries out scripted faults, some of them on the connection itself. Its endpoints
under /_lab require the lab's token.
"""

import asyncio
import contextlib
import hmac
import itertools
import logging
import re
import secrets
import socket
import struct
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, Field, model_validator
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from service.api import errors
from service.api.app import build
from service.api.bodies import body_reader
from service.api.context import CONTEXT, Context
from service.api.errors import HttpError
from service.api.protocol import TRANSPORT
from service.clock import CENTURY_MICROS, SECOND_MICROS, rfc3339
from service.lab import history
from service.lab.history import HistoryRequest
from service.outgoing.mail import MailError, MailMessage
from service.page.app import with_page

_CENTURY_S = CENTURY_MICROS // SECOND_MICROS
PREFIX: Final = "/_lab"
# With a linger time of zero, closing a socket sends RST instead of FIN.
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_logger = logging.getLogger(__name__)


Operation = Literal["create_organization", "list_runs", "start_run", "start_agent", "read_health", "onboard_project"]

_PATHS: Final[tuple[tuple[str, re.Pattern[str], Operation], ...]] = (
    ("POST", re.compile("/v1/external/organizations"), "create_organization"),
    ("GET", re.compile("/v1/external/runs"), "list_runs"),
    ("POST", re.compile("/v1/external/runs"), "start_run"),
    ("POST", re.compile("/v1/external/agents/[^/]+/runs"), "start_agent"),
    ("GET", re.compile("/v1/external/installation/health"), "read_health"),
    ("POST", re.compile("/v1/external/gitlab/projects"), "onboard_project"),
)
Kind = Literal["status", "delay", "reset", "lose_answer", "truncate", "drip", "partial"]
_ACCOUNTED: Final = 10_000
"""The account keeps this many entries; older ones are dropped, and counted."""


class Fault(BaseModel, strict=True, frozen=True, extra="forbid", hide_input_in_errors=True):
    """A scripted fault, as POST /_lab/faults takes it."""

    operation: Operation | Literal["any"]
    kind: Kind
    times: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    delay_s: Annotated[float, Field(ge=0, le=3600)] = 0
    """The pause before anything else happens."""
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    """The status in place of the operation's answer (for `status`)."""
    retry_after: Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,200}$")] | None = None
    """The header Retry-After, seconds or a date, unchanged (for `status`)."""
    message: str | None = None
    error_code: str | None = None
    keep_bytes: Annotated[int, Field(ge=0)] | None = None
    """How much of the body is sent; half of it if left out (for `truncate`)."""
    interval_s: Annotated[float, Field(ge=0, le=60)] = 0.1
    """The pause after each byte of the body (for `drip`)."""

    @model_validator(mode="after")
    def check_kind(self) -> "Fault":
        if (self.kind == "status") != (self.status is not None):
            raise ValueError("status belongs to the kind 'status', which needs it")
        if self.kind == "partial" and self.operation != "create_organization":
            raise ValueError("'partial' is a fault of create_organization")
        if self.kind == "delay" and not self.delay_s:
            raise ValueError("'delay' needs delay_s")
        return self


@dataclass(slots=True)
class PendingFault:
    """A scripted fault, and how many requests it will still affect."""

    id: int
    fault: Fault
    left: int

    def body(self) -> dict[str, object]:
        return {"id": self.id, "left": self.left} | self.fault.model_dump(exclude_none=True)


@dataclass(slots=True)
class ConsumedFault:
    """One request that a fault hit."""

    fault_id: int
    operation: Operation
    kind: Kind
    path: str
    at: str
    executed_status: int | None = None
    """The operation's own answer; None: it was not executed."""
    ended: bool = False
    """True once the fault is over: the answer is sent, or the connection gone."""


def _hold_back(message: MailMessage) -> None:
    """Send no mail (spec 7.1); the mail sender retries later."""
    raise MailError(f"the lab was set to hold back {message.invitation_id}")


class Lab:
    """The application with the lab in front of it; every answer is marked `X-Runwarden-Lab: on`.

    The script and the account belong to the event loop, on which requests and the lab's endpoints are answered.
    """

    def __init__(self, context: Context) -> None:
        self.token = f"rwlab_{secrets.token_urlsafe(24)}"
        """The bearer token for /_lab, and for nothing else; each start makes a new one, and it is not stored."""
        self.offset_s = 0
        """How far the clock of expiry is ahead, in seconds; negative: behind."""
        self.context = replace(context, expiry_clock=lambda: context.expiry_clock() + self.offset_s * SECOND_MICROS)
        self.script: list[PendingFault] = []
        self.consumed: deque[ConsumedFault] = deque(maxlen=_ACCOUNTED)
        self.number_consumed = 0
        self.ids = itertools.count(1)
        self._app = with_page(build(self.context), self.context)
        self._endpoints = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        self._endpoints.state.context = self.context
        self._endpoints.state.lab = self
        errors.install(self._endpoints)
        self._endpoints.include_router(router)
        _logger.warning("THE LAB IS ON: faults, shifted expiry and made-up runs can be ordered under %s", PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or break it according to the script."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"x-runwarden-lab", b"on")]}
            await send(message)

        path: str = scope["path"]
        if path == PREFIX or path.startswith(f"{PREFIX}/"):
            await self._endpoints(scope, receive, send_marked)
            return
        method = scope["method"]
        called = next((name for verb, pattern, name in _PATHS if verb == method and pattern.fullmatch(path)), None)
        pending = next((entry for entry in self.script if called and entry.fault.operation in {called, "any"}), None)
        if called is None or pending is None:
            await self._app(scope, receive, send_marked)
            return
        pending.left -= 1
        if pending.left == 0:
            self.script.remove(pending)
        fault = pending.fault
        entry = ConsumedFault(pending.id, called, fault.kind, path, rfc3339(self.context.clock()))
        self.consumed.append(entry)
        self.number_consumed += 1
        _logger.warning("lab: fault %d (%s) hits %s", entry.fault_id, fault.kind, path)
        await asyncio.sleep(fault.delay_s)
        if fault.kind in {"status", "reset"}:
            # Answer only after the client has sent everything.
            while (await receive()).get("more_body", False):
                pass
        if fault.kind == "reset":
            await _reset(scope, receive)
        elif fault.kind == "status":
            text = fault.message or f"the lab was set to answer {fault.status}"
            document = {"message": text, "error_code": fault.error_code or "lab"}
            headers = {} if fault.retry_after is None else {"retry-after": fault.retry_after}
            await JSONResponse(document, fault.status or 500, headers)(scope, receive, send_marked)
        else:
            await self._execute(fault, entry, scope, receive, send_marked)
        entry.ended = True

    async def _execute(self, fault: Fault, entry: ConsumedFault, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application execute a request, and spoil its answer."""
        if fault.kind == "partial":
            broken = replace(self.context, mailer=_hold_back)
            scope = {**scope, "state": {**scope["state"], CONTEXT: broken}}
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)

        await self._app(scope, receive, hold)
        # The Content-Length at the start is that of the whole body, whatever is sent.
        start, *rest = held
        body = b"".join(message.get("body", b"") for message in rest)
        entry.executed_status = start["status"]
        if fault.kind == "lose_answer":
            await _reset(scope, receive)
            return
        await send(start)
        if fault.kind == "truncate":
            # The beginning of the body, at most all but its last byte.
            keep = len(body) // 2 if fault.keep_bytes is None else fault.keep_bytes
            await send({"type": "http.response.body", "body": body[: min(keep, len(body) - 1)], "more_body": True})
            scope["state"][TRANSPORT].close()
            await _until_gone(receive)
            return
        if fault.kind == "drip":
            # Byte by byte, until the body is out or the client has left.
            for byte in body:
                await send({"type": "http.response.body", "body": bytes((byte,)), "more_body": True})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(fault.interval_s):
                        await _until_gone(receive)
                        return
            body = b""
        await send({"type": "http.response.body", "body": body})


async def _reset(scope: Scope, receive: Receive) -> None:
    transport: asyncio.Transport = scope["state"][TRANSPORT]
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
    await _until_gone(receive)


async def _until_gone(receive: Receive) -> None:
    # uvicorn logs an error if the application returns without an answer while the client is connected.
    while (await receive())["type"] != "http.disconnect":
        pass


class ClockShift(BaseModel, strict=True, frozen=True, extra="forbid", hide_input_in_errors=True):
    """Body of PUT /_lab/clock."""

    offset_s: Annotated[int, Field(ge=-_CENTURY_S, le=_CENTURY_S)]


def _lab_of_request(request: Request) -> Lab:
    lab: Lab = request.app.state.lab
    header = request.headers.get("authorization", "").encode("utf-8", "replace")
    if not hmac.compare_digest(header, f"Bearer {lab.token}".encode()):
        raise HttpError(
            401,
            "invalid_token",
            "the lab opens to its own token, the lab_token of the line that serve printed",
            {"WWW-Authenticate": 'Bearer realm="runwarden-lab"'},
        )
    return lab


router = APIRouter(prefix=PREFIX)
LabAccess = Annotated[Lab, Depends(_lab_of_request)]


@router.get("")
async def read(lab: LabAccess) -> dict[str, object]:
    return {
        "offset_s": lab.offset_s,
        "expiry_now": rfc3339(lab.context.expiry_clock()),
        "faults": [pending.body() for pending in lab.script],
        "consumed": [asdict(entry) for entry in lab.consumed],
        "consumed_dropped": lab.number_consumed - len(lab.consumed),
    }


@router.post("/faults", status_code=201)
async def script(lab: LabAccess, fault: Annotated[Fault, Depends(body_reader(Fault))]) -> dict[str, object]:
    """Put a fault at the end of the script."""
    added = PendingFault(next(lab.ids), fault, fault.times)
    lab.script.append(added)
    return added.body()


@router.put("/clock")
async def shift(lab: LabAccess, request: Annotated[ClockShift, Depends(body_reader(ClockShift))]) -> dict[str, object]:
    lab.offset_s = request.offset_s
    return {"offset_s": lab.offset_s, "expiry_now": rfc3339(lab.context.expiry_clock())}


@router.post("/runs", status_code=201)
def make_runs(
    lab: LabAccess, spec: Annotated[HistoryRequest, Depends(body_reader(HistoryRequest))]
) -> dict[str, object]:
    """Generate runs; answers when all of them are in the database."""
    return history.make(lab.context.database, spec, lab.context.clock())


@router.post("/reset")
def reset(lab: LabAccess) -> dict[str, object]:
    """Forget script and account, set the clock right, and remove generated runs."""
    lab.script.clear()
    lab.consumed.clear()
    lab.number_consumed = lab.offset_s = 0
    return {"runs_removed": history.unmake(lab.context.database)}
