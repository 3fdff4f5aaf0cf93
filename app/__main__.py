"""`runwarden` and `python -m app`: the console without arguments, else the command line."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from app.start.first_frame import FirstFrame


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit code."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from app.start.streams import open_missing

        open_missing()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv in (["-V"], ["--version"]):
        # Scripts and prompts call this often, and it needs no imports.
        from app.version import VERSION_LINE

        print(VERSION_LINE, flush=True)  # noqa: T201 — the command's output
        return 0
    has_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if has_screen and not argv:
        # The console opens without the command line, before any other import of ours: every millisecond counts.
        import signal

        from app.start import first_frame

        numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        before = {each: signal.signal(each, lambda number, _: sys.exit(128 + number)) for each in numbers}
        frame, code = first_frame.FirstFrame(os.environ), None
        modes = first_frame.quieten()
        try:
            frame.show(os.get_terminal_size(sys.stdout.fileno()))
            code = _console(frame, modes)
        finally:
            first_frame.take_down(modes, is_shown=frame.is_shown and code is None)
            for number, handler in before.items():
                signal.signal(number, handler)
        if code is not None:
            return code
    gc.disable()  # A start makes objects and no garbage; a command's work begins with `app.cli.running.run`.
    from app.cli.main import run_command_line

    return run_command_line(argv)


def _console(frame: FirstFrame, modes: list[Any] | None) -> int | None:
    """Show the console; None: there is no usable configuration."""
    # A start makes objects and no garbage; `run_console` enables the collector again.
    gc.disable()
    from app.profiles import ConfigError, config_path, load
    from app.start.first_frame import configuration

    path = config_path(None, os.environ)
    # Before the file is read: a frame of its current content must not pass for one of a later content.
    found = configuration(str(path))
    try:
        settings = load(path, os.environ)
        profile = settings.profile()
    except ConfigError:
        gc.enable()
        return None
    from app.console import run_console

    # Data that the configuration moves elsewhere stays there; frames are kept beside the environment's data folder.
    is_moved = settings.data_dir is not None and "RUNWARDEN_DATA_DIR" not in os.environ
    keep = None if is_moved else lambda size, title, rows: frame.keep(found, size, title, rows)
    return run_console(settings, profile, modes_before=modes, keep_frame=keep)


if __name__ == "__main__":
    sys.exit(main())
