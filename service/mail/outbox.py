"""The outbox: a folder where every message is one .eml file, for whoever delivers or reads it."""

import os
import secrets
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Protocol


class MailError(Exception):
    """A message did not leave; the text says why."""


class Mailer(Protocol):
    """A way out for messages."""

    def send(self, message: EmailMessage) -> None:
        """Send one message.

        Raises:
            MailError: It did not leave.
        """
        ...


class Outbox:
    """Writes messages into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, message: EmailMessage) -> None:
        """Write the message; it appears in the folder only when it is complete.

        Raises:
            MailError: The folder cannot be written.
        """
        draft = self._folder / f".{secrets.token_hex(8)}.part"
        stamp = str(message["X-Runwarden-Organization"] or secrets.token_hex(8))
        try:
            with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(message.as_bytes(policy=SMTP))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._folder / f"{stamp}.eml")
        except OSError as error:
            raise MailError(f"the outbox {self._folder} cannot be written: {error}") from error
