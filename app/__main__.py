"""`runwarden`, and `python -m app`: straight to the console where nothing was asked, else to the command line."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from app.first_frame import FirstFrame


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    code = None if argv or not _is_on_terminal() else _console_at_once()
    if code is not None:
        return code
    from app.cli.main import run_command_line
    from app.streams import open_missing

    open_missing()
    return run_command_line(argv)


def _is_on_terminal() -> bool:
    # A stream that the process was started without is None.
    return bool(sys.stdin and sys.stdout and sys.stdin.isatty() and sys.stdout.isatty())


def _console_at_once() -> int | None:
    """Open the console without the command line's imports; None: there is no usable configuration to open it with."""
    # Before any other import of ours: every millisecond is seen.
    from app import first_frame

    frame = first_frame.FirstFrame(os.environ, os.get_terminal_size(sys.stdout.fileno()))
    modes = frame.show()
    try:
        code = _console(frame, modes)
    except BaseException:
        code = None
        raise
    finally:
        if code is None and modes is not None:
            first_frame.take_down(modes)
    return code


def _console(frame: FirstFrame, modes: list[Any] | None) -> int | None:
    import gc
    import signal

    # Starting makes objects and no garbage; `run_console` enables the collector again.
    gc.disable()
    if modes is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _exit)
    from functools import partial

    from app.config import ConfigError, config_path, load

    path = config_path(None, os.environ)
    try:
        settings = load(path, os.environ)
        profile = settings.profile()
    except ConfigError:
        gc.enable()
        return None
    from app.console import run_console

    return run_console(settings, profile, modes_before=modes, keep_frame=partial(frame.keep, str(path)))


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
