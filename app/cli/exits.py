"""Exit codes and error kinds: the contract scripts rely on."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from importlib.util import find_spec
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Final

from app.api.errors import ApiError, RateLimitedError, RefusedError
from app.version import how_to_add
from storage import RunwardenError
from storage.records.error_kinds import ERROR_KINDS

ErrorDetail = None | bool | int | float | str | list["ErrorDetail"] | dict[str, "ErrorDetail"]


class Exit(IntEnum):
    """The meaning of a command's exit code."""

    DONE = 0
    FAILED = 1
    """The run waited for failed, or something was found unhealthy."""
    USAGE = 2
    """Usage, configuration, or a request that cannot succeed as it is."""
    TIMED_OUT = 3
    """Waiting took longer than `--timeout`."""
    NOT_AUTHORIZED = 4
    RATE_LIMITED = 5
    UNKNOWN_OUTCOME = 6
    """A write may or may not have taken effect; the user has to find out."""
    NOT_FOUND = 7
    UNREACHABLE = 8
    """The service cannot be reached, or its answer cannot be used."""
    INTERRUPTED = 130


STOPPING: Final = (SIGINT, SIGTERM, SIGHUP)
EXIT_BY_KIND: Final = {kind: Exit(row.exit_code) for kind, row in ERROR_KINDS.items()}
"""The exit code of each kind of error, of the API, the ledger and the command line."""


EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "service": (
        *("anyio", "fastapi", "uvicorn", "h11", "sqlalchemy", "dbos", "email_validator", "alembic"),
        *("prometheus_client", "structlog", "ruff", "detect_secrets", "jinja2", "markdown_it", "nh3", "pygments"),
        *("acp", "platformdirs"),
    ),
    "metrics": ("prometheus_client",),
    "mcp": ("mcp",),
}
"""The optional parts of the distribution, and the packages that each needs."""


class CommandFailedError(RunwardenError):
    """An error as every output format shows it; it ends a command, which exits with its code."""

    def __init__(self, kind: str, message: str, code: Exit, detail: Mapping[str, ErrorDetail]) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        """What happened and how to fix it."""
        self.exit = code
        self.detail = detail
        """More for scripts: `http_status`, `error_code`, `retry_after_s`, `field` and the like."""

    def as_json(self) -> dict[str, ErrorDetail]:
        """The object under `"error"`."""
        return {"kind": self.kind, "message": self.message, **self.detail}


def command_error(kind: str, message: str, **detail: ErrorDetail) -> CommandFailedError:
    return CommandFailedError(kind, message, EXIT_BY_KIND[kind], detail)


def installed_extras() -> list[str]:
    """The optional parts whose packages are all installed."""
    return [extra for extra, names in EXTRAS.items() if all(map(find_spec, names))]


def require_extra(extra: str) -> None:
    """Raise if a package of an optional part is missing; the message says how to install it."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        fix = how_to_add(",".join([*installed_extras(), extra]))
        reason = f"The {extra} extra is not installed ({', '.join(missing)} missing). Install it {fix}."
        raise command_error("missing_extra", reason, missing=list(missing))


WRONG_ADDRESS: Final = "Check the base address: it ends with the version, as in https://api.example.com/v1."
"""What to do if there is no list of runs: every service has one."""


def of_api_error(error: ApiError, *, hint: str = "") -> CommandFailedError:
    """Convert an API error to a failure; the hint is a sentence with an alternative."""
    detail: dict[str, ErrorDetail] = {}
    if isinstance(error, RefusedError):
        detail |= {"http_status": error.status, "error_code": error.error_code}
    if isinstance(error, RateLimitedError):
        detail["retry_after_s"] = error.retry_after_s
    message = error.message
    if hint:
        message = f"{message}{'' if message.endswith(('.', '!', '?', '…')) else '.'} {hint}"
    return CommandFailedError(error.kind, message, EXIT_BY_KIND.get(error.kind, Exit.UNREACHABLE), detail)
