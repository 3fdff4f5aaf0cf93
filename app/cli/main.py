"""One command line, from its arguments to its exit code."""

import sys
from collections.abc import Sequence
from typing import Final

from app.cli import root
from app.cli.context import Invocation
from app.start.streams import NotPrintedError, ReaderGoneError, let_go_of, printing

BROKEN_PIPE: Final = 141
"""A shell's status for a process that SIGPIPE ended."""
NOT_PRINTED: Final = 74
"""Stdout could not be written (EX_IOERR): neither success nor failure may be reported."""


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
            code = int(result) if isinstance(result, int) else 0
        except (ReaderGoneError, NotPrintedError):
            raise
        except BaseException as error:  # noqa: BLE001 — the process's boundary: whatever it is, it has one form
            from app.cli.failures import report  # for failures only

            code = report(error, invocation, argv)
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
