"""Who may use the server: a one-time link is exchanged for a pass, which every request must show."""

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from app.web.pages import NOT_FOR_YOU, page

COOKIE: Final = "runwarden_pass"
_SECRET_BYTES: Final = 32
OPEN: Final = "/open/"
"""The path of links; the only one that can be entered without a pass."""
DOWNLOAD: Final = "/download/"
"""The path where textual-serve's script looks for a file; a request that knows the key is redirected."""
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


def _secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


@dataclass(slots=True)
class Access:
    """The link that is open now, and the passes that were given for earlier ones."""

    room: str = field(default_factory=_secret, repr=False)
    """The folder everything is served from. Cookies do not tell ports apart: without a secret folder,
    the browser would send the pass to every other server on this machine."""
    _link: str | None = field(default=None, repr=False)
    _passes: set[str] = field(default_factory=set, repr=False)

    def new_link(self) -> str:
        """Make a link's secret; an earlier unused one becomes void."""
        self._link = _secret()
        return self._link

    def exchange(self, link: str) -> str | None:
        """Return a pass in exchange for the link's secret, once; None if the secret is wrong or was used."""
        if self._link is None or not _is_same(link, self._link):
            return None
        self._link = None
        given = _secret()
        self._passes.add(given)
        return given

    def admits(self, shown: str | None) -> bool:
        """Whether this is a pass that was given."""
        return shown is not None and any(_is_same(shown, given) for given in self._passes)


def _is_same(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "replace"), other.encode())


def guard(access: Access, hosts: frozenset[str]) -> Middleware:
    """A middleware that admits requests with a pass, addressed to our own `host:port`, from our own pages."""

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_ours(request, hosts):
            return page("Not this way", "This console answers only to its own address on this machine.", status=403)
        if not request.path.startswith((OPEN, DOWNLOAD)) and not access.admits(request.cookies.get(COOKIE)):
            return page(*NOT_FOR_YOU, status=403)
        return await handler(request)

    return door


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every answer."""
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
