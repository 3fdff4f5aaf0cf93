"""One command line, from its words to its exit code: every failure is told in one form."""

import sys
import traceback
from collections.abc import Mapping, Sequence

import click

from app.cli import root
from app.cli.context import Invocation
from app.cli.exits import Exit, Failure
from app.cli.failures import failure_of
from app.cli.output import Format
from app.streams import NotPrintedError, ReaderGoneError, let_go_of_stdout, printing

BROKEN_PIPE = 141
"""What a shell reports for a process that SIGPIPE ended."""
CRASHED = 70
"""A mistake in Runwarden itself (EX_SOFTWARE): no code of the contract may stand for it."""
NOT_PRINTED = 74
"""Stdout could not be written (EX_IOERR): success must not be claimed, nor that nothing was done."""


def run_line(argv: Sequence[str]) -> int:
    """Runs one command line, given without the program's name; returns its exit code."""
    invocation = Invocation()
    # A name in a script nobody's terminal can show is no reason to fail.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        code = _run(list(argv), invocation)
        with printing():
            sys.stdout.flush()
    except ReaderGoneError:
        let_go_of_stdout()
        return BROKEN_PIPE
    except NotPrintedError as error:
        let_go_of_stdout()
        invocation.output.note(f"runwarden: {error} What was asked was done; of a write: runwarden actions list")
        return NOT_PRINTED
    return 128 + invocation.stopped_by if invocation.stopped_by else code


def _run(argv: list[str], invocation: Invocation) -> int:
    try:
        result = root.main(argv, prog_name="runwarden", standalone_mode=False, obj=invocation)
    except (ReaderGoneError, NotPrintedError):
        raise
    except BaseException as error:  # noqa: BLE001 — the process's boundary: whatever it is, it is told in one form
        return _tell(error, invocation, argv)
    return int(result) if isinstance(result, int) else Exit.DONE


def _tell(error: BaseException, invocation: Invocation, argv: Sequence[str]) -> int:
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return Exit.USAGE
    if isinstance(error, click.UsageError):
        # Parsing stopped before the options could say it.
        invocation.format = _format_asked_for(argv) or invocation.format
        invocation.is_plugin = error.ctx is not None and error.ctx.info_name == "health"
    failure = failure_of(error)
    if failure is None:
        traceback.print_exception(error)
        failure = Failure("internal", f"Runwarden itself failed: {type(error).__name__}.", Exit.FAILED)
        invocation.output.failure(failure)
        return CRASHED
    if invocation.is_plugin:
        from app.cli.health import tell_unknown

        return tell_unknown(invocation.output, failure)
    invocation.output.failure(failure, _beside(error, invocation))
    return failure.exit


def _beside(error: BaseException, invocation: Invocation) -> Mapping[str, object]:
    from storage.errors import StorageError

    # A ledger that fails may do so when the request has left already: of that nothing can be said.
    return {} if isinstance(error, StorageError) else invocation.beside_error


def _format_asked_for(argv: Sequence[str]) -> Format | None:
    formats = {form.value: form for form in Format}
    for i, word in enumerate(argv):
        if word == "--":
            return None
        if word == "--json":
            return Format.JSON
        if word in {"-o", "--output"} and i + 1 < len(argv):
            return formats.get(argv[i + 1])
        if word.startswith(("--output=", "-o")):
            return formats.get(word.removeprefix("--output=").removeprefix("-o"))
    return None
