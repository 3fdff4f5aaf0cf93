"""A TCP proxy in front of a database: a network that can hold bytes back, or lose them."""

import asyncio
from contextlib import suppress
from typing import Literal, Self

from tests.lab import free_port
from tests.proxy import Proxy, running

Kind = Literal["carries", "holds", "loses"]


class DatabaseLink(Proxy):
    """Carries connections to a port. `holds`: bytes wait. `loses`: a connection that sends is silent for ever."""

    def __init__(self, target: int) -> None:
        super().__init__(target, port=free_port())
        self._target, self._flows = target, asyncio.Event()
        self._kind: Kind = "carries"
        self._flows.set()

    def __enter__(self) -> Self:
        # Until now, connections are refused.
        self._running = running(self)
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    def become(self, kind: Kind) -> None:
        """Treat bytes this way from now on."""
        self._kind = kind
        self.loop.call_soon_threadsafe(self._flows.clear if kind == "holds" else self._flows.set)

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
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
            await asyncio.Event().wait()
