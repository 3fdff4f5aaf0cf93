"""Every way a command can end early, told in one form."""

from collections.abc import Callable
from typing import Final

import click

from app.api.errors import ApiError
from app.cli.context import StoppedError
from app.cli.exits import EXIT_BY_KIND, CommandFailedError, ErrorDetail, Exit, Failure, of_api_error
from app.config import ConfigError
from app.token import TokenError


def failure_of(error: BaseException) -> Failure | None:
    """The failure that the error is; None where nobody foresaw it."""
    for kind, translate in TRANSLATIONS:
        if isinstance(error, kind):
            return translate(error)
    return _of_deeper_rooms(error)


def _of_usage(error: click.ClickException) -> Failure:
    detail: dict[str, ErrorDetail] = {}
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        detail["command"] = error.ctx.command_path
        hint = f" See: {error.ctx.command_path} --help"
    said = error.format_message().rstrip(".")
    return Failure("usage", said + ("" if said.endswith("?") else ".") + hint, Exit.USAGE, detail)


def _of_config(error: ConfigError) -> Failure:
    detail: dict[str, ErrorDetail] = {
        "file": None if error.file is None else str(error.file),
        "line": error.line,
        "key": error.key,
    }
    return Failure(error.kind, str(error), Exit.USAGE, detail)


def _of_token(error: TokenError) -> Failure:
    return Failure("token", str(error), Exit.USAGE)


def _of_interruption(_: BaseException) -> Failure:
    return Failure("interrupted", "Interrupted.", Exit.INTERRUPTED)


def _of_deeper_rooms(error: BaseException) -> Failure | None:
    # Imported only now: whoever raised these has paid for the import, and `config path` never does.
    from app.actions import ActionRefusedError, BlockedError, InvalidRequestError
    from storage.errors import StorageError
    from storage.ledger import AmbiguousActionError, NoSuchActionError, WrongStateError

    detail: dict[str, ErrorDetail] = {}
    match error:
        case ActionRefusedError():
            if isinstance(error, BlockedError):
                detail["action_id"] = error.existing.action_id
            if isinstance(error, InvalidRequestError):
                detail["problems"] = [{"field": p.field, "message": p.message} for p in error.problems]
            return Failure(error.kind, error.message, EXIT_BY_KIND.get(error.kind, Exit.USAGE), detail)
        case NoSuchActionError():
            return Failure("not_found", str(error), Exit.NOT_FOUND)
        case AmbiguousActionError():
            return Failure("ambiguous", str(error), Exit.USAGE)
        case WrongStateError():
            return Failure("wrong_state", str(error), Exit.USAGE)
        case StorageError():
            return Failure(error.kind, str(error), Exit.USAGE, {"file": str(error.path)})
    return None


TRANSLATIONS: Final[tuple[tuple[type[BaseException], Callable[..., Failure]], ...]] = (
    (CommandFailedError, lambda error: error.failure),
    (click.ClickException, _of_usage),
    (ConfigError, _of_config),
    (TokenError, _of_token),
    (ApiError, of_api_error),
    (StoppedError, _of_interruption),
    (click.Abort, _of_interruption),
    (KeyboardInterrupt, _of_interruption),
)
