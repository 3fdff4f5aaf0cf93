"""Maps a failed answer to its error: spec 2.8, 7 and 8."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel, ValidationError

from app.api.errors import (
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    ServerFailedError,
    UncertainError,
)
from app.api.headers import retry_after_s

_LONGEST_MESSAGE: Final = 2_000
_LONGEST_CODE: Final = 200
_BY_STATUS: Final[Mapping[int, type[RefusedError]]] = {401: NotAuthorizedError, 403: ForbiddenError, 404: NotFoundError}
CERTAIN: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 428, 429, 431, 451}
)
"""The 4xx that mean, by the spec or by RFC 9110 and 6585, that the request was not carried out. Any other one may come
after it was: 406 judges the answer only, 408 and 499 a connection, 424 a part, 425 an early copy of the request.
"""
_TOO_MANY_REQUESTS: Final = 429
_FIRST_SERVER_ERROR: Final = 500


class _FailureBody(BaseModel):
    """The body of a failed answer (spec 2.8)."""

    message: str | None = None
    error_code: str | None = None


def failure(status: int, body: bytes, *, retry_after: str | None, sent_at: str | None) -> RefusedError:
    """Return the error of a 4xx or 5xx answer.

    An unreadable body does not matter: the status alone decides. The service's message is kept. A date in
    `retry_after` is relative to the header Date in `sent_at`.
    """
    said = _read(body)
    message = (said.message or _reason(status))[:_LONGEST_MESSAGE]
    code = None if said.error_code is None else said.error_code[:_LONGEST_CODE]
    if status == _TOO_MANY_REQUESTS:
        wait_s = None if retry_after is None else retry_after_s(retry_after, sent_at)
        return RateLimitedError(message, error_code=code, retry_after_s=wait_s)
    return _kind(status)(message, status=status, error_code=code)


def _kind(status: int) -> type[RefusedError]:
    if status >= _FIRST_SERVER_ERROR:
        return ServerFailedError
    return _BY_STATUS.get(status, RejectedError if status in CERTAIN else UncertainError)


def _read(body: bytes) -> _FailureBody:
    try:
        return _FailureBody.model_validate_json(body)
    except ValidationError:
        return _FailureBody()


def _reason(status: int) -> str:
    try:
        return f"The service answered {status} {HTTPStatus(status).phrase}."
    except ValueError:
        return f"The service answered {status}."
