"""The site: the rendering of pages, and their style, script and icon."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from importlib.resources import files
from types import NoneType
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from service.api.errors import HttpError
from service.clock import EPOCH, SECOND_MICROS, now_micros, parse_rfc3339
from service.page import text
from service.page.visitor import Visitor, address
from service.text import plural, printable

_MEDIA: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_ASSETS: Final = {name: files("service.page").joinpath("assets", name).read_bytes() for name in _MEDIA}
_VERSION: Final = hashlib.sha256(b"".join(_ASSETS.values())).hexdigest()[:12]
"""The state of the assets, which browsers may keep as long as it is the same."""
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
assets = APIRouter()


def _micros(moment: int | str) -> int:
    """Return an instant in microseconds; in a text it is as RFC 3339 has it."""
    if isinstance(moment, str):
        return parse_rfc3339(moment, round_up=False)
    return moment


def when(moment: int | str | None) -> Markup:
    """Return an instant, in microseconds or RFC 3339, for readers and for programs."""
    if moment is None:
        return Markup("<span class=quiet>never</span>")
    at = EPOCH + timedelta(microseconds=_micros(moment))
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%d %b %Y, %H:%M} UTC")


def ago(micros: int) -> Markup:
    """Return how long ago an instant was, with the instant itself as its title."""
    at = EPOCH + timedelta(microseconds=micros)
    passed_s = max(0, now_micros() - micros) // SECOND_MICROS
    spans = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    age = next((f"{passed_s // length}{unit} ago" for length, unit in spans if passed_s >= length), "now")
    title = f"{at:%d %b %Y, %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(timespec="seconds"), title, age)


def between(first: int | str | None, last: int | str | None) -> str:
    """Return how long something took, such as `1m 32s`; empty: it has not ended, or never began."""
    if first is None or last is None:
        return ""
    minutes, seconds = divmod(max(0, _micros(last) - _micros(first)) // SECOND_MICROS, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {seconds}s" if minutes else f"{seconds}s"


def repository_name(body: dict[str, Any]) -> str:
    """Return a repository reference as users write it."""
    data = body["data"]
    parts = (str(data[key]) for key in ("owner", "group", "repo", "project") if key in data)
    return str(data.get("project_path") or "/".join(parts))


_TEMPLATES: Final = Environment(
    loader=PackageLoader("service.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    # `None` is nothing; a text that is no markup is made printable.
    finalize=lambda value: printable(value or "") if type(value) in {str, NoneType} else value,
)
_TEMPLATES.globals.update(when=when, ago=ago, between=between, plural=plural, address=address, version=_VERSION)
_TEMPLATES.globals["repository_name"] = repository_name
_TEMPLATES.filters["markdown"] = text.markdown


def page(
    name: str,
    visitor: Visitor | None = None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    fault: HttpError | str | None = None,
    **facts: Any,
) -> HTMLResponse:
    """Return a page, rendered from a template with facts; `fault`: why a form or filter cannot be used (else 400)."""
    if isinstance(fault, HttpError):
        status, headers, fault = fault.status, fault.headers, fault.message
    elif fault and status == HTTPStatus.OK:
        status = 400
    html = _TEMPLATES.get_template(f"{name}.html").render(visitor=visitor, fault=fault, **facts)
    return HTMLResponse(html, status, {**HEADERS, **(headers or {})})


def leads_to(path: str, /, **query: object) -> RedirectResponse:
    """Return an answer that sends the browser to another page, after a form was accepted."""
    return RedirectResponse(address(path, **query), 303, HEADERS)


def origin_of(request: Request) -> str:
    """Return the service's address, as the browser that sent a form knows it."""
    origin = request.headers.get("origin", "")
    if origin.startswith("http"):
        return origin
    return str(request.base_url).rstrip("/")


@assets.get("/assets/{version}/{name}")
def read_asset(version: str, name: str) -> Response:
    if name not in _ASSETS:
        raise HttpError(404, "not_found", "there is nothing here")
    caching = "public, max-age=31536000, immutable" if version == _VERSION else "no-cache"
    return Response(_ASSETS[name], media_type=_MEDIA[name], headers=HEADERS | {"Cache-Control": caching})
