"""A scripted peer on a real loopback socket.

On the running loop (`serving`) nothing happens at the peer while the test does not wait; in a thread (`in_thread`) it
serves commands, which run a loop of their own.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from email.utils import format_datetime
from http import HTTPStatus

from tests.sync.peer import Answer, Peer


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[Peer]:
    """The peer, listening on the running loop."""
    conversations: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        conversations.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _converse(peer, reader, writer)
        writer.close()
        conversations.discard(task)

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    peer.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield peer
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations)


@contextmanager
def in_thread(peer: Peer) -> Iterator[Peer]:
    """The peer, listening on a loop of its own."""
    ready, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(peer):
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield peer
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()


async def _converse(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, target, _ = request.split(" ")
        token = headers.get("authorization", "").removeprefix("Bearer ")
        answer, fault = peer.answer(method, target, token, body)
        await asyncio.sleep(peer.latency_s)
        sent = _written(peer, answer, is_cut=fault == "truncated")
        if fault == "reset":
            writer.write(sent[: len(sent) // 2])
            # No lingering: the close is sent as a reset.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        writer.write(sent)
        await writer.drain()


def _written(peer: Peer, answer: Answer, *, is_cut: bool) -> bytes:
    body = json.dumps(answer.body).encode()
    body = body[: len(body) // 2] if is_cut else body
    headers = {
        **({"Date": format_datetime(peer.service_now.replace(microsecond=0), usegmt=True)} if peer.is_dated else {}),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **answer.headers,
    }
    head = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *map(": ".join, headers.items())]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
