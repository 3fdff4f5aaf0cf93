"""A proxy on loopback that wants a login, for clients and for the service."""

import asyncio
import base64
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

Value = TypeVar("Value")
LOGIN = "Basic " + base64.b64encode(b"user:p@w").decode()
ADDRESS = "http://user:p%40w@127.0.0.1:{port}"


@dataclass
class Proxy:
    """A proxy for HTTP, tunnels and SOCKS 5: it leads names, or every name, to ports of this machine."""

    leads_to: int | Mapping[str, int]
    asked: list[str] = field(default_factory=list)
    """What it was asked for, in the proxy's own words."""
    port: int = 0
    scheme: str = "Basic"
    """The kind of login that it asks for."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            first = await reader.readexactly(1)
            head = await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
            if head is not None:
                name = self.asked[-1].split()[1].rpartition(":")[0]
                port = self.leads_to if isinstance(self.leads_to, int) else self.leads_to[name]
                await self._relay(head, port, reader, writer)
        writer.close()

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        head = first + await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.asked.append(lines[0])
        if f"proxy-authorization: {LOGIN}".lower() not in map(str.lower, lines):
            status = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n"
            writer.write(status + f"Proxy-Authenticate: {self.scheme}\r\n\r\n".encode())
            return None
        if not lines[0].startswith("CONNECT"):
            return head
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        return b""

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x00")
        await reader.readexactly(4)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        await reader.readexactly(2)
        self.asked.append(f"SOCKS {name.decode()}")
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        return b""

    async def _relay(self, head: bytes, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
        their_writer.write(head)
        await asyncio.gather(_pump(reader, their_writer), _pump(their_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _close(listening: asyncio.Server) -> None:
    listening.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.wait(left) if left else None


@contextmanager
def running(proxy: Proxy) -> Iterator[Proxy]:
    """Serve from a thread of its own during the block, on its port, or a free one if that is 0."""
    thread = threading.Thread(target=proxy.loop.run_forever, daemon=True)
    thread.start()

    def done(coroutine: Coroutine[None, None, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(coroutine, proxy.loop).result(30)

    listening = done(asyncio.start_server(proxy.serve, "127.0.0.1", proxy.port))
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        done(_close(listening))
        proxy.loop.call_soon_threadsafe(proxy.loop.stop)
        thread.join()
