"""One command line, from its arguments to its exit code: every failure is reported in one form."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import click

from app.api.errors import ApiError
from app.cli import root
from app.cli.context import Invocation, StoppedError
from app.cli.exits import EXIT_BY_KIND, CommandFailedError, ErrorDetail, Exit, Failure, of_api_error
from app.cli.output import Format
from app.start.streams import NotPrintedError, ReaderGoneError, let_go_of, printing, remarking
from storage.base_error import RunwardenError

BROKEN_PIPE: Final = 141
"""A shell's status for a process that SIGPIPE ended."""
CRASHED: Final = 70
"""A mistake in Runwarden itself (EX_SOFTWARE): none of the documented codes applies."""
NOT_PRINTED: Final = 74
"""Stdout could not be written (EX_IOERR): neither success nor failure may be reported."""


def failure_of(error: BaseException) -> Failure | None:
    """The failure for an error; None for an unforeseen one."""
    match error:
        case CommandFailedError():
            return error.failure
        case click.Abort() | KeyboardInterrupt() | StoppedError():
            return Failure("interrupted", "Interrupted.", Exit.INTERRUPTED)
        case click.ClickException():
            detail: dict[str, ErrorDetail] = {}
            hint = ""
            if isinstance(error, click.UsageError) and error.ctx is not None:
                detail["command"] = error.ctx.command_path
                hint = f" See: {error.ctx.command_path} --help"
            said = error.format_message().rstrip(".")
            return Failure("usage", said + ("" if said.endswith("?") else ".") + hint, Exit.USAGE, detail)
        case ApiError():
            return of_api_error(error)
        case RunwardenError():
            return _of_ours(error)
    return None


def _of_ours(error: RunwardenError) -> Failure:
    # Imported late: `--help` does not need these modules, and a mistake in the configuration not those below.
    from app.config import ConfigError
    from app.config.token import TokenError

    detail: dict[str, ErrorDetail] = {}
    if isinstance(error, TokenError):
        return Failure("token", str(error), Exit.USAGE)
    if isinstance(error, ConfigError):
        detail = {"file": None if error.file is None else str(error.file), "line": error.line, "key": error.key}
        return Failure(error.kind, str(error), Exit.USAGE, detail)
    from app.actions import ActionRefusedError, BlockedError, DuplicateError, InvalidRequestError
    from storage.errors import StorageError
    from storage.ledger import AmbiguousActionError, NoSuchActionError, WrongStateError

    match error:
        case ActionRefusedError():
            if isinstance(error, BlockedError | DuplicateError):
                detail["action_id"] = error.existing.action_id
            if isinstance(error, InvalidRequestError):
                detail["problems"] = [{"field": p.field, "message": p.message} for p in error.problems]
            hint = " To create another one all the same, give --again." if isinstance(error, DuplicateError) else ""
            return Failure(error.kind, error.message + hint, EXIT_BY_KIND.get(error.kind, Exit.USAGE), detail)
        case NoSuchActionError():
            return Failure("not_found", str(error), Exit.NOT_FOUND)
        case AmbiguousActionError():
            return Failure("ambiguous", str(error), Exit.USAGE)
        case WrongStateError():
            return Failure("wrong_state", str(error), Exit.USAGE)
        case StorageError():
            return Failure(error.kind, str(error), Exit.USAGE, {"file": str(error.path)})
    return Failure("failed", str(error), Exit.USAGE)


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line, given without the program's name; return its exit code."""
    invocation = Invocation()
    # A name that the terminal's encoding lacks must not end the command.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        try:
            result = root.main([*argv], prog_name="runwarden", standalone_mode=False, obj=invocation)
            code = int(result) if isinstance(result, int) else Exit.DONE
        except (ReaderGoneError, NotPrintedError):
            raise
        except BaseException as error:  # noqa: BLE001 — the process's boundary: whatever it is, it has one form
            code = _report(error, invocation, argv)
        with printing():
            sys.stdout.flush()
    except ReaderGoneError:
        let_go_of(sys.stdout)
        # The reader is gone, but a script still needs the outcome of a write.
        return BROKEN_PIPE if invocation.outcome is None else invocation.outcome
    except NotPrintedError as error:
        let_go_of(sys.stdout)
        invocation.output.note(
            f"runwarden: {error} The command itself was carried out; "
            f"for a write, see: {invocation.command_line} actions list"
        )
        return invocation.outcome or NOT_PRINTED
    return 128 + invocation.stopped_by if invocation.stopped_by else code


def _report(error: BaseException, invocation: Invocation, argv: Sequence[str]) -> int:
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, KeyboardInterrupt | click.Abort) and invocation.outcome is not None:
        # The document of a settled write is being printed: an error's document beside it would contradict it.
        return Exit.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return Exit.USAGE
    if isinstance(error, click.UsageError):
        # Parsing stopped before the options were read.
        invocation.asked_format = _format_asked_for(argv) or invocation.asked_format
        invocation.is_plugin = error.ctx is not None and error.ctx.info_name == "health"
    failure = failure_of(error)
    if failure is None:
        import traceback

        with remarking(sys.stderr):
            traceback.print_exception(error)
        failure = Failure("internal", f"Runwarden itself failed: {type(error).__name__}.", Exit.FAILED)
        (invocation.rows or invocation.output).failure(failure)
        return CRASHED
    if invocation.is_plugin:
        from app.cli.health import tell_unknown

        return tell_unknown(invocation.output, failure)
    (invocation.rows or invocation.output).failure(failure, invocation.beside_error)
    return failure.exit


def _format_asked_for(argv: Sequence[str]) -> Format | None:
    words = list(argv[: argv.index("--")] if "--" in argv else argv)
    for form in Format:
        pairs = set(pairwise(words))
        if {f"--output={form}", f"-o{form}"} & set(words) or {("-o", form), ("--output", form)} & pairs:
            return form
    return Format.JSON if "--json" in words else None
