"""The key of a model: from the service's environment, or from a command that prints one of short life."""

import os
import re
from typing import Final

from service.agents.options import ModelAccess
from service.printed import NoKeyError, PrintedKey

_HEADER: Final = re.compile(r"[\t -~]*")
"""The text that an HTTP header can carry."""


class ModelKey:
    """The key of one turn's model; only this process sees it."""

    def __init__(self, access: ModelAccess) -> None:
        self._printed = PrintedKey("key_command", access.key_command) if access.key_command else None
        self._variable = access.key_env or ""
        self._key = os.environ.get(self._variable, "").strip()

    def get(self, refused: str | None = None) -> str:
        """Return the key. If that is the `refused` one, run the command again, which may print the same key.

        Raises:
            NoKeyError: The command printed none, or no header can carry the key of the environment.
        """
        if self._printed is not None:
            return self._printed.get(refused)
        if not _HEADER.fullmatch(self._key):
            what = f"the key in {self._variable} holds a line break or another character that cannot be sent"
            raise NoKeyError(f"{what}: set {self._variable} to a valid key")
        return self._key
