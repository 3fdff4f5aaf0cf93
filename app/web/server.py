"""The server: pages, files, and a websocket with a console process for each browser tab.

It answers on loopback only: a one-time link is exchanged for a pass, and every request is checked for it first.
"""

import asyncio
import contextlib
import json
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Final

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager
from textual_serve.server import Server, to_int

from app.web.access import (
    COOKIE,
    DOWNLOAD,
    NOT_FOR_YOU,
    OPEN,
    Access,
    add_headers,
    console_page,
    guard,
    keys_script,
    page,
)

PATIENCE_S: Final = 5.0
"""How long a console may take to leave before it is killed."""
MOST_CONSOLES: Final = 16
"""The most consoles at a time; each is a process."""
LARGEST_SIDE: Final = 1_000
"""The most cells of a terminal's width or height."""
_ANSWER_S: Final = 5.0
"""Seconds that open connections are given at the end."""


class ConsoleProcess(AppService):
    """textual-serve's service for one process, started without a shell, and always ended."""

    def __init__(self, argv: Sequence[str], connection: web.WebSocketResponse, downloads: DownloadManager) -> None:
        """Prepare; the connection is closed when the console ends."""

        async def ended() -> None:
            await connection.close()

        super().__init__(
            argv[0],
            write_bytes=connection.send_bytes,
            write_str=connection.send_str,
            close=ended,
            download_manager=downloads,
        )
        self._argv = tuple(argv)

    async def stop(self) -> None:
        """Ask the console to leave; kill it if it stays."""
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
        # A crash goes to our stderr at once; textual-serve would print it to stdout, later.
        process.stderr = asyncio.StreamReader()
        process.stderr.feed_eof()
        self._process, self._stdin = process, process.stdin
        return process


class WebConsole(Server):
    """textual-serve's server on a socket that is bound already, with our own door, pages and processes."""

    def __init__(self, argv: Sequence[str], listener: socket.socket) -> None:
        """Prepare; the command opens the console for each tab, and the listener is bound to a loopback address."""
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        super().__init__(argv[0], host=host, port=port, public_url=f"http://{shown}:{port}")
        self.access = Access()
        self._argv = tuple(argv)
        self._listener = listener
        self._sockets: set[web.WebSocketResponse] = set()
        self._hosts = frozenset({f"{shown}:{port}", f"localhost:{port}"})

    def new_link(self) -> str:
        """The address that opens the console once; an earlier unused one is void."""
        return f"{self.public_url}{OPEN}{self.access.new_link()}"

    async def run(self) -> None:
        """Serve until cancelled; then ask every console to leave."""
        runner = web.AppRunner(await self._make_app(), access_log=None, shutdown_timeout=_ANSWER_S)
        await runner.setup()
        try:
            await web.SockSite(runner, self._listener).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        place = f"/{self.access.secret_path}"
        app = web.Application(middlewares=[guard(self.access, self._hosts)])
        app.add_routes(
            [
                web.get(f"{OPEN}{{link}}", self.handle_link, allow_head=False),
                web.get(f"{place}/", self.handle_index),
                web.get(f"{place}/keys.js", self.handle_keys),
                web.get(f"{place}/ws", self.handle_websocket),
                web.get(f"{place}{DOWNLOAD}{{key}}", self.handle_download),
                web.get(f"{DOWNLOAD}{{key}}", self.handle_lost_download),
                web.static(f"{place}/static", self.statics_path),
            ]
        )
        app.on_response_prepare.append(add_headers)
        app.on_shutdown.append(self.on_shutdown)
        return app

    async def on_shutdown(self, app: web.Application) -> None:
        """Close every connection, which ends its console."""
        del app
        for each in tuple(self._sockets):
            await each.close()

    async def handle_link(self, request: web.Request) -> web.Response:
        """Exchange a link for a pass, once."""
        if "prefetch" in request.headers.get("Sec-Purpose", ""):
            return page("Not yet", "A link is for following, not for fetching ahead.", status=503)
        given = self.access.exchange(request.match_info["link"])
        if given is None:
            return page(*NOT_FOR_YOU, status=403)
        place = f"/{self.access.secret_path}/"
        answer = web.Response(status=303, headers={"Location": place})
        answer.set_cookie(COOKIE, given, path=place, httponly=True, samesite="Strict")
        return answer

    async def handle_index(self, request: web.Request) -> web.Response:
        """The console's page."""
        place = f"{request.host}/{self.access.secret_path}"
        return console_page(
            static=f"http://{place}/static/", websocket=f"ws://{place}/ws", font_size=request.query.get("fontsize")
        )

    async def handle_keys(self, request: web.Request) -> web.Response:
        """The page's own script."""
        del request
        return keys_script()

    async def handle_lost_download(self, request: web.Request) -> web.Response:
        """A file, requested where textual-serve's script expects it; redirected only for a valid key."""
        key = request.match_info["key"]
        try:
            await self.download_manager.get_download_metadata(key)
        except KeyError:
            return page(*NOT_FOR_YOU, status=403)
        return web.Response(status=307, headers={"Location": f"/{self.access.secret_path}{DOWNLOAD}{key}"})

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A tab: its console lives as long as the connection, and the connection as long as the console."""
        if len(self._sockets) >= MOST_CONSOLES:
            raise web.HTTPServiceUnavailable(text=f"{MOST_CONSOLES} consoles are open. Close one.")
        connection = web.WebSocketResponse(heartbeat=15)
        self._sockets.add(connection)
        try:
            await connection.prepare(request)
            console = ConsoleProcess(self._argv, connection, self.download_manager)
            await console.start(_side(request, "width", 80), _side(request, "height", 24))
            try:
                # A message outside the protocol ends its own connection, and nothing else.
                with contextlib.suppress(json.JSONDecodeError, AssertionError, LookupError, TypeError, AttributeError):
                    await self._process_messages(connection, console)
            finally:
                await console.stop()
        finally:
            self._sockets.discard(connection)
            await connection.close()
        return connection


def _side(request: web.Request, name: str, default: int) -> int:
    return max(1, min(LARGEST_SIDE, to_int(request.query.get(name, ""), default)))
