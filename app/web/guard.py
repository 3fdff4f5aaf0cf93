"""The door: what a request must be before anything of ours sees it."""

from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from app.web.access import COOKIE, Access
from app.web.pages import NOT_FOR_YOU, page

OPEN: Final = "/open/"
"""Where links lead; the only place that can be entered without a pass."""
DOWNLOAD: Final = "/download/"
"""Where textual-serve's script looks for a file; whoever knows its key is sent to the room."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # xterm.js sets styles as it draws. Nothing is loaded from anywhere but here.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def guard(access: Access, hosts: frozenset[str]) -> Middleware:
    """A middleware that lets in who has a pass and speaks to us by our own name, from our own pages.

    Args:
        access: Whose passes count.
        hosts: Our names with the port, as in `127.0.0.1:8000`.
    """

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_ours(request, hosts):
            return page("Not this way", "This console answers only to its own address on this machine.", status=403)
        if not request.path.startswith((OPEN, DOWNLOAD)) and not access.admits(request.cookies.get(COOKIE)):
            return page(*NOT_FOR_YOU, status=403)
        return await handler(request)

    return door


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Every answer says what a browser may do with it."""
    response.headers.update(HEADERS)


def _is_ours(request: web.Request, hosts: frozenset[str]) -> bool:
    # A foreign name that resolves to loopback is how a web page reaches local servers.
    if request.headers.get(hdrs.HOST, "").lower() not in hosts:
        return False
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        # Browsers always say where a websocket comes from.
        return request.headers.get(hdrs.UPGRADE) is None
    return origin == f"http://{request.headers[hdrs.HOST].lower()}"
