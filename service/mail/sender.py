"""The sender: brings every owed mail on its way, again and again until it left, was refused, or its invitation ended."""

import logging
import threading
from collections.abc import Mapping
from typing import Final

from service.clock import SECOND_MICROS, Clock
from service.mail.mailers import Outbox, SmtpRelay
from service.mail.message import Mailer, MailError, invitation_message
from service.settings import DataFolder, Mail
from service.store import invitations
from service.store.database import Database
from service.store.invitations import Invitation, PendingMail

_log = logging.getLogger(__name__)
CLAIM_MICROS: Final = 600 * SECOND_MICROS
"""A mail in somebody's hands is due again after this: whoever had it died."""
_LONGEST_WAIT_S: Final = 3600
_ROUND_S: Final = 15.0


class MailSender:
    """Delivers the mails of one database; any number of them may work on it at once."""

    def __init__(self, database: Database, mailer: Mailer, settings: Mail, clock: Clock) -> None:
        self._database = database
        self._mailer = mailer
        self._settings = settings
        self._clock = clock

    def deliver(self, invitation_id: str) -> Invitation | None:
        """Try the mail of an invitation, which the caller has claimed; return what became of it, None if it is gone."""
        with self._database.read() as connection:
            owed = invitations.pending_mail(connection, invitation_id)
        if owed is not None:
            self._try(owed)
        with self._database.read() as connection:
            return invitations.by_id(connection, invitation_id)

    def deliver_due(self) -> list[Invitation]:
        """Try every mail that is due and not in another's hands; return what became of them."""
        with self._database.read() as connection:
            due = invitations.due_mails(connection, self._clock())
        found = [self.claim_and_deliver(invitation_id) for invitation_id in due]
        return [one for one in found if one is not None]

    def claim_and_deliver(self, invitation_id: str) -> Invitation | None:
        """Try a mail that is due; None when it is in another's hands, or gone."""
        return self.deliver(invitation_id) if self._claim(invitation_id) else None

    def _claim(self, invitation_id: str) -> bool:
        now = self._clock()
        with self._database.write() as connection:
            return invitations.claim_mail(connection, invitation_id, now, until=now + CLAIM_MICROS)

    def _try(self, owed: PendingMail) -> None:
        now = self._clock()
        if owed.expires_at <= now:
            self._settle(owed, "the invitation expired before its mail could leave", None)
            return
        try:
            self._mailer.send(invitation_message(self._settings.sender, owed))
        except MailError as error:
            self._settle(owed, str(error), None if error.refused else now + self._wait_micros(owed.attempts))
            return
        with self._database.write() as connection:
            invitations.mark_sent(connection, owed.invitation_id, self._clock())
        _log.info("the invitation %s to %s left", owed.invitation_id, owed.organization_id)

    def _settle(self, owed: PendingMail, failure: str, due_at: int | None) -> None:
        with self._database.write() as connection:
            invitations.mark_failed(connection, owed.invitation_id, failure, due_at=due_at)
        cure = "see: runwarden service invitation list" if due_at is None else "it will be tried again"
        _log.error("%s exists, but its invitation did not leave: %s; %s", owed.organization_id, failure, cure)

    def _wait_micros(self, attempts: int) -> int:
        doubled = self._settings.retry_s * 2 ** min(attempts, 12)
        return int(max(self._settings.retry_s, min(doubled, _LONGEST_WAIT_S)) * SECOND_MICROS)


class MailThread:
    """A thread that sees after the sender as long as the service runs."""

    def __init__(self, sender: MailSender, settings: Mail) -> None:
        self._post = sender
        self._pause_s = min(_ROUND_S, settings.retry_s)
        self._leaving = threading.Event()
        # A daemon: a message in its hands at the end keeps its claim, and is due again when that ends.
        threading.Thread(target=self._run, name="sender", daemon=True).start()

    def close(self) -> None:
        """Start no further round."""
        self._leaving.set()

    def _run(self) -> None:
        while not self._leaving.wait(self._pause_s):
            try:
                self._post.deliver_due()
            except Exception:  # noqa: BLE001 — the boundary: a database that is away must not end delivery for good
                _log.exception("the sender could not look for mail that is due; it tries again")


def mailer_of(folder: DataFolder, settings: Mail, environment: Mapping[str, str]) -> Mailer:
    """Return the configured way out: the mail server, else the outbox.

    Raises:
        SettingsError: The mail server needs a password that is not there.
    """
    return Outbox(folder.outbox) if settings.smtp is None else SmtpRelay(settings.smtp, environment)
