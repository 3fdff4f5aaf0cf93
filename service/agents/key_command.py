"""A short-lived key or token, printed by the operator's command."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Final

from service.errors import ServiceError

_KEPT_S: Final = 300.0
"""How long it is used before the command is asked again."""
_FAILED_KEPT_S: Final = 5.0
"""How long a failure is the answer to everyone who asks."""
_MAX_S: Final = 20.0
_MAX_OUTPUT: Final = 1 << 16
_MAX_REASON: Final = 300
_WORD: Final = re.compile(r"[!-~]{1,16384}")


class NoKeyError(ServiceError):
    """No usable key; the text says why."""


class PrintedKey:
    """The key that a command prints; concurrent threads share one run of the command."""

    def __init__(self, name: str, command: Sequence[str], patience_s: float = _MAX_S + 1) -> None:
        """`name`: the setting with the command, such as `key_command`, for errors; `patience_s`: how long one waits."""
        self._patience_s = patience_s
        self._name, self._noun = name, name.removesuffix("_command")
        self._command = tuple(command)
        self._key = ""
        self._until = 0.0
        self._late_at = 0.0
        """When nobody waits for the running command any more."""
        self._failed_until = 0.0
        self._asking = threading.Lock()
        self._answer: Future[str] | None = None
        """The answer of the running command, or of one for which nobody waited any more."""

    def get(self, refused: str | None = None) -> str:
        """Return the key. If that is the `refused` one, run the command again, which may print the same key.

        Raises:
            NoKeyError: The command printed none, or none yet: a later call takes the key that it prints.
        """
        with self._asking:
            if self._key != refused and time.monotonic() < self._until:
                return self._key
            answer = self._answer
            has_failed = answer is not None and answer.done() and answer.exception() is not None
            if answer is None or (has_failed and time.monotonic() >= self._failed_until):
                answer, self._late_at = Future(), time.monotonic() + self._patience_s
                self._answer = answer
                threading.Thread(target=self._run, args=(answer,), name=self._name, daemon=True).start()
            patience_s = max(0.0, self._late_at - time.monotonic())
        if not wait([answer], patience_s).done:
            late = f"has printed no {self._noun} within {self._patience_s:g} s; it is still running"
            raise NoKeyError(f"{self._name} {self._command[0]!r} {late}")
        with self._asking:
            if self._answer is answer and answer.exception() is None:
                self._answer = None
                self._key, self._until = answer.result(), time.monotonic() + _KEPT_S
        return answer.result()

    def _run(self, answer: Future[str]) -> None:
        try:
            answer.set_result(self._run_command())
        except (ServiceError, OSError) as error:
            self._failed_until = time.monotonic() + _FAILED_KEPT_S
            answer.set_exception(error)

    def _run_command(self) -> str:
        program = self._command[0]
        # Files, since a process that the command leaves behind may hold pipes open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
                )
                try:
                    status = process.wait(_MAX_S)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            except (OSError, subprocess.TimeoutExpired) as error:
                reason = error.strerror if isinstance(error, OSError) else f"it took longer than {_MAX_S:g} s"
                raise NoKeyError(f"{self._name} {program!r} printed no {self._noun}: {reason}") from error
            out.seek(0)
            err.seek(0)
            key, words = (file.read(_MAX_OUTPUT).decode("utf-8", "replace").strip() for file in (out, err))
        if status == 0 and _WORD.fullmatch(key):
            return key
        last_line = words.rpartition("\n")[2].strip() or f"it exited with status {status}"
        reason = last_line if status else "its output is not one word"
        raise NoKeyError(f"{self._name} {program!r} printed no {self._noun}: {reason[:_MAX_REASON]}")
