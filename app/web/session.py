"""One browser tab: one console, in a process of its own."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

PATIENCE_S: Final = 5.0
"""A console that was asked to leave is given so long."""


class Session(AppService):
    """textual-serve's service for one process, started without a shell, and ended whatever it does."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        write_bytes: Callable[[bytes], Awaitable[None]],
        write_str: Callable[[str], Awaitable[None]],
        close: Callable[[], Awaitable[object]],
        downloads: DownloadManager,
    ) -> None:
        """Nothing is started yet.

        Args:
            argv: The console's command.
            write_bytes: Sends what it draws.
            write_str: Sends what it asks of the browser.
            close: Called when it ends by itself.
            downloads: Where the files that it delivers are kept ready.
        """

        async def ended() -> None:
            await close()

        super().__init__(argv[0], write_bytes=write_bytes, write_str=write_str, close=ended, download_manager=downloads)
        self._argv = tuple(argv)

    async def stop(self) -> None:
        """Asks the console to leave; one that stays is killed."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await super().stop()
                if self._process is not None:
                    await self._process.wait()
        except TimeoutError:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=sys.stderr.fileno(),
            env=self._build_environment(width=width, height=height),
        )
        # A crash belongs into our own errors, at once; textual-serve would print it among our facts, afterwards.
        process.stderr = asyncio.StreamReader()
        process.stderr.feed_eof()
        self._process, self._stdin = process, process.stdin
        return process
