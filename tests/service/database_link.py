"""A TCP proxy in front of a database: a network that can hold bytes back, or lose them."""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Literal, Self

from tests.lab import free_port

Kind = Literal["carries", "holds", "loses"]


class DatabaseLink:
    """Carries connections to a port. `holds`: bytes wait. `loses`: a connection that sends is silent for ever."""

    def __init__(self, target: int, listener: socket.socket | None = None) -> None:
        self._listener = listener
        self.port: int = listener.getsockname()[1] if listener else free_port()
        self._target = target
        self._kind: Kind = "carries"
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="link", daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def become(self, kind: Kind) -> None:
        """Treat bytes this way from now on."""

        def change() -> None:
            self._kind = kind
            self._flows.clear() if kind == "holds" else self._flows.set()

        self._loop.call_soon_threadsafe(change)

    async def _serve(self) -> None:
        self._loop, self._over, self._flows = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._flows.set()
        # Without a listener of the caller's, connections are refused until now.
        listener = self._listener or socket.create_server(("127.0.0.1", self.port))
        await asyncio.start_server(self._connect, sock=listener)
        self._ready.set()
        await self._over.wait()

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        # asyncio's own callback takes it ill if the end of the loop cancels this.
        with suppress(OSError, asyncio.CancelledError):
            await self._flows.wait()
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            lost = asyncio.Event()
            ways = [(client, to_server), (server, to_client)]
            carrying = [asyncio.create_task(self._carry(*way, lost)) for way in ways]
            await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
            for task in carrying:
                task.cancel()
            to_server.close()
        to_client.close()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                await self._flows.wait()
                if self._kind == "loses":
                    lost.set()
                if not lost.is_set():
                    target.write(data)
                    await target.drain()
        if lost.is_set():
            # Nor does the end of a silent connection arrive.
            await self._over.wait()
