"""Errors: every failure becomes a response with the right status and `{message, error_code}` (spec 2.8, 7)."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.errors import ServiceError
from service.store.database import DATABASE_DOWN
from service.store.runs import InactiveOrganizationError

_logger = logging.getLogger(__name__)
_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_FAILURES: Final = {
    400: ("invalid_request", "instructions: Field required"),
    401: ("invalid_token", "the bearer token is unknown, revoked or expired; create another"),
    403: ("insufficient_scope", "this needs the scope admin: use a token with it, or ask for that role"),
    404: ("run_not_found", "there is no run 'run_x'; list the runs to find its id"),
    409: ("run_active", "the run run_x is working; continue it when it has ended"),
    410: ("log_not_kept", "the log of turn 1 is no longer kept"),
    413: ("body_too_large", "the body may have at most 1048576 bytes"),
    415: ("unsupported_media_type", "send the body as 'Content-Type: application/json' in UTF-8"),
    429: ("rate_limited", "the organization acme sent too many requests; try again in 3 s"),
    500: ("internal_error", "the service failed; its log says why"),
}
"""An example of each failure: its code and its message."""


class FailureBody(BaseModel):
    """The failure body (spec 2.8)."""

    message: str
    error_code: str | None = None


class HttpError(ServiceError):
    """A refusal: a status, a machine-readable code, and a message that says how to fix it."""

    def __init__(self, status: int, error_code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.headers = dict(headers or {})


def describe_failures(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return an endpoint's failures for OpenAPI: the given statuses and those that every endpoint has."""
    # Without a default, FastAPI would document a 422, which is never sent.
    failures: dict[int | str, dict[str, object]] = {"default": {"model": FailureBody}}
    for status in sorted({401, 403, 404, 429, 500, *statuses}):
        example = body(*_FAILURES[status])
        failures[status] = {"model": FailureBody, "content": {"application/json": {"example": example}}}
    return failures


def bad_request(error_code: str, message: str) -> HttpError:
    return HttpError(400, error_code, message)


def body(error_code: str, message: str) -> dict[str, str]:
    """Return the failure body (spec 2.8)."""
    return {"message": message, "error_code": error_code}


def install(app: FastAPI) -> None:
    """Turn every failure of an application, including the framework's, into JSON."""

    async def respond(request: Request, error: Exception) -> Response:
        refusal = refusal_of(request, error)
        return JSONResponse(body(refusal.error_code, refusal.message), refusal.status, refusal.headers)

    for kind in (ServiceError, RequestValidationError, HTTPException, *DATABASE_DOWN, Exception):
        app.add_exception_handler(kind, respond)


def refusal_of(request: Request, error: Exception) -> HttpError:
    """Return the refusal for any exception; failures that callers must not see are logged."""
    path = request.url.path
    if isinstance(error, HttpError):
        return error
    if isinstance(error, InactiveOrganizationError):
        return HttpError(403, "organization_inactive", "the organization is not active")
    if isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        return bad_request("invalid_query", f"{fault['loc'][-1]} in the address: {fault['msg']}")
    if isinstance(error, HTTPException):
        if error.status_code == HTTPStatus.NOT_FOUND:
            return HttpError(404, "not_found", f"there is nothing at {path}")
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # The framework names only the methods of the first route at the path.
            routes, scope = request.app.routes, request.scope
            by_method = {name: [route.matches({**scope, "method": name})[0] for route in routes] for name in _METHODS}
            allowed = ", ".join(name for name, matches in by_method.items() if Match.FULL in matches)
            message = f"{request.method} is not offered at {path}; use {allowed}"
            return HttpError(405, "method_not_allowed", message, {"Allow": allowed})
        return HttpError(error.status_code, "bad_request", str(error.detail))
    if isinstance(error, DATABASE_DOWN):
        _logger.error("the database cannot be used: %s", getattr(error, "orig", None) or error)
        message = "the database is down or overloaded, and this may have taken effect: check before you retry"
        return HttpError(503, "database_unavailable", message, {"Retry-After": "2"})
    if isinstance(error, ServiceError):
        # Only the operator may see its text, which can name files and addresses of this machine.
        _logger.error("%s %s failed: %s", request.method, path, error)
    return HttpError(500, "internal_error", "the service failed; its log says why")
