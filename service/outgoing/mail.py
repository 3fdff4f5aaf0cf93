"""Mail: invitations (spec 4.1), the only mail that the service sends, and their delivery.

They go into a folder or to a mail server, and are retried until sent or refused, or until the invitation expires.
"""

import contextlib
import html
import logging
import os
import secrets
import smtplib
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime, formatdate, parseaddr
from functools import partial
from pathlib import Path
from typing import Final

from service.clock import EPOCH, SECOND_MICROS, Clock
from service.errors import ServiceError
from service.network import Host, authority_of, cut_off, dial, proxy_of, resolve
from service.settings import DataFolder, MailSettings, Settings, SettingsError, SmtpSettings
from service.store import invitations, organizations
from service.store.database import Database
from service.store.invitations import Invitation
from service.store.organizations import Organization
from service.store.sessions import TASKS
from service.text import one_line

_logger = logging.getLogger(__name__)
_MAX_WAIT_S: Final = 3600
_READY: Final = 220
"""The code with which a mail server greets (RFC 5321 4.2.3)."""
_USUAL_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_PERMANENT: Final = range(500, 600)
_MAX_REPLY: Final = 300
_TEXT = """\
Hello,

{parent} invites you to {task} the organization "{name}" on the
code-review agent service.

  Organization   {name} ({slug})
  Identifier     {id}
  Accept until   {expires}

Your invitation code, for you alone:

  {code}

{way}

{apart}If you did not expect this mail, ignore it:
the invitation expires by itself.
"""
_WAY = """\
Accept it here, which shows you your first API token:

  {link}"""
_OTHER_WAY = """\
Give the code to the operator of the service, who turns it into your first API token:

  runwarden service org accept-invitation CODE"""
_HTML = """\
<!doctype html>
<html lang="en"><body style="font:16px/1.5 sans-serif">
<p>Hello,</p>
<p><b>{parent}</b> invites you to {task} the organization <b>{name}</b> on the code-review agent service.</p>
<p><a href="{link}">Accept the invitation</a>, which shows you your first API token.
The link is for you alone, until {expires}.</p>
<p>Or enter this code there: <code>{code}</code></p>
<p>Organization: {slug} ({id}). {apart}If you did not expect this mail, ignore it:
the invitation expires by itself.</p>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class MailMessage:
    """A message, ready to be sent."""

    organization_id: str
    invitation_id: str
    sender: str
    """The sender's address, without a name."""
    recipient: str
    content: bytes
    """The headers and the text, with CRLF after each line."""


class MailError(ServiceError):
    """A message was not sent; the text has the reason and the fix."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """The mail server refuses this message permanently: do not retry it automatically."""


Mailer = Callable[[MailMessage], None]
"""A callable that sends one message, or raises MailError."""


def invitation_message(
    settings: Settings, invitation: Invitation, code: str, organization: Organization, parent: Organization | None
) -> MailMessage:
    """Compose the mail that invites a member; without a page, the operator accepts it for them."""
    expires = EPOCH + timedelta(microseconds=invitation.expires_at)
    try:
        # A domain in another script has an ASCII form.
        recipient = checked_address(invitation.email)[1]
    except ValueError:
        recipient = invitation.email
    address = parseaddr(settings.mail.sender)[1]
    name = one_line(organization.name)
    facts = {
        "parent": one_line(parent.name if parent else "The operator of the service"),
        "apart": f"{one_line(parent.name)} has no access to your organization. " if parent else "",
        "name": name,
        "task": TASKS[invitation.role],
        "slug": organization.slug,
        "id": organization.id,
        "expires": f"{expires:%d %B %Y, %H:%M} UTC",
        "code": code,
    }
    # Seven bits, because not every relaying server accepts eight.
    message = EmailMessage(policy=(SMTP if recipient.isascii() else SMTPUTF8).clone(cte_type="7bit"))
    message["From"] = settings.mail.sender
    message["To"] = recipient
    message["Subject"] = f"You are invited to {facts['task']} {name}"
    message["Date"] = formatdate(usegmt=True)
    # The id is the same for each attempt, so that a duplicate is recognized.
    message["Message-ID"] = f"<{invitation.id}@{address.rpartition('@')[2]}>"
    message["Expires"] = format_datetime(expires, usegmt=True)
    message["X-Runwarden-Organization"] = organization.id
    link = None if settings.page_url is None else f"{settings.page_url}/invitation?code={code}"
    message.set_content(_TEXT.format(way=_WAY.format(link=link) if link else _OTHER_WAY, **facts))
    if link:
        escaped = {key: html.escape(value) for key, value in facts.items()}
        message.add_alternative(_HTML.format(link=html.escape(link), **escaped), subtype="html")
    return MailMessage(organization.id, invitation.id, address, recipient, message.as_bytes())


def checked_address(email: str) -> tuple[str, str]:
    """Return an address in its normal form, in ASCII if possible (spec 2.1).

    Raises:
        ValueError: It is not a valid address; the text says why.
    """
    import email_validator

    # Many private networks use this top-level name, which the library reserves.
    if "local" in email_validator.SPECIAL_USE_DOMAIN_NAMES:
        email_validator.SPECIAL_USE_DOMAIN_NAMES.remove("local")
    address = email_validator.validate_email(email, check_deliverability=False, strict=True)
    return address.normalized, address.ascii_email or address.normalized


def write_to_outbox(folder: Path, message: MailMessage) -> None:
    """Write a message into a folder; it appears there only when it is complete."""
    draft = folder / f".{secrets.token_hex(8)}.part"
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(message.content)
            file.flush()
            os.fsync(file.fileno())
        first = folder / f"{message.organization_id}.eml"
        # A further invitation must not overwrite one that is still undelivered.
        further = folder / f"{message.organization_id}.{message.invitation_id}.eml"
        draft.rename(further if first.exists() else first)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        text = f"the outbox {folder} cannot be written ({error}); make it a folder that the service may write"
        raise MailError(text) from error


def send_by_smtp(settings: SmtpSettings, message: MailMessage) -> None:
    """Hand one message to a mail server; the password is in the environment."""
    port = settings.port or _USUAL_PORTS[settings.security]
    name = f"the mail server {settings.host}:{port}"
    started = time.monotonic()
    try:
        # With a name given, smtplib does not look up this machine's name in the DNS.
        session = smtplib.SMTP(local_hostname=socket.gethostname() or "localhost", timeout=settings.timeout_s)
        # Certificates are checked against this name. The constructor would also set it, but connect at once, before
        # the deadline applies.
        session._host = settings.host  # type: ignore[attr-defined]  # noqa: SLF001 — the comment above has the reason
        with cut_off(settings.timeout_s, lambda: session.sock), contextlib.closing(session):
            host = Host.parse(settings.host)
            until = started + settings.timeout_s
            tls = ssl.create_default_context()
            proxy = proxy_of("https", host, port) if settings.proxy else None
            link = proxy.tunnel(authority_of(host.text, port), until) if proxy else dial(resolve(host, port), until)
            link.settimeout(settings.timeout_s)
            session.sock = tls.wrap_socket(link, server_hostname=host.text) if settings.security == "tls" else link
            session.file = None
            code, reply = session.getreply()
            if code != _READY:
                raise smtplib.SMTPConnectError(code, reply)
            if settings.security == "starttls":
                session.starttls(context=tls)
            if settings.username is not None:
                session.login(settings.username, os.environ.get(settings.password_env, ""))
            options: list[str] = []
            if not message.recipient.isascii():
                session.ehlo_or_helo_if_needed()
                if not session.has_extn("smtputf8"):
                    text = f"the mail server cannot write to {message.recipient}: it lacks SMTPUTF8"
                    raise MailError(f"{text}; invite an ASCII address", refused=True)
                options = ["SMTPUTF8", "BODY=8BITMIME"]
            session.sendmail(message.sender, [message.recipient], message.content, mail_options=options)
            # The server has taken the message: a failing QUIT changes nothing.
            with contextlib.suppress(smtplib.SMTPException, OSError):
                session.quit()
    except (smtplib.SMTPException, OSError, ValueError) as error:
        text = f"{name} took longer than {settings.timeout_s:g} s (mail.smtp.timeout_s)"
        late = isinstance(error, TimeoutError) or time.monotonic() - started >= settings.timeout_s
        raise (MailError(text) if late else _mail_error(error, name, settings)) from error


def _mail_error(error: Exception, name: str, settings: SmtpSettings) -> MailError:
    if isinstance(error, smtplib.SMTPResponseException):
        code, reply = error.smtp_code, error.smtp_error
    elif isinstance(error, smtplib.SMTPRecipientsRefused):
        code, reply = next(iter(error.recipients.values()))
    else:
        reason = f"{type(error).__name__} {error}"
        if isinstance(error, smtplib.SMTPNotSupportedError):
            reason = f"{error} Check mail.smtp.security, which is {settings.security!r}"
        elif isinstance(error, ssl.SSLError):
            reason = f"its TLS is not trusted ({error}); check mail.smtp.host, or name its authority in SSL_CERT_FILE"
        return MailError(f"{name} cannot be used: {reason}")
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    answer = f"{code} {one_line(text)}"[:_MAX_REPLY]
    is_permanent = code in _PERMANENT
    match error:
        case smtplib.SMTPRecipientsRefused():
            return MailError(f"{name} refused the recipient: {answer}", refused=is_permanent)
        case smtplib.SMTPDataError():
            return MailError(f"{name} refused the message: {answer}", refused=is_permanent)
        case smtplib.SMTPAuthenticationError():
            fix = f"check mail.smtp.username and the variable {settings.password_env}"
            return MailError(f"{name} refused the login ({answer}); {fix}")
        case smtplib.SMTPSenderRefused():
            return MailError(f"{name} refused the sender {error.sender} ({answer}); check mail.sender")
    return MailError(f"{name} answered {answer}")


def deliver(
    database: Database, mailer: Mailer, settings: Settings, clock: Clock, invitation_id: str, *, only_due: bool = False
) -> Invitation | None:
    """Send the mail of an invitation, due or not; return the invitation, None if it is gone."""
    with database.read() as connection:
        invitation = invitations.by_id(connection, invitation_id)
        code = invitations.waiting_code(connection, invitation_id)
        owner = None
        if invitation is not None:
            owner = organizations.by_id(connection, invitation.organization_id)
        parent = None if owner is None else organizations.by_id(connection, owner.parent_id or "")
    now = clock()
    if invitation is None or code is None or owner is None or (only_due and invitation.due_at > now):
        return invitation
    failure: MailError | None = None
    if invitation.expires_at <= now:
        failure = MailError("the invitation expired before its mail was sent", refused=True)
    else:
        try:
            mailer(invitation_message(settings, invitation, code, owner, parent))
        except MailError as error:
            failure = error
    with database.write() as connection:
        if failure is None:
            invitations.mark_sent(connection, invitation_id, clock())
        else:
            retry_s = settings.mail.retry_s
            wait_s = max(retry_s, min(retry_s * 2 ** min(invitation.attempts, 12), _MAX_WAIT_S))
            due_at = None if failure.refused else now + int(wait_s * SECOND_MICROS)
            invitations.mark_failed(connection, invitation_id, str(failure), due_at=due_at)
    if failure is None:
        _logger.info("sent the invitation %s of %s", invitation_id, owner.id)
    else:
        fix = "it is retried automatically"
        if failure.refused:
            fix = "see: runwarden service invitation list"
        _logger.error("%s exists, but its invitation was not sent: %s; %s", owner.id, failure, fix)
    with database.read() as connection:
        return invitations.by_id(connection, invitation_id)


def mailer_of(folder: DataFolder, settings: MailSettings) -> Mailer:
    """Return the configured mailer: the mail server or, without one, the outbox.

    Raises:
        SettingsError: The mail server needs a password that is not there.
    """
    smtp = settings.smtp
    if smtp is None:
        return partial(write_to_outbox, folder.outbox)
    if smtp.username is not None and not os.environ.get(smtp.password_env):
        raise SettingsError(
            f"mail.smtp.username is set, but the environment variable {smtp.password_env} holds no password; "
            "set it where the service starts, or remove mail.smtp.username"
        )
    return partial(send_by_smtp, smtp)
