"""The API token: read from the source that the profile names, and never shown."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

from msgspec import Struct

from app.version import DISTRIBUTION
from storage import RunwardenError

_MAX_TOKEN: Final = 16_384
"""The most characters of a token that fits into a header."""
_COMMAND_TIMEOUT_S: Final = 30.0
_KEYRING_TIMEOUT_S: Final = 3.0
"""Time limit for a keyring: a locked one waits for a dialog that may be invisible."""
_KEYRING_SERVICE: Final = "runwarden"


class TokenError(RunwardenError):
    """No usable token; the message names the fix and never contains the token."""

    kind = "token"

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(f"{message} {fix}")
        self.message = message
        self.fix = fix


@final
class Token:
    """A bearer token whose text is hidden; `reveal` is for the one header that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Refuse a value that cannot be sent as a bearer token, with a `TokenError`."""
        if not value:
            raise TokenError("The token is empty.", fix="Create one on the service's page: Settings, API tokens.")
        if len(value) > _MAX_TOKEN:
            raise TokenError("The token is too long to be one.", fix="Check where it is read from.")
        # An error about a bad header would show the token: raise one here that does not.
        if not value.isascii() or not value.isprintable() or " " in value:
            raise TokenError(
                "The token holds blanks, line ends or characters that are not ASCII.",
                fix="Store the bare token, without the word Bearer.",
            )
        self._value = value

    def reveal(self) -> str:
        """The token's text, for the one header that carries it."""
        return self._value

    def __repr__(self) -> str:
        return "Token(hidden)"

    def __reduce__(self) -> str:
        # A pickled token would be readable.
        raise TypeError("A token cannot be pickled.")


def _parse_token(content: bytes) -> Token:
    return Token(content.decode("ascii", errors="replace").strip())


class EnvToken(Struct, frozen=True):
    """A token in an environment variable."""

    variable: str = "RUNWARDEN_TOKEN"
    meant_for: str = ""
    """Why the token is not used here: it may belong to another service; empty if it is used."""

    def __str__(self) -> str:
        return f"environment variable {self.variable}"

    def read(self, env: Mapping[str, str]) -> Token:
        """Read the token, and remove the variable from `os.environ`: no child process inherits it."""
        if self.meant_for:
            raise TokenError(
                f"{self.variable} may be meant for another service: {self.meant_for}.",
                fix='Name the source in the profile, such as token_env = "ACME_TOKEN", or use --token-stdin.',
            )
        value = env.get(self.variable)
        os.environ.pop(self.variable, None)
        if value is None:
            raise TokenError(
                f"The environment variable {self.variable} is not set.",
                fix="Set it to an API token of the service, or name another source in the profile.",
            )
        return Token(value.strip())


class FileToken(Struct, frozen=True):
    """A token in a file that only its owner can read."""

    path: Path

    def __str__(self) -> str:
        return f"file {self.path}"

    def read(self, _env: Mapping[str, str]) -> Token:
        """Read the token; one descriptor is checked and read, so a changed path makes no difference."""
        source = f"The token file {self.path}"
        correct = "Correct token_file."
        try:
            # Non-blocking: a FIFO without a writer would hold the start for ever.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise TokenError(f"{source} cannot be read: {error.strerror}.", fix=correct) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise TokenError(f"{source} is not a regular file.", fix=correct)
            if status.st_uid not in {os.geteuid(), 0}:
                raise TokenError(f"{source} belongs to another user.", fix="Use another file.")
            if status.st_mode & 0o077:
                raise TokenError(f"Others can read the token file {self.path}.", fix=f"Run: chmod 600 {self.path}")
            return _parse_token(os.read(descriptor, _MAX_TOKEN + 2))
        finally:
            os.close(descriptor)


def _run_program(argv: Sequence[str], env: Mapping[str, str], deadline_s: float) -> tuple[int, bytes]:
    """Run a program in a new session, which has no terminal; return its exit code and its output.

    A helper that it leaves behind may keep its output open, and is not waited for.

    Raises:
        TimeoutExpired: It did not exit in time, and was killed with its helpers.
        OSError: It cannot be run.
    """
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        argv, env=dict(env), stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, start_new_session=True
    ) as process:
        try:
            code = process.wait(deadline_s)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.stdout is None:
            raise RuntimeError
        os.set_blocking(process.stdout.fileno(), False)
        return code, process.stdout.read(_MAX_TOKEN + 2) or b""


class CommandToken(Struct, frozen=True):
    """Printed by a command; no shell is involved."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return f"command {self.argv[0]}"

    def read(self, env: Mapping[str, str]) -> Token:
        """Run the command and read its output; its error output would disturb the drawn screen."""
        source = f"The token_command {self.argv[0]!r}"
        try:
            code, printed = _run_program(self.argv, env, _COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            fix = "Run it by hand to see what it waits for: here it has no terminal to ask on."
            raise TokenError(f"{source} did not finish within {_COMMAND_TIMEOUT_S:.0f} s.", fix=fix) from error
        except OSError as error:
            raise TokenError(f"{source} cannot be run: {error.strerror}.", fix="Correct token_command.") from error
        if code:
            fix = "Run it by hand to see why: here it has no terminal to ask on."
            raise TokenError(f"{source} exited with status {code}.", fix=fix)
        return _parse_token(printed)


class KeyringToken(Struct, frozen=True):
    """A token in the desktop's keyring, under the service name `runwarden`."""

    name: str

    def __str__(self) -> str:
        return f"keyring entry {self.name}"

    def read(self, _env: Mapping[str, str]) -> Token:
        """Read the token in a separate process: a backend that hangs can be killed, and a crash does not spread."""
        argv = (sys.executable, "-P", "-m", "keyring", "get", _KEYRING_SERVICE, self.name)
        if find_spec("keyring") is None:
            fix = f"Install it (pipx inject {DISTRIBUTION} keyring)."
            raise TokenError("The keyring package is not installed.", fix=fix)
        try:
            code, printed = _run_program(argv, os.environ, _KEYRING_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise TokenError("The keyring did not answer.", fix="Unlock it first, or use token_file.") from error
        if code or not printed.strip():
            fix = f"Run: keyring set {_KEYRING_SERVICE} {self.name}, or use token_file."
            raise TokenError(f"The keyring holds no {self.name!r}.", fix=fix)
        return _parse_token(printed)


class ReadToken(Struct, frozen=True):
    """A token that was already read, as with `--token-stdin`, or why it cannot be used."""

    token: Token | TokenError
    again: FileToken | CommandToken | KeyringToken | None = None
    """The source of later tokens, or None."""

    def __str__(self) -> str:
        return "stdin"

    def read(self, _env: Mapping[str, str]) -> Token:
        """The same token at each call."""
        if isinstance(self.token, TokenError):
            raise self.token
        return self.token


TOKEN_KINDS: Final[Mapping[str, type[EnvToken | FileToken | CommandToken | KeyringToken]]] = {
    "token_env": EnvToken,
    "token_file": FileToken,
    "token_command": CommandToken,
    "token_keyring": KeyringToken,
}
"""The sources that a profile may name, by their keys; a key's value is the first field of its source."""
TokenSource = EnvToken | FileToken | CommandToken | KeyringToken | ReadToken
"""`read` may block as long as a command or a keyring takes, and raises `TokenError`; `str` says where it is."""


def source_after_refusal(source: TokenSource) -> tuple[FileToken | CommandToken | KeyringToken, float] | None:
    """The source that may hold a new token after a refusal, and the seconds between reads; None if no source can."""
    again = source.again if isinstance(source, ReadToken) else source
    if again is None or isinstance(again, EnvToken):
        return None
    # A command or a keyring may ask the user.
    return again, 10.0 if isinstance(again, FileToken) else 600.0
