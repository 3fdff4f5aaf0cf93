"""Connections, broken for real: reset, cut off in mid-body, or dripping, as a client's socket sees it."""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.protocol import TRANSPORT

# With a linger time of zero, closing a socket sends RST instead of FIN.
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class HeldAnswer:
    """An answer that is held back."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    @property
    def start(self) -> Message:
        """The message that opens it; its Content-Length promises the whole body."""
        return {"type": "http.response.start", "status": self.status, "headers": self.headers}


async def hold_back(app: ASGIApp, scope: Scope, receive: Receive) -> HeldAnswer:
    """Let the application execute a request, and return its answer instead of sending it."""
    answer = HeldAnswer()

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], list(message["headers"])
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, keep)
    return answer


async def pass_on(send: Send, answer: HeldAnswer) -> None:
    """Send the answer as it is."""
    await send(answer.start)
    await send({"type": "http.response.body", "body": answer.body})


async def read_all(receive: Receive) -> None:
    """Read a request to its end and drop it: the client has then sent everything."""
    while (await receive()).get("more_body", False):
        pass


async def refuse(send: Send, status: int, document: Mapping[str, object], headers: Mapping[str, str]) -> None:
    """Answer without executing anything."""
    raw = json.dumps(document).encode()
    fields = {"Content-Type": "application/json", "Content-Length": str(len(raw))} | dict(headers)
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
    await pass_on(send, HeldAnswer(status, pairs, raw))


async def reset(scope: Scope, receive: Receive) -> None:
    """Reset the connection: the client's next read fails."""
    transport = _transport(scope)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    transport.abort()
    await _until_gone(receive)


async def cut_off(scope: Scope, receive: Receive, send: Send, answer: HeldAnswer, keep_bytes: int) -> None:
    """Send the head and the beginning of the body, at most all but its last byte, then close."""
    await send(answer.start)
    kept = answer.body[: min(keep_bytes, len(answer.body) - 1)]
    await send({"type": "http.response.body", "body": kept, "more_body": True})
    _transport(scope).close()
    await _until_gone(receive)


async def drip(receive: Receive, send: Send, answer: HeldAnswer, interval_s: float) -> None:
    """Send the body byte by byte, until it is out or the client has left."""
    await send(answer.start)
    for place in range(len(answer.body)):
        await send({"type": "http.response.body", "body": answer.body[place : place + 1], "more_body": True})
        if await _gone_within(receive, interval_s):
            return
    await send({"type": "http.response.body", "body": b""})


def _transport(scope: Scope) -> asyncio.Transport:
    transport: asyncio.Transport = scope["state"][TRANSPORT]
    return transport


async def _until_gone(receive: Receive) -> None:
    # uvicorn would otherwise complain about an answer that never came.
    while (await receive())["type"] != "http.disconnect":
        pass


async def _gone_within(receive: Receive, wait_s: float) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            await _until_gone(receive)
    except TimeoutError:
        return False
    return True
