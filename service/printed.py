"""A key or token of short life, printed by a command of the operator."""

import re
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

from service.errors import ServiceError

_KEPT_S: Final = 300.0
"""How long it is used before the command is asked again."""
_LONGEST_S: Final = 60.0
_LONGEST_REASON: Final = 300
_WORD: Final = re.compile(r"[!-~]{1,16384}")


class NoKeyError(ServiceError):
    """There is no key that can be sent; the text says why."""


class PrintedKey:
    """What a command prints; threads that ask at the same time share its answer."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        """`name`: the setting with the command, for errors."""
        self._name = name
        self._command = tuple(command)
        self._key = ""
        self._until = 0.0
        self._asking = threading.Lock()

    def get(self, refused: str | None = None) -> str:
        """Return the key. If that is the `refused` one, run the command again, which may print the same key.

        Raises:
            NoKeyError: The command printed none.
        """
        with self._asking:
            if self._key == refused or time.monotonic() >= self._until:
                self._key = self._printed()
                self._until = time.monotonic() + _KEPT_S
            return self._key

    def _printed(self) -> str:
        program = self._command[0]
        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                errors="replace",
                timeout=_LONGEST_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = error.strerror if isinstance(error, OSError) else f"it took longer than {_LONGEST_S:g} s"
            raise NoKeyError(f"{self._name} {program!r} printed no key: {why}") from error
        key = done.stdout.strip()
        if done.returncode == 0 and _WORD.fullmatch(key):
            return key
        said = done.stderr.split("\n") if done.returncode else ["its output is not one word"]
        ended = f"it exited with status {done.returncode}"
        why = next((text.strip() for text in reversed(said) if text.strip()), ended)
        raise NoKeyError(f"{self._name} {program!r} printed no key: {why[:_LONGEST_REASON]}")
