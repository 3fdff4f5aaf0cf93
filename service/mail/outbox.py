"""The outbox: a folder where every message is one .eml file, for whoever delivers or reads it."""

import contextlib
import os
import secrets
from pathlib import Path

from service.mail.letter import Letter, MailError


class Outbox:
    """Writes letters into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, letter: Letter) -> None:
        """Write the letter; it appears in the folder only when it is complete.

        Raises:
            MailError: The folder cannot be written.
        """
        draft = self._folder / f".{secrets.token_hex(8)}.part"
        try:
            with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(letter.content)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(self._place(letter))
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise MailError(
                f"the outbox {self._folder} cannot be written ({error}); make it a folder that the service may write"
            ) from error

    def _place(self, letter: Letter) -> Path:
        first = self._folder / f"{letter.organization_id}.eml"
        # A further invitation to an organization does not cover one that nobody has delivered yet.
        return self._folder / f"{letter.organization_id}.{letter.invitation_id}.eml" if first.exists() else first
