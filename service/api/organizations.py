"""POST /external/organizations: a partner creates an organization and its administrator is invited (spec 4.1)."""

from typing import Annotated

from fastapi import APIRouter, Depends

from service.api.auth import AnyCaller
from service.api.bodies import OrganizationCreation, ReadBody, schema_of
from service.api.context import Context, Services
from service.api.errors import ApiError, bad_request, documented
from service.mail.address import checked_address
from service.mail.sender import CLAIM_MICROS, MailSender
from service.store import audit, invitations, organizations, trials
from service.store.organizations import Organization

router = APIRouter()


@router.post(
    "/external/organizations",
    status_code=201,
    openapi_extra=schema_of(OrganizationCreation),
    responses=documented(400, 413, 415),
)
def create_organization(
    context: Services,
    caller: AnyCaller,
    creation: Annotated[OrganizationCreation, Depends(ReadBody(OrganizationCreation))],
) -> dict[str, str]:
    """Create an organization; every successful call makes another one, the same email or not (spec 4.1)."""
    caller.require_scope("organizations:create", "admin")
    if "CreateOrganizations" not in caller.organization.entitlements:
        raise ApiError(403, "missing_entitlement", "the organization lacks the entitlement CreateOrganizations")
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
        invitation_id = invitations.invite(connection, made.id, email, now, due_at=now + CLAIM_MICROS)
        for action, target in (("organization.create", made.id), ("invitation.send", invitation_id)):
            audit.record(connection, caller.actor, action, context.clock(), target=target, organization_id=made.id)
    _send(context, made, invitation_id)
    return {
        "organization_id": made.id,
        "organization_name": made.name,
        "organization_slug": made.slug,
        "parent_organization_id": caller.organization.id,
    }


def _checked_email(email: str) -> str:
    try:
        return checked_address(email)[0]
    except ValueError as error:
        raise bad_request("invalid_email", f"email: {error}") from error


def _check_offer(context: Context, code: str | None) -> None:
    if code is None:
        return
    with context.database.read() as connection:
        offer = trials.offer_by_code(connection, code)
    if offer is None or offer.kind != "partner":
        raise bad_request("invalid_offer_code", "offer_code is no known partner offer; omit it for the standard trial")


def _send(context: Context, made: Organization, invitation_id: str) -> None:
    sender = MailSender(context.database, context.mailer, context.settings.mail, context.clock)
    invitation = sender.deliver(invitation_id)
    if invitation is not None and invitation.mail == "sent":
        return
    refused = invitation is not None and invitation.mail == "refused"
    what = (
        "the mail server refused its invitation" if refused else "its invitation has not left yet, and is tried again"
    )
    raise ApiError(
        500,
        "provisioning_failed",
        f"the organization {made.id} exists, but {what}; a retry creates another organization",
    )


def _name(email: str) -> str:
    domain = email.rpartition("@")[2].split(".")[0]
    return domain.replace("-", " ").title() or "Organization"
