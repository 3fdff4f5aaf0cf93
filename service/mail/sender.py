"""The mail sender: retries every pending mail until it is sent, refused, or its invitation expires."""

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

_logger = logging.getLogger(__name__)
CLAIM_MICROS: Final = 600 * SECOND_MICROS
"""A claimed mail is due again after this: its claimer must have died."""
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
        """Send the mail of an invitation that the caller has claimed; return the invitation, None if it is gone."""
        with self._database.read() as connection:
            pending = invitations.pending_mail(connection, invitation_id)
        if pending is not None:
            self._try(pending)
        with self._database.read() as connection:
            return invitations.by_id(connection, invitation_id)

    def deliver_due(self) -> list[Invitation]:
        """Send every due mail that is not claimed; return the invitations afterwards."""
        with self._database.read() as connection:
            due = invitations.due_mails(connection, self._clock())
        found = [self.claim_and_deliver(invitation_id) for invitation_id in due]
        return [one for one in found if one is not None]

    def claim_and_deliver(self, invitation_id: str) -> Invitation | None:
        """Send a due mail; None when another process has claimed it, or it is gone."""
        return self.deliver(invitation_id) if self._claim(invitation_id) else None

    def _claim(self, invitation_id: str) -> bool:
        now = self._clock()
        with self._database.write() as connection:
            return invitations.claim_mail(connection, invitation_id, now, until=now + CLAIM_MICROS)

    def _try(self, pending: PendingMail) -> None:
        now = self._clock()
        if pending.expires_at <= now:
            self._fail(pending, "the invitation expired before its mail was sent", None)
            return
        try:
            self._mailer.send(invitation_message(self._settings.sender, pending))
        except MailError as error:
            self._fail(pending, str(error), None if error.refused else now + self._wait_micros(pending.attempts))
            return
        with self._database.write() as connection:
            invitations.mark_sent(connection, pending.invitation_id, self._clock())
        _logger.info("sent the invitation %s of %s", pending.invitation_id, pending.organization_id)

    def _fail(self, pending: PendingMail, failure: str, due_at: int | None) -> None:
        with self._database.write() as connection:
            invitations.mark_failed(connection, pending.invitation_id, failure, due_at=due_at)
        cure = "see: runwarden service invitation list" if due_at is None else "it is retried automatically"
        _logger.error("%s exists, but its invitation was not sent: %s; %s", pending.organization_id, failure, cure)

    def _wait_micros(self, attempts: int) -> int:
        doubled = self._settings.retry_s * 2 ** min(attempts, 12)
        return int(max(self._settings.retry_s, min(doubled, _LONGEST_WAIT_S)) * SECOND_MICROS)


class MailThread:
    """A thread that sends due mails while the service runs."""

    def __init__(self, sender: MailSender, settings: Mail) -> None:
        self._sender = sender
        self._pause_s = min(_ROUND_S, settings.retry_s)
        self._stopping = threading.Event()
        # A daemon: a message being sent at the end keeps its claim, and is due again when that expires.
        threading.Thread(target=self._run, name="mail", daemon=True).start()

    def close(self) -> None:
        """Stop after the mail at hand."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            try:
                self._sender.deliver_due()
            except Exception:  # The boundary: a database that is away must not end delivery for good.
                _logger.exception("due mails could not be read; the next try follows")


def mailer_of(folder: DataFolder, settings: Mail, environment: Mapping[str, str]) -> Mailer:
    """Return the configured way out: the mail server, else the outbox.

    Raises:
        SettingsError: The mail server needs a password that is not there.
    """
    return Outbox(folder.outbox) if settings.smtp is None else SmtpRelay(settings.smtp, environment)
