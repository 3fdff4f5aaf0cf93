"""Organizations and their invitations, the health of code hosts, and GitLab projects.

Spec 4.1 (creation by a partner), 2.7 and 4.5 (health), 4.6 (projects, our shape); docs/dev/api.md (invitations).
"""

from typing import Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel

from service.api.auth import AnyCaller, Configurer, Creator
from service.api.bodies import (
    NewOrganization,
    NewProject,
    OrganizationCreation,
    ProjectOnboarding,
    describe_answers,
    example,
)
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request
from service.clock import rfc3339_or_none
from service.forge.onboarding import OnboardingError, onboard
from service.outgoing.mail import checked_address, deliver
from service.reference import PLATFORMS, checked_path
from service.store import audit, hosts, invitations, organizations, repositories
from service.store.invitations import Invitation

router = APIRouter()
partners = APIRouter(tags=["results"])
_MAX_INVITATIONS: Final = 1000


class OrganizationBody(BaseModel):
    """A new organization (spec 2.2)."""

    model_config = example(
        organization_id="org_01KG9QX4E8Z3V6T1M2N5P7R9S1",
        organization_name="Customer",
        organization_slug="customer",
        parent_organization_id="org_01KG9QX4E8Z3V6T1M2N5P7R9S2",
    )

    organization_id: str
    organization_name: str
    organization_slug: str
    parent_organization_id: str


class HealthBody(BaseModel):
    """The health of the connected code hosts, by platform (spec 2.7)."""

    model_config = example(
        code_hosting={
            "github": {"status": "ok"},
            "gitlab": {"status": "degraded", "host": "gitlab.com", "group": "acme"},
        }
    )

    code_hosting: dict[str, dict[str, str]]


class OnboardingBody(BaseModel):
    """An onboarded GitLab project, or why it is not (spec 4.6; the shape is our decision)."""

    model_config = example(
        success=True, project_path="acme/tools", status="onboarded", webhook_configured=True, project_id=42
    )

    success: bool
    project_path: str
    status: str
    """`onboarded`, `already_connected` or `failed`."""
    webhook_configured: bool
    project_id: int = 0
    """The project's id; left out if it is not known."""
    error: str = ""
    """What failed; left out if nothing did."""


class InvitationBody(BaseModel):
    """An invitation, as OpenAPI describes it."""

    invitation_id: str
    organization_id: str
    email: str
    state: Literal["waiting", "sent", "refused", "accepted", "withdrawn", "expired"]
    sent_at: str | None
    expires_at: str
    accepted_at: str | None
    failure: str | None
    mail: Literal["outbox", "smtp"]


class InvitationsBody(BaseModel):
    """The newest invitations of a partner, and whether the token may create organizations."""

    invitations: list[InvitationBody]
    may_create: bool


@router.post("/external/organizations", **describe_answers(201, OrganizationBody, takes=OrganizationCreation))
def create_organization(context: RequestContext, caller: Creator, creation: NewOrganization) -> dict[str, str]:
    """Create an organization; every successful call creates another one, even for the same email (spec 4.1)."""
    if "CreateOrganizations" not in caller.organization.entitlements:
        raise HttpError(403, "missing_entitlement", "the organization lacks the entitlement CreateOrganizations")
    try:
        email = checked_address(creation.email)[0]
    except ValueError as error:
        raise bad_request("invalid_email", f"email: {error}") from error
    if creation.offer_code is not None:
        with context.database.read() as connection:
            offer = organizations.offer_by_code(connection, creation.offer_code)
        if offer is None or offer.kind != "partner":
            text = "offer_code is not a known partner offer; omit it for the standard trial"
            raise bad_request("invalid_offer_code", text)
    name = email.rpartition("@")[2].split(".")[0].replace("-", " ").title() or "Organization"
    parent, offer_code = caller.organization.id, creation.offer_code
    with context.database.write() as connection:
        now = context.clock()
        created = organizations.create(
            connection, name=name, now=now, parent_id=parent, entitlements=("ServiceAPI",), offer_code=offer_code
        )
        organizations.sign_up(connection, created.id, offer_code)
        invitation_id = invitations.invite(connection, created.id, email, now)
        for action, target in (("organization.create", created.id), ("invitation.send", invitation_id)):
            audit.record(connection, caller.actor, action, context.clock(), target=target, organization_id=created.id)
    invitation = deliver(context.database, context.mailer, context.settings, context.clock, invitation_id)
    if invitation is None or invitation.mail != "sent":
        refused = invitation is not None and invitation.mail == "refused"
        if refused:
            reason = "the mail server refused its invitation"
        else:
            reason = "its invitation is not sent yet, and is retried"
        text = f"the organization {created.id} exists, but {reason}; a retry creates another organization"
        raise HttpError(500, "provisioning_failed", text)
    names = {"organization_name": created.name, "organization_slug": created.slug}
    return {"organization_id": created.id, **names, "parent_organization_id": parent}


@partners.get("/external/invitations", **describe_answers(200, InvitationsBody))
def list_invitations(context: RequestContext, caller: Creator) -> dict[str, object]:
    """Return the newest 1,000 invitations to organizations that the caller's organization created, newest first."""
    with context.database.read() as connection:
        newest = invitations.made_by(connection, caller.organization.id, _MAX_INVITATIONS)
    may_create = "CreateOrganizations" in caller.organization.entitlements
    return {"invitations": [_invitation_body(context, invitation) for invitation in newest], "may_create": may_create}


@partners.post("/external/invitations/{invitation_id}/resend", **describe_answers(201, InvitationBody, 409))
def resend_invitation(invitation_id: str, context: RequestContext, caller: Creator) -> dict[str, object]:
    """Invite the same address again, with a new code and 30 days; the old invitation is withdrawn."""
    with context.database.write() as connection:
        old = invitations.by_id(connection, invitation_id)
        owner = None if old is None else organizations.by_id(connection, old.organization_id)
        if old is None or owner is None or owner.parent_id != caller.organization.id:
            raise HttpError(404, "invitation_not_found", f"there is no invitation {invitation_id!r}; list them")
        new_id = invitations.invite_again(connection, old, caller.actor, context.clock())
        if new_id is None:
            raise HttpError(409, "invitation_closed", f"the invitation is {old.state(context.clock())}")
    sent = deliver(context.database, context.mailer, context.settings, context.clock, new_id)
    if sent is None:
        raise HttpError(404, "invitation_not_found", "the organization was deleted")
    return _invitation_body(context, sent)


def _invitation_body(context: Context, invitation: Invitation) -> dict[str, object]:
    at = {name: getattr(invitation, name) for name in ("sent_at", "expires_at", "accepted_at")}
    body = {name: getattr(invitation, name) for name in ("organization_id", "email", "failure")}
    body |= {name: rfc3339_or_none(moment) for name, moment in at.items()}
    mail = "outbox" if context.settings.mail.smtp is None else "smtp"
    return body | {"invitation_id": invitation.id, "state": invitation.state(context.clock()), "mail": mail}


@router.get("/external/installation/health", **describe_answers(200, HealthBody))
async def installation_health(context: RequestContext, caller: AnyCaller) -> dict[str, object]:
    """Return a key for each connected platform; any valid token may ask."""

    def ask() -> dict[str, object]:
        with context.database.read() as connection:
            connected = hosts.of(connection, caller.organization.id)
            known = repositories.of(connection, caller.organization.id)
        if not connected:
            raise _no_code_host("code host")
        health = context.probes.ask(connected, known)
        answers = [(host, health[host.platform]) for host in connected]
        changed = [
            (host, now)
            for host, now in answers
            if now.status != (host.status or "ok") or now.token_ends not in {None, "", host.token_told}
        ]
        if changed:
            with context.database.write() as connection:
                for host, now in changed:
                    answer = (now.status, now.token_ends, context.clock())
                    hosts.note_answer(connection, caller.organization.id, host, *answer)
        body: dict[str, dict[str, str]] = {}
        for host in connected:
            body[host.platform] = {"status": health[host.platform].status}
            if PLATFORMS[host.platform].names_host:
                body[host.platform] |= {"host": host.host} | ({"group": host.group} if host.group else {})
        return {"code_hosting": body}

    return await context.outgoing.run(ask, caller.organization.id)


def _no_code_host(kind: str) -> HttpError:
    return HttpError(404, "no_code_host", f"no {kind} is connected; ask the operator of the service to connect one")


@router.post("/external/gitlab/projects", **describe_answers(200, OnboardingBody, takes=ProjectOnboarding))
async def onboard_project(context: RequestContext, caller: Configurer, wanted: NewProject) -> dict[str, object]:
    """Connect a project; repeating the call changes nothing and returns already_connected."""

    def connect() -> dict[str, object]:
        if not wanted.project_id and wanted.project_path is None:
            raise bad_request("invalid_request", "give project_id or project_path; when both are given, the id wins")
        try:
            path = None
            if wanted.project_path is not None:
                path = checked_path("gitlab", wanted.project_path)
        except ValueError as error:
            raise bad_request("invalid_repository", f"project_path: {error}") from error
        owner = caller.organization.id
        with context.database.read() as connection:
            host = next((host for host in hosts.of(connection, owner) if host.platform == "gitlab"), None)
        if host is None:
            raise _no_code_host("GitLab host")
        options = (context.database, context.tokens, owner, host, context.settings, context.clock, caller.actor)
        try:
            outcome = onboard(*options, project_id=wanted.project_id or None, path=path)
        except (OnboardingError, ValueError) as error:
            failed = {"success": False, "project_path": path or "", "status": "failed", "webhook_configured": False}
            return failed | ({"project_id": wanted.project_id} if wanted.project_id else {}) | {"error": str(error)}
        repository = outcome.repository
        status = "onboarded" if outcome.is_new else "already_connected"
        answer: dict[str, object] = {"success": True, "project_path": repository.path, "status": status}
        answer |= {"webhook_configured": repository.webhook_configured}
        answer |= {"project_id": repository.project_id} if repository.project_id else {}
        return answer | ({"error": outcome.webhook_failure} if outcome.webhook_failure else {})

    return await context.outgoing.run(connect, caller.organization.id)
