"""Who may use the server: a one-time link is exchanged for a pass, which every request must show; and its pages."""

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest
from html import escape
from importlib import resources
from string import Template
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

NOT_FOR_YOU: Final = (
    "Open this console by its link",
    "Use the link that `runwarden web` printed in its terminal. It works once; press Enter there for a new one.",
)
_FONT_SIZES: Final = range(6, 73)
_FONT_SIZE: Final = 16
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

    secret_path: str = field(default_factory=_secret, repr=False)
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
        # A foreign name that resolves to loopback is how a web page reaches local servers.
        host = request.headers.get(hdrs.HOST, "").lower()
        origin = request.headers.get(hdrs.ORIGIN)
        # Browsers always say where a websocket comes from.
        is_ours = origin == f"http://{host}" if origin is not None else request.headers.get(hdrs.UPGRADE) is None
        if host not in hosts or not is_ours:
            return page("Not this way", "This console answers only to its own address on this machine.", status=403)
        if not request.path.startswith((OPEN, DOWNLOAD)) and not access.admits(request.cookies.get(COOKIE)):
            return page(*NOT_FOR_YOU, status=403)
        return await handler(request)

    return door


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every answer."""
    response.headers.update(HEADERS)


def page(title: str, text: str, *, status: int) -> web.Response:
    """A page with a title and a sentence."""
    body = Template(_read("words.html")).substitute(title=escape(title), text=escape(text))
    return web.Response(text=body, content_type="text/html", status=status)


def console_page(*, static: str, websocket: str, font_size: str | None) -> web.Response:
    """The page that the console is drawn on; an unusable font size, in pixels, is taken for the default."""
    size = int(font_size) if font_size and font_size.isdecimal() and len(font_size) < len("1000") else _FONT_SIZE
    body = Template(_read("console.html")).substitute(
        static=escape(static),
        websocket=escape(websocket),
        font_size=size if size in _FONT_SIZES else _FONT_SIZE,
    )
    return web.Response(text=body, content_type="text/html")


def keys_script() -> web.Response:
    """The script that keeps the keyboard's focus on the console."""
    return web.Response(text=_read("keys.js"), content_type="text/javascript")


def _read(name: str) -> str:
    return (resources.files("app.web") / "templates" / name).read_text(encoding="utf-8")
