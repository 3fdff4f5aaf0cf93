"""POST /external/organizations: a partner creates an organization and its administrator is invited (spec 4.1)."""

import logging
from typing import Annotated

from email_validator import EmailNotValidError, validate_email
from fastapi import APIRouter, Depends

from service.api.auth import AnyCaller
from service.api.bodies import OrganizationCreation, ReadBody, schema_of
from service.api.context import Context, Services
from service.api.failures import Failure, bad_request
from service.mail.invitation import invitation_mail
from service.mail.outbox import MailError
from service.store import offers, organizations, trials
from service.store.organizations import Invitation, Organization

router = APIRouter()
_log = logging.getLogger(__name__)


@router.post("/external/organizations", status_code=201, openapi_extra=schema_of(OrganizationCreation))
def create_organization(
    context: Services,
    caller: AnyCaller,
    creation: Annotated[OrganizationCreation, Depends(ReadBody(OrganizationCreation))],
) -> dict[str, str]:
    """Create an organization; every successful call makes another one, the same email or not (spec 4.1)."""
    caller.require_scope("organizations:create", "admin")
    if "CreateOrganizations" not in caller.organization.entitlements:
        raise Failure(403, "missing_entitlement", "the organization lacks the entitlement CreateOrganizations")
    email = _checked_email(creation.email)
    _check_offer(context, creation.offer_code)
    with context.database.write() as connection:
        now = context.clock()
        made = organizations.create(
            connection,
            name=_name(email),
            now=now,
            parent_id=caller.organization.id,
            entitlements=("ServiceAPI",),
            offer_code=creation.offer_code,
        )
        trials.sign_up(connection, made.id, creation.offer_code)
        invitation = organizations.invite(connection, made.id, email, now)
    _send(context, made, invitation, caller.organization)
    return {
        "organization_id": made.id,
        "organization_name": made.name,
        "organization_slug": made.slug,
        "parent_organization_id": caller.organization.id,
    }


def _checked_email(email: str) -> str:
    try:
        return validate_email(email, check_deliverability=False).normalized
    except EmailNotValidError as error:
        raise bad_request("invalid_email", f"email: {error}") from error


def _check_offer(context: Context, code: str | None) -> None:
    if code is None:
        return
    with context.database.read() as connection:
        offer = offers.by_code(connection, code)
    if offer is None or offer.kind != "partner":
        raise bad_request("invalid_offer_code", "offer_code is no known partner offer; omit it for the standard trial")


def _send(context: Context, made: Organization, invitation: Invitation, parent: Organization) -> None:
    try:
        context.mailer.send(invitation_mail(context.settings.mail.sender, made, invitation, parent))
    except MailError as error:
        _log.error("%s exists, but its invitation was not sent: %s", made.id, error)
        raise Failure(
            500,
            "provisioning_failed",
            f"the organization {made.id} exists, but its invitation could not be sent; a retry creates another one",
        ) from error
    with context.database.write() as connection:
        organizations.mark_sent(connection, invitation.id, context.clock())


def _name(email: str) -> str:
    domain = email.rpartition("@")[2].split(".")[0]
    return domain.replace("-", " ").title() or "Organization"
