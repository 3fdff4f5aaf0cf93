"""The tree of errors: every reason why a request has no usable answer."""

from typing import ClassVar

from storage import RunwardenError


class ApiError(RunwardenError):
    """A request without a usable answer."""

    surely_not_sent: bool = False
    """True: no byte of the request left this machine."""
    had_no_effect: ClassVar[bool] = False
    """Whether the answer promises that nothing was done."""

    def __init__(self, message: str, *, surely_not_sent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        """What happened, for the user; never holds the token."""
        self.surely_not_sent = surely_not_sent or self.surely_not_sent

    @property
    def may_have_been_executed(self) -> bool:
        """Whether a write could have taken effect despite this error."""
        return not (self.surely_not_sent or self.had_no_effect)


class NotSendableError(ApiError):
    """The request itself cannot be put on the wire safely: a path that would change, text that is not Unicode."""

    kind = "invalid"
    surely_not_sent = True


class NoTokenError(ApiError):
    """No usable token, so nothing is sent; the message has the fix."""

    kind = "token"
    surely_not_sent = True


class UnreachableError(ApiError):
    """No connection could be made, or it broke."""

    kind = "unreachable"


class RequestTimeoutError(ApiError):
    """The deadline passed before the answer was complete."""

    kind = "timed_out"


class InternalError(ApiError):
    """A bug in Runwarden, found while using the answer."""

    kind = "mishandled"


class UnusableAnswerError(ApiError):
    """The answer breaks the spec: unreadable, too large, or redirected."""

    kind = "unusable_answer"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class EndlessListError(UnusableAnswerError):
    """A list that never ends: its next page repeats earlier ones."""


class RefusedError(ApiError):
    """The service answered with a failure."""

    had_no_effect = True

    def __init__(self, message: str, *, status: int, error_code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        """The service's own code, as received; the spec names no values."""


class NotAuthorizedError(RefusedError):
    """401: the token is missing, unknown or expired."""

    kind = "not_authorized"


class ForbiddenError(RefusedError):
    """403: the token lacks the scope, or the organization the entitlement, or the parent is inactive."""

    kind = "forbidden"


class NotFoundError(RefusedError):
    """404: the subject of the request does not exist."""

    kind = "not_found"


class NotOfferedError(RefusedError):
    """The service has no such endpoint: it is an extension of the spec (docs/dev/api.md)."""

    kind = "not_offered"


class RejectedError(RefusedError):
    """Any other 4xx that promises that nothing was done: the request itself was wrong."""

    kind = "rejected"


class UncertainError(RefusedError):
    """A 4xx about the connection or the answer, which may come after the effect: 408, 425, 499 and the like."""

    kind = "uncertain"
    had_no_effect = False


class RateLimitedError(RefusedError):
    """429: the organization's rate limit is spent (spec 8)."""

    kind = "rate_limited"

    def __init__(self, message: str, *, error_code: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, status=429, error_code=error_code)
        self.retry_after_s = retry_after_s
        """Seconds to wait, from now, or None if they are not stated."""


class ServerFailedError(RefusedError):
    """5xx: the service failed; a write may have been carried out in part (spec 7.1)."""

    kind = "server_failed"
    had_no_effect = False
