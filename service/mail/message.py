"""The message: an invitation with its envelope (spec 4.1), and its possible failures."""

import html
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime, formatdate, parseaddr
from typing import Protocol

from service.clock import EPOCH
from service.errors import ServiceError
from service.store.invitations import Invitation
from service.store.organizations import Organization
from service.store.sessions import TASKS
from service.text import one_line

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


class Mailer(Protocol):
    """Sends messages."""

    def send(self, message: MailMessage) -> None:
        """Send one message.

        Raises:
            MailError: It was not sent.
        """
        ...


def invitation_message(
    sender: str,
    invitation: Invitation,
    code: str,
    organization: Organization,
    parent: Organization | None,
    page_url: str | None = None,
) -> MailMessage:
    """Compose the mail that invites a member; `sender` is an address, with or without a name.

    `page_url`: the address of the page that accepts it; None: the operator does.
    """
    expires = EPOCH + timedelta(microseconds=invitation.expires_at)
    try:
        # A domain in another script has an ASCII form.
        recipient = checked_address(invitation.email)[1]
    except ValueError:
        recipient = invitation.email
    address = parseaddr(sender)[1]
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
    # Seven bits, because not every server on the way accepts eight.
    message = EmailMessage(policy=(SMTP if recipient.isascii() else SMTPUTF8).clone(cte_type="7bit"))
    message["From"] = sender
    message["To"] = recipient
    message["Subject"] = f"You are invited to {facts['task']} {name}"
    message["Date"] = formatdate(usegmt=True)
    # The id is the same for each attempt, so that a duplicate is recognized.
    message["Message-ID"] = f"<{invitation.id}@{address.rpartition('@')[2]}>"
    message["Expires"] = format_datetime(expires, usegmt=True)
    message["X-Runwarden-Organization"] = organization.id
    link = None if page_url is None else f"{page_url}/invitation?code={code}"
    message.set_content(_TEXT.format(way=_WAY.format(link=link) if link else _OTHER_WAY, **facts))
    if link:
        shown = {key: html.escape(value) for key, value in facts.items()}
        message.add_alternative(_HTML.format(link=html.escape(link), **shown), subtype="html")
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
    found = email_validator.validate_email(email, check_deliverability=False, strict=True)
    return found.normalized, found.ascii_email or found.normalized
