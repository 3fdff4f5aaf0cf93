"""The letter: a finished message with its envelope, and what can go wrong on its way."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Letter:
    """A message, ready to leave."""

    organization_id: str
    invitation_id: str
    sender: str
    """Address only, without a name."""
    recipient: str
    content: bytes
    """Headers and text, lines ended by CRLF."""


class MailError(Exception):
    """A letter did not leave; the text says why and names the cure."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """The mail server will never take this letter: trying again is of no use until somebody changes something."""


class Mailer(Protocol):
    """A way out for letters."""

    def send(self, letter: Letter) -> None:
        """Send one letter.

        Raises:
            MailError: It did not leave.
        """
        ...
