"""The operator's file of variables, which long-running processes read again on SIGHUP."""

import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from service.settings import SettingsError

ENVIRONMENT_VARIABLE: Final = "RUNWARDEN_SERVICE_ENVIRONMENT"
"""The variable with the path of that file."""
_ENTRY: Final = re.compile(
    r"""(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?:(?P<quote>["'])(?P<quoted>[^\0]*)(?P=quote)|(?P<text>[^"'\0][^\0]*)?)"""
)
_logger = logging.getLogger(__name__)


class EnvironmentFile:
    """The operator's file of variables, and the variables set from it."""

    def __init__(self) -> None:
        self._variables: dict[str, str] = {}

    def load(self, check: Callable[[Mapping[str, str]], object] = lambda _: None) -> list[str]:
        """Load the file's variables into the environment, and remove those that were dropped from the file.

        Return the names of those that changed. `check` raises a SettingsError if the new environment cannot be used.

        Raises:
            SettingsError: The file cannot be read or used, and nothing has changed.
        """
        file = Path(os.environ[ENVIRONMENT_VARIABLE])
        source = f"{file} ({ENVIRONMENT_VARIABLE})"
        try:
            is_open_to_all = file.stat().st_mode & stat.S_IWOTH
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(f"{source}: {reason}; the service's user must be able to read it") from error
        if is_open_to_all:
            raise SettingsError(f"{source}: everyone may write it: chmod o-w")
        variables = {}
        for number, line in enumerate(lines, 1):
            if (entry := line.strip()) and entry[0] not in "#;":
                match = _ENTRY.fullmatch(entry)
                place = f"{source}: line {number}"
                if match is None:
                    # The line is not shown: it may hold a secret.
                    raise SettingsError(f"{place} is not NAME=value, or a quote in it is not closed")
                if match["name"] == ENVIRONMENT_VARIABLE:
                    raise SettingsError(f"{place}: this variable is set for the process, not in the file")
                variables[match["name"]] = match["quoted"] or match["text"] or ""
        if self._variables and not variables:
            raise SettingsError(f"{source}: it is empty")
        removed = self._variables.keys() - variables.keys()
        check({name: value for name, value in os.environ.items() if name not in removed} | variables)
        for name in removed:
            os.environ.pop(name, None)
        os.environ.update(variables)
        before, self._variables = self._variables, variables
        return sorted({name for name, _ in before.items() ^ variables.items()})

    def reload(self, check: Callable[[Mapping[str, str]], object], changed: Callable[[], object]) -> None:
        """Do the same while the process runs, and call `changed`; of a file that cannot be used, the log says why."""
        if not os.environ.get(ENVIRONMENT_VARIABLE):
            _logger.warning("there is no file to read again: set %s", ENVIRONMENT_VARIABLE)
            return
        try:
            names = self.load(check)
        except SettingsError as error:
            _logger.error("the environment stays as it was: %s", error)  # noqa: TRY400 — the error's text is enough without a traceback
            return
        changed()
        _logger.info("read %s again; changed: %s", os.environ[ENVIRONMENT_VARIABLE], ", ".join(names) or "nothing")
