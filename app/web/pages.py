"""The browser's pages: the console, and a few words if there is none."""

from html import escape
from importlib import resources
from string import Template
from typing import Final

from aiohttp import web

NOT_FOR_YOU: Final = (
    "This console has another door",
    "Open the link that `runwarden web` printed in its terminal. It opens once; Enter in that terminal prints another.",
)
_FONT_SIZES: Final = range(6, 73)
_FONT_SIZE: Final = 16


def page(title: str, text: str, *, status: int) -> web.Response:
    """A page with a title and a sentence."""
    body = _template("words.html").substitute(title=escape(title), text=escape(text))
    return web.Response(text=body, content_type="text/html", status=status)


def console_page(*, static: str, websocket: str, font_size: str | None) -> web.Response:
    """The page that the console is drawn on; an unusable font size, in pixels, is taken for the default."""
    size = int(font_size) if font_size and font_size.isdecimal() and len(font_size) < len("1000") else _FONT_SIZE
    body = _template("console.html").substitute(
        static=escape(static),
        websocket=escape(websocket),
        font_size=size if size in _FONT_SIZES else _FONT_SIZE,
    )
    return web.Response(text=body, content_type="text/html")


def keys_script() -> web.Response:
    """The script that keeps the keyboard's focus on the console."""
    return web.Response(text=_read("keys.js"), content_type="text/javascript")


def _template(name: str) -> Template:
    return Template(_read(name))


def _read(name: str) -> str:
    return (resources.files("app.web") / "templates" / name).read_text(encoding="utf-8")
