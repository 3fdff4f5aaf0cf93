"""The key of a model: from the service's environment, or from a command that prints one of short life."""

import os
import re
import subprocess
import threading
import time
from typing import Final

from service.agents.options import ModelAccess
from service.errors import ServiceError

_KEPT_S: Final = 300.0
"""How long a printed key is used before the command is asked again."""
_LONGEST_S: Final = 60.0
_LONGEST_REASON: Final = 300
_KEY: Final = re.compile(r"[!-~]{1,16384}")
_HEADER: Final = re.compile(r"[\t -~]*")
"""The text that an HTTP header can carry."""


class NoKeyError(ServiceError):
    """There is no key that can be sent; the text says why."""


class ModelKey:
    """The key of one turn's model; only this process sees it."""

    def __init__(self, access: ModelAccess) -> None:
        self._command = access.key_command
        self._variable = access.key_env or ""
        self._key = os.environ.get(self._variable, "").strip()
        self._until = 0.0
        self._asking = threading.Lock()

    def get(self, refused: str | None = None) -> str:
        """Return the key. If that is the `refused` one, run the command again, which may print the same key.

        Raises:
            NoKeyError: The command printed none, or no header can carry the key of the environment.
        """
        with self._asking:
            if self._command and (self._key == refused or time.monotonic() >= self._until):
                self._key = _printed(self._command)
                self._until = time.monotonic() + _KEPT_S
            if not _HEADER.fullmatch(self._key):
                what = f"the key in {self._variable} holds a line break or another character that cannot be sent"
                raise NoKeyError(f"{what}: set {self._variable} to a valid key")
            return self._key


def _printed(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=_LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else f"it took longer than {_LONGEST_S:g} s"
        raise NoKeyError(f"key_command {command[0]!r} printed no key: {why}") from error
    key = done.stdout.strip()
    if done.returncode == 0 and _KEY.fullmatch(key):
        return key
    said = done.stderr.split("\n") if done.returncode else ["its output is not one word"]
    why = next((line.strip() for line in reversed(said) if line.strip()), f"it exited with status {done.returncode}")
    raise NoKeyError(f"key_command {command[0]!r} printed no key: {why[:_LONGEST_REASON]}")
