"""The invitations to organizations that the caller created (docs/results.md; beside the specification)."""

from typing import Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel

from service.api.auth import AnyCaller
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, documented
from service.api.organizations import mail_sender
from service.clock import rfc3339
from service.store import invitations
from service.store import organizations as organization_store
from service.store.invitations import Invitation

router = APIRouter(tags=["results"])

_MOST: Final = 1000


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
    """The newest invitations of a partner."""

    invitations: list[InvitationBody]


@router.get("/external/invitations", response_model=None, responses={200: {"model": InvitationsBody}, **documented()})
def list_invitations(context: RequestContext, caller: AnyCaller) -> dict[str, object]:
    """Return the newest 1,000 invitations to organizations that the caller's organization created, newest first."""
    caller.require_scope("organizations:create", "admin")
    with context.database.read() as connection:
        found = invitations.made_by(connection, caller.organization.id, _MOST)
    return {"invitations": [_body(context, one) for one in found]}


@router.post(
    "/external/invitations/{invitation_id}/resend",
    status_code=201,
    response_model=None,
    responses={201: {"model": InvitationBody}, **documented(404, 409)},
)
def resend_invitation(invitation_id: str, context: RequestContext, caller: AnyCaller) -> dict[str, object]:
    """Invite the same address again, with a new code and 30 days; the old invitation is withdrawn."""
    caller.require_scope("organizations:create", "admin")
    with context.database.write() as connection:
        old = invitations.by_id(connection, invitation_id)
        owner = None if old is None else organization_store.by_id(connection, old.organization_id)
        if old is None or owner is None or owner.parent_id != caller.organization.id:
            raise HttpError(404, "invitation_not_found", f"there is no invitation {invitation_id!r}; list them")
        made = invitations.invite_again(connection, old, caller.actor, context.clock())
        if made is None:
            raise HttpError(409, "invitation_closed", f"the invitation is {old.state(context.clock())}")
    sent = mail_sender(context).deliver(made)
    if sent is None:
        raise HttpError(404, "invitation_not_found", "the organization was deleted")
    return _body(context, sent)


def _body(context: Context, one: Invitation) -> dict[str, object]:
    at = {name: getattr(one, name) for name in ("sent_at", "expires_at", "accepted_at")}
    return {
        "invitation_id": one.id,
        "organization_id": one.organization_id,
        "email": one.email,
        "state": one.state(context.clock()),
        **{name: None if moment is None else rfc3339(moment) for name, moment in at.items()},
        "failure": one.failure,
        "mail": "outbox" if context.settings.mail.smtp is None else "smtp",
    }
