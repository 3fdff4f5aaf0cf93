"""Errors: every failure is answered with `{message, error_code}` and the right status (spec 2.8, 7)."""

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from service.api.answers import FAILURES, FailureBody
from service.errors import ServiceError
from service.store.database import AWAY
from service.store.runs import InactiveOrganizationError

_logger = logging.getLogger(__name__)
Offered = list[tuple[re.Pattern[str], set[str]]]
"""Path patterns with the methods that routes offer there."""


class HttpError(ServiceError):
    """A refusal with its status, its machine-readable code and a message that names the cure."""

    def __init__(self, status: int, error_code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.headers = dict(headers or {})


def documented(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return an endpoint's failures for OpenAPI: the given statuses and those that every endpoint has."""
    named: list[int | str] = [*sorted({401, 403, 404, 429, 500, *statuses})]
    # Without a default FastAPI would promise a 422, which is never sent.
    found: dict[int | str, dict[str, object]] = {"default": {"model": FailureBody}}
    for status in named:
        example = body(*FAILURES[int(status)])
        found[status] = {"model": FailureBody, "content": {"application/json": {"example": example}}}
    return found


def bad_request(error_code: str, message: str) -> HttpError:
    """Return a 400."""
    return HttpError(400, error_code, message)


def offered_by(router: APIRouter, prefix: str = "") -> Offered:
    """Return the path patterns of a router's routes with their methods."""
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    return [(compile_path(prefix + route.path)[0], route.methods or set()) for route in routes]


def install(app: FastAPI, offered: Offered) -> None:
    """Answer every failure of an application, the framework's own included, in the spec's form."""
    app.state.offered = offered
    app.add_exception_handler(HttpError, _answer_failure)
    app.add_exception_handler(InactiveOrganizationError, _answer_inactive)
    app.add_exception_handler(ServiceError, _answer_unforeseen)
    app.add_exception_handler(HTTPException, _answer_framework)
    for kind in AWAY:
        app.add_exception_handler(kind, _answer_away)
    app.add_exception_handler(Exception, _answer_crash)


def body(error_code: str, message: str) -> dict[str, str]:
    """Return the failure body (spec 2.8)."""
    return {"message": message, "error_code": error_code}


async def _answer_failure(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HttpError):
        raise error
    return JSONResponse(body(error.error_code, error.message), error.status, error.headers)


async def _answer_inactive(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse(body("organization_inactive", "the organization is not active"), 403)


async def _answer_framework(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == HTTPStatus.NOT_FOUND:
        return JSONResponse(body("not_found", f"there is nothing at {request.url.path}"), status)
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # Every method that is offered at the path: the framework names those of the first route only.
        offered: Offered = request.app.state.offered
        found = {method for pattern, methods in offered if pattern.match(request.url.path) for method in methods}
        allowed = ", ".join(sorted(found))
        message = f"{request.method} is not offered at {request.url.path}; use {allowed}"
        return JSONResponse(body("method_not_allowed", message), status, {"Allow": allowed})
    return JSONResponse(body("bad_request", str(getattr(error, "detail", error))), status)


async def _answer_away(_request: Request, error: Exception) -> JSONResponse:
    _logger.error("the database cannot be used: %s", getattr(error, "orig", None) or error)
    message = "the database is away or overloaded, and it is unknown whether this took effect: look before you retry"
    return JSONResponse(body("database_unavailable", message), 503, {"Retry-After": "2"})


async def _answer_unforeseen(request: Request, error: Exception) -> JSONResponse:
    # Its text is for the operator: what it names of the machine is no business of a caller.
    _logger.error("%s %s failed: %s", request.method, request.url.path, error)
    return await _answer_crash(request, error)


async def _answer_crash(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse(body("internal_error", "the service failed; its log says why"), 500)
