"""The terminal itself says how large it is, whatever the environment says of it."""

import os
import sys


def is_on_terminal() -> bool:
    """Whether a terminal is drawn on; in a browser it is not."""
    return sys.stdin.isatty() and sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ


def follow_window() -> None:
    """Forgets the size in the environment: exported there, it would hold however the window changes."""
    if is_on_terminal():
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
