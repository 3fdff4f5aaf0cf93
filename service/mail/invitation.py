"""The invitation: the mail that makes somebody administrator of an organization (spec 4.1)."""

from datetime import timedelta
from email.message import EmailMessage
from email.utils import format_datetime, formatdate, make_msgid

from service.clock import EPOCH
from service.store.organizations import Invitation, Organization

_TEXT = """\
Hello,

{parent} created the organization "{name}" for you on the code-review agent service and
invites you to administer it.

  Organization   {name} ({slug})
  Identifier     {id}
  Accept until   {expires}

Your invitation code, for you alone:

  {code}

Give the code to the operator of the service, who turns it into your first API token:

  runwarden service org accept-invitation CODE

{parent} has no access to your organization. If you did not expect this mail, ignore it:
the invitation ends by itself.
"""


def invitation_mail(sender: str, made: Organization, invitation: Invitation, parent: Organization) -> EmailMessage:
    """Return the message that invites an administrator."""
    expires = EPOCH + timedelta(microseconds=invitation.expires_at)
    message = EmailMessage()
    message["From"] = sender
    message["To"] = invitation.email
    message["Subject"] = f"You are invited to administer {made.name}"
    message["Date"] = formatdate(usegmt=True)
    message["Message-ID"] = make_msgid(domain="runwarden.invalid")
    message["Expires"] = format_datetime(expires, usegmt=True)
    message["X-Runwarden-Organization"] = made.id
    message.set_content(
        _TEXT.format(
            parent=parent.name,
            name=made.name,
            slug=made.slug,
            id=made.id,
            expires=f"{expires:%d %B %Y, %H:%M} UTC",
            code=invitation.code,
        )
    )
    return message
