"""Variables in a file of the operator's: read at the start, and by long-running processes again on SIGHUP."""

import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from service.settings import SettingsError

VARIABLE: Final = "RUNWARDEN_SERVICE_ENVIRONMENT"
"""The variable with the file's path."""
_ENTRY: Final = re.compile(
    r"""(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?:(?P<quote>["'])(?P<quoted>[^\0]*)(?P=quote)|(?P<text>[^"'\0][^\0]*)?)"""
)
_held: Final[dict[str, str]] = {}
"""What this process has from its file."""
_logger = logging.getLogger(__name__)


def load(check: Callable[[Mapping[str, str]], object] = lambda _: None) -> None:
    """Put the variables of the file into the environment; those that are no longer in it go.

    `check` raises a SettingsError if the new environment cannot be used.

    Raises:
        SettingsError: The file cannot be read or used, and nothing has changed.
    """
    file = os.environ[VARIABLE]
    try:
        found = _parsed(Path(file))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"{file} ({VARIABLE}): {why}; the service's user must be able to read it") from error
    except ValueError as error:
        raise SettingsError(f"{file} ({VARIABLE}): {error}") from error
    gone = _held.keys() - found.keys()
    check({name: value for name, value in os.environ.items() if name not in gone} | found)
    for name in gone:
        os.environ.pop(name, None)
    os.environ.update(found)
    _held.clear()
    _held.update(found)


def reload(check: Callable[[Mapping[str, str]], object], changed: Callable[[], object]) -> None:
    """Do the same while the process runs, and call `changed`; of a file that cannot be used, the log says why."""
    if not os.environ.get(VARIABLE):
        _logger.warning("there is no file to read again: set %s", VARIABLE)
        return
    before = dict(_held)
    try:
        load(check)
    except SettingsError as error:
        _logger.error("the environment stays as it was: %s", error)  # noqa: TRY400 — the text says it all
        return
    changed()
    names = sorted(name for name in before.keys() | _held.keys() if before.get(name) != _held.get(name))
    _logger.info("read %s again; changed: %s", os.environ[VARIABLE], ", ".join(names) or "nothing")


def _parsed(file: Path) -> dict[str, str]:
    if file.stat().st_mode & stat.S_IWOTH:
        raise ValueError("everyone may write it: chmod o-w")
    found = {}
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if (entry := line.strip()) and entry[0] not in "#;":
            match = _ENTRY.fullmatch(entry)
            if match is None:
                # The line is not shown: it may hold a secret.
                raise ValueError(f"line {number} is not NAME=value, or a quote in it is not closed")
            if match["name"] == VARIABLE:
                raise ValueError(f"line {number}: this variable is set for the process, not in the file")
            found[match["name"]] = match["quoted"] or match["text"] or ""
    if _held and not found:
        raise ValueError("it is empty")
    return found
