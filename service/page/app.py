"""The page and the API, as one application, and the page for failures."""

import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from typing import Final

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from service import how_to_add
from service.api.context import Context
from service.api.errors import HttpError, bad_request, refusal_of
from service.page import entry, log, operator, runs, settings
from service.page.site import assets, leads_to, page
from service.page.visitor import CSRF, Anybody, NotSignedInError, address, read_form
from service.settings import SettingsError
from service.store.database import DATABASE_DOWN
from service.store.rate_limits import RateLimiter
from service.store.runs import InactiveOrganizationError
from service.store.sessions import LastAdminError

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
_SECRET: Final = frozenset({CSRF, "token", "code"})
"""Fields that are never shown again."""
_FIRST_PARTS: Final = frozenset(
    {"", "runs", "agents", "settings", "operator", "sign-in", "sign-out", "invitation", "api", "assets"}
)


def with_page(api: FastAPI, context: Context) -> ASGIApp:
    """Return the API together with the page, unless the settings turn it off."""
    if not context.settings.page.enabled:
        return api
    pages = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, dependencies=[Depends(_check_address)]
    )
    pages.state.context = context
    for router in (assets, entry.router, runs.router, log.router, settings.router, operator.router):
        pages.include_router(router)
    ours = (HttpError, InactiveOrganizationError, LastAdminError)
    for kind in (*ours, RequestValidationError, HTTPException, *DATABASE_DOWN, Exception):
        pages.add_exception_handler(kind, _show_failure)
    if context.settings.page.oidc is not None:
        if find_spec("authlib") is None:
            raise SettingsError(f"page.oidc needs the oidc extra; install it {how_to_add('oidc')}")
        from service.page import oidc

        pages.include_router(oidc.router)
        pages.state.oidc = oidc.client_of(context.settings.page.oidc)
    pages.state.attempts = RateLimiter(context.database, entry.ATTEMPTS_A_MINUTE, context.clock)

    @pages.get("/api")
    def show_description(visitor: Anybody) -> Response:
        # It needs no token, like /openapi.json itself.
        document = api.openapi()
        calls = [
            (method.upper(), path, call)
            for path, methods in document["paths"].items()
            for method, call in methods.items()
            if method in {"get", "post", "put", "delete"}
        ]
        return page("api", visitor, document=document, calls=calls)

    return PageOrApi(api, pages)


@dataclass(eq=False)
class PageOrApi:
    """Passes a request to the page if its path is one of the page's, and to the API otherwise."""

    api: ASGIApp
    pages: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope["path"].split("/", 2)[1:2] if scope["type"] == "http" else ()
        await (self.api if _FIRST_PARTS.isdisjoint(first) else self.pages)(scope, receive, send)


def _check_address(request: Request) -> None:
    if any("\0" in part for part in (request.scope["path"], *request.query_params.values())):
        raise bad_request("invalid_text", "no address may hold NUL")


async def _show_failure(request: Request, error: Exception) -> Response:
    """Return the page for a failure; it shows the typed text, so that nothing is lost."""
    if isinstance(error, NotSignedInError) and request.method == "GET":
        location = address(request.url.path, **request.query_params)
        return leads_to("/sign-in", next="" if location == "/" else location)
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
    typed: dict[str, str] = {}
    if request.method == "POST":
        # A form that could not be read completely is not shown.
        with contextlib.suppress(HttpError, RuntimeError):
            fields = (await read_form(request)).fields
            typed = {name: value for name, value in fields.items() if name not in _SECRET and value.strip()}
    title = _TITLES.get(status, "The service failed")
    message = message[:1].upper() + message[1:] + ("" if message.endswith((".", "!", "?")) else ".")
    return page("failure", status=status, headers=headers, title=title, message=message, typed=typed)
