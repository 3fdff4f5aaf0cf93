"""`runwarden`, and `python -m app`: straight to the console where nothing was asked, else to the command line."""

import gc
import os
import sys
from collections.abc import Sequence

from app.streams import open_missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code.

    Args:
        arguments: Without the program's name. None: the process's own.
    """
    open_missing()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    code = None if argv else _console_at_once()
    if code is not None:
        return code
    from app.cli.main import run_command_line

    return run_command_line(argv)


def _console_at_once() -> int | None:
    """The console, opened without the command line's imports, which would cost its first picture a fifth of its time.

    None: there is no terminal, or no configuration to open it with; the command line has an answer to both.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    # Starting makes objects and no garbage; `run_console` lets the collector look again.
    gc.disable()
    from app.config import ConfigError, config_path, load

    try:
        settings = load(config_path(None, os.environ), os.environ)
        profile = settings.profile()
    except ConfigError:
        gc.enable()
        return None
    from app.console import run_console

    return run_console(settings, profile)


if __name__ == "__main__":
    sys.exit(main())
