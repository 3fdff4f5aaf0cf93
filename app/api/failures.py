"""From a failed answer to its error: spec 2.8, 7 and 8."""

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
)
from app.api.headers import retry_after_s

_LONGEST_MESSAGE: Final = 2_000
_LONGEST_CODE: Final = 200
_SHORTEST_SECRET: Final = 6
_BY_STATUS: Final[Mapping[int, type[RefusedError]]] = {401: NotAuthorizedError, 403: ForbiddenError, 404: NotFoundError}
_TOO_MANY_REQUESTS: Final = 429
_FIRST_SERVER_ERROR: Final = 500


class _FailureBody(BaseModel):
    """Spec 2.8."""

    message: str | None = None
    error_code: str | None = None


def failure(status: int, body: bytes, *, retry_after: str | None, sent_at: str | None, token: str) -> RefusedError:
    """The error of a 4xx or 5xx answer.

    An unreadable body does not matter: the status alone decides what is known. The service's message is kept, without
    the token. A date in `retry_after` is understood by the header Date in `sent_at`.
    """
    said = _read(body)
    message = _without(token, said.message or _reason(status))[:_LONGEST_MESSAGE]
    code = None if said.error_code is None else _without(token, said.error_code)[:_LONGEST_CODE]
    if status == _TOO_MANY_REQUESTS:
        wait_s = None if retry_after is None else retry_after_s(retry_after, sent_at)
        return RateLimitedError(message, error_code=code, retry_after_s=wait_s)
    kind = ServerFailedError if status >= _FIRST_SERVER_ERROR else _BY_STATUS.get(status, RejectedError)
    return kind(message, status=status, error_code=code)


def _without(token: str, text: str) -> str:
    # A shorter one protects nothing, and would occur in ordinary words.
    return text.replace(token, "[token]") if len(token) >= _SHORTEST_SECRET else text


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
