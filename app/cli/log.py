"""The log of a command or a console, as the options ask for it."""

import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from app.cli.exits import failed
from app.engine.text import safe_text
from app.engine.times import rfc3339

OURS: Final = ("app", "storage")
"""The loggers that are written: the lines of libraries may hold headers, and with them the token."""
_MAX_LINE: Final = 4_000


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time, level, part of the program, message: one printable line, and a traceback below it."""
        at = rfc3339(datetime.fromtimestamp(record.created, UTC))
        text = super().format(record).splitlines()
        first, *more = [str(safe_text(line, limit=_MAX_LINE)) for line in text] or [""]
        return "\n".join([f"{at} {record.levelname.lower()} {record.name}: {first}", *more])


def write_log(*, verbose: bool, file: Path | None) -> None:
    """Write the log to stderr, or into a file (0600) that is appended to.

    Raises:
        CommandFailedError: The file cannot be written.
    """
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            file.touch(mode=0o600)
            handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise failed("usage", f"{file} cannot be written: {error.strerror}.") from error
    handler.setFormatter(_Line("%(message)s"))
    for name in OURS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        logger.handlers = [handler]
