"""Failures: every error that stops a command is reported in one form."""

import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import click

from app.api.errors import ApiError
from app.cli import Format
from app.cli.context import Invocation, StoppedError
from app.cli.exits import EXIT_BY_KIND, CommandFailedError, ErrorDetail, Exit, command_error, of_api_error
from app.profiles import ConfigError
from app.profiles.token import TokenError
from app.start.streams import remarking
from storage import RunwardenError

CRASHED: Final = 70
"""A mistake in Runwarden itself (EX_SOFTWARE): none of the documented codes applies."""


def report(error: BaseException, invocation: Invocation, argv: Sequence[str]) -> int:
    """Print the error that stopped a command, in the requested format; return the exit code."""
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, KeyboardInterrupt | click.Abort) and invocation.outcome is not None:
        # The document of a settled write is being printed: another document with an error would contradict it.
        return Exit.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return Exit.USAGE
    if isinstance(error, click.UsageError):
        # Parsing stopped before the options were read.
        words = list(argv[: argv.index("--")] if "--" in argv else argv)
        pairs = set(pairwise(words))
        forms = [
            form
            for form in Format
            if {f"--output={form}", f"-o{form}"} & set(words) or {("-o", form), ("--output", form)} & pairs
        ]
        forms += [Format.JSON] if "--json" in words else []
        invocation.asked_format = next(iter(forms), invocation.asked_format)
        invocation.is_plugin = error.ctx is not None and error.ctx.info_name == "health"
    failure = failure_of(error)
    if failure is None:
        with remarking(sys.stderr):
            traceback.print_exception(error)
        advice = "Open an issue with the traceback above and the output of: runwarden doctor"
        message = f"Runwarden itself failed: {type(error).__name__}. {advice}"
        failure = CommandFailedError("internal", message, Exit.FAILED, {})
        (invocation.rows or invocation.output).failure(failure)
        return CRASHED
    if invocation.is_plugin:
        from app.health.command import print_unknown

        return print_unknown(invocation.output, failure)
    (invocation.rows or invocation.output).failure(failure, invocation.beside_error)
    return failure.exit


def failure_of(error: BaseException) -> CommandFailedError | None:
    """The failure for an error; None for an unexpected error."""
    match error:
        case CommandFailedError():
            return error
        case click.Abort() | KeyboardInterrupt() | StoppedError():
            return command_error("interrupted", "Interrupted.")
        case click.ClickException():
            detail: dict[str, ErrorDetail] = {}
            hint = ""
            if isinstance(error, click.UsageError) and error.ctx is not None:
                detail["command"] = error.ctx.command_path
                hint = f" See: {error.ctx.command_path} --help"
            message = error.format_message().rstrip(".")
            return command_error("usage", message + ("" if message.endswith("?") else ".") + hint, **detail)
        case ApiError():
            return of_api_error(error)
        case RunwardenError():
            detail = {}
            hint = ""
            if isinstance(error, ConfigError):
                detail = {"file": None if error.file is None else str(error.file), "line": error.line, "key": error.key}
            elif not isinstance(error, TokenError):
                # A mistake in the command line or in the configuration does not need these.
                from app.actions.refusals import BlockedError, DuplicateError, InvalidRequestError
                from storage.errors import StorageError

                if isinstance(error, StorageError):
                    detail = {"file": str(error.path)}
                elif isinstance(error, InvalidRequestError):
                    detail = {"problems": [{"field": p.field, "message": p.message} for p in error.problems]}
                elif isinstance(error, BlockedError | DuplicateError):
                    detail = {"action_id": error.existing.action_id}
                    hint = ""
                    if isinstance(error, DuplicateError):
                        hint = " To create another one anyway, give --again."
            return CommandFailedError(error.kind, f"{error}{hint}", EXIT_BY_KIND.get(error.kind, Exit.USAGE), detail)
    return None
