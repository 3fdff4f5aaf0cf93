"""The page and the API, as one application."""

from importlib.util import find_spec

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import ASGIApp

from service import how_to_add
from service.api.context import Context
from service.page import entry, log, operator, runs, settings
from service.page.site import PageOrApi, build, page
from service.page.visitor import Anybody
from service.settings import SettingsError
from service.store.rate_limits import RateLimiter

_description = APIRouter()


def with_page(api: FastAPI, context: Context) -> ASGIApp:
    """Return the API together with the page, unless the settings turn it off."""
    if not context.settings.page.enabled:
        return api
    pages = build(context, (entry.router, runs.router, log.router, settings.router, operator.router, _description))
    if context.settings.page.oidc is not None:
        if find_spec("authlib") is None:
            raise SettingsError(f"page.oidc needs the oidc extra; install it {how_to_add('oidc')}")
        from service.page import oidc

        pages.include_router(oidc.router)
        pages.state.oidc = oidc.client_of(context.settings.page.oidc)
    pages.state.attempts = RateLimiter(context.database, entry.ATTEMPTS_A_MINUTE, context.clock)
    pages.state.description = api.openapi
    return PageOrApi(api, pages)


@_description.get("/api")
def show_description(request: Request, visitor: Anybody) -> Response:
    """Show the API's description, which needs no token, like /openapi.json itself."""
    document = request.app.state.description()
    calls = [
        (method.upper(), path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if method in {"get", "post", "put", "delete"}
    ]
    return page("api", visitor, document=document, calls=calls)
