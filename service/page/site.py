"""The site: its application, the rendering of pages, and the pages for failures."""

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.context import Context
from service.api.errors import HttpError, bad_request, refusal_of
from service.clock import EPOCH, SECOND_MICROS, now_micros, parse_rfc3339
from service.page import text
from service.page.visitor import NotSignedInError, Visitor, address, read_form
from service.store.database import AWAY
from service.store.runs import InactiveOrganizationError
from service.store.sessions import LastAdminError
from service.text import plural, printable

_ASSETS: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
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
_TITLES: Final = {
    400: "That cannot be used",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "Not offered",
    409: "Not now",
    410: "No longer kept",
    413: "Too large",
    429: "Too many requests",
    503: "The service is busy",
}
_FIRST_PARTS: Final = frozenset(
    {"", "runs", "agents", "settings", "operator", "sign-in", "sign-out", "invitation", "api", "assets"}
)
"""The first parts of the page's paths."""
assets = APIRouter()


def _micros(moment: int | str) -> int:
    """Return an instant in microseconds; in a text it is as RFC 3339 has it."""
    return parse_rfc3339(moment, round_up=False) if isinstance(moment, str) else moment


def when(moment: int | str | None) -> Markup:
    """Return an instant, in microseconds or RFC 3339, for readers and for programs."""
    if moment is None:
        return Markup("<span class=quiet>never</span>")
    at = EPOCH + timedelta(microseconds=_micros(moment))
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%d %b %Y, %H:%M} UTC")


def ago(micros: int) -> Markup:
    """Return how long ago an instant was, with the instant itself as its title."""
    at, passed_s = EPOCH + timedelta(microseconds=micros), max(0, now_micros() - micros) // SECOND_MICROS
    spans = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    shown = next((f"{passed_s // length}{unit} ago" for length, unit in spans if passed_s >= length), "now")
    title = f"{at:%d %b %Y, %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(timespec="seconds"), title, shown)


def between(first: int | str | None, last: int | str | None) -> str:
    """Return how long something took, such as `1m 32s`; empty: it has not ended, or never began."""
    if first is None or last is None:
        return ""
    minutes, seconds = divmod(max(0, _micros(last) - _micros(first)) // SECOND_MICROS, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s" if minutes else f"{seconds}s"


def repository_name(body: dict[str, Any]) -> str:
    """Return a repository reference as users write it."""
    data = body["data"]
    parts = (str(data[key]) for key in ("owner", "group", "repo", "project") if key in data)
    return str(data.get("project_path") or "/".join(parts))


@cache
def _asset(name: str) -> bytes:
    return files("service.page").joinpath("assets", name).read_bytes()


@cache
def _version() -> str:
    """Return a name for the state of the assets, which browsers may keep as long as it is the same."""
    return hashlib.sha256(b"".join(_asset(name) for name in _ASSETS)).hexdigest()[:12]


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("service.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else printable(value) if type(value) is str else value,
    )
    made.globals.update(when=when, ago=ago, between=between, plural=plural, address=address, version=_version())
    made.globals["repository_name"] = repository_name
    made.filters["markdown"] = text.markdown
    return made


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
    shown = _templates().get_template(f"{name}.html").render(visitor=visitor, fault=fault, **facts)
    return HTMLResponse(shown, status, {**HEADERS, **(headers or {})})


def leads_to(path: str, /, **query: object) -> RedirectResponse:
    """Return an answer that sends the browser to another page, after a form was accepted."""
    return RedirectResponse(address(path, **query), 303, HEADERS)


@assets.get("/assets/{version}/{name}")
def read_asset(version: str, name: str) -> Response:
    """Return the page's style, script or icon."""
    if name not in _ASSETS:
        raise HttpError(404, "not_found", "there is nothing here")
    kept = "public, max-age=31536000, immutable" if version == _version() else "no-cache"
    return Response(_asset(name), media_type=_ASSETS[name], headers=HEADERS | {"Cache-Control": kept})


def build(context: Context, routers: tuple[APIRouter, ...]) -> FastAPI:
    """Return the page's application over a context."""
    app = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, dependencies=[Depends(_check_address)]
    )
    app.state.context = context
    for router in (assets, *routers):
        app.include_router(router)
    ours = (HttpError, InactiveOrganizationError, LastAdminError)
    for kind in (*ours, RequestValidationError, HTTPException, *AWAY, Exception):
        app.add_exception_handler(kind, _show_failure)
    return app


@dataclass(eq=False)
class PageOrApi:
    """Passes a request to the page if its path is one of the page's, and to the API otherwise."""

    api: ASGIApp
    pages: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        first = scope["path"].split("/", 2)[1:2] if scope["type"] == "http" else ()
        await (self.api if _FIRST_PARTS.isdisjoint(first) else self.pages)(scope, receive, send)


def _check_address(request: Request) -> None:
    if any("\0" in part for part in (request.scope["path"], *request.query_params.values())):
        raise bad_request("invalid_text", "no address may hold NUL")


async def _show_failure(request: Request, error: Exception) -> Response:
    """Return the page for a failure; it shows the typed text, so that nothing is lost."""
    if isinstance(error, NotSignedInError) and request.method == "GET":
        here = address(request.url.path, **request.query_params)
        return leads_to("/sign-in", next="" if here == "/" else here)
    match error:
        case HTTPException():
            is_missing = error.status_code == HTTPStatus.NOT_FOUND
            message = "There is no such page." if is_missing else "This is not offered here."
            refusal = HttpError(error.status_code, "", message, error.headers)
        case LastAdminError():
            refusal = HttpError(409, "", str(error))
        case _:
            refusal = refusal_of(request, error)
    status, message, headers = refusal.status, refusal.message, refusal.headers
    typed: Mapping[str, str] = {}
    if request.method == "POST":
        # What cannot be read, or was read in part, is not shown.
        with contextlib.suppress(HttpError, RuntimeError):
            typed = (await read_form(request)).typed
    title = _TITLES.get(status, "The service failed")
    message = message[:1].upper() + message[1:] + ("" if message.endswith((".", "!", "?")) else ".")
    return page("failure", status=status, headers=headers, title=title, message=message, typed=typed)
