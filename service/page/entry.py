"""The way in: signing in with a token, accepting an invitation, and out again."""

import hashlib
import hmac
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.api.auth import READ, Caller
from service.api.context import Context, RequestContext
from service.api.errors import HttpError
from service.page.site import leads_to, origin_of, page
from service.page.visitor import COOKIE, Anybody, AnyForm, Writer, local_path, open_session
from service.setup import SetupError, welcome
from service.store import audit, invitations, organizations, sessions, tokens

ATTEMPTS_A_MINUTE: Final = 30
"""Wrong ones from one address, and from those that share a counter with it."""
_COUNTERS: Final = 4096
_UNKNOWN: Final = "this token is unknown, revoked or expired: paste another, or ask your administrator for one"
_BAD_CODE: Final = "this invitation is unknown, withdrawn, expired or accepted before: ask who invited you for another"
router = APIRouter()


@router.get("/")
def enter(visitor: Anybody) -> Response:
    if visitor is None:
        return leads_to("/sign-in")
    if visitor.caller is None:
        return leads_to("/operator")
    return leads_to("/runs" if visitor.may(*READ) else "/settings")


@router.get("/sign-in")
def show_sign_in(context: RequestContext, next: str = "") -> Response:  # noqa: A002 — in addresses
    return page("sign_in", next=next, oidc=context.settings.page.oidc)


@router.post("/sign-in")
def sign_in(request: Request, context: RequestContext, form: AnyForm) -> Response:
    """Open a session for a token, of which nothing is stored."""
    now, value = context.expiry_clock(), form.get("token")
    secret = context.operator_token
    if secret and hmac.compare_digest(value.encode(), secret.encode()):
        with context.database.write() as connection:
            value = sessions.begin(connection, now, secret=secret)
            audit.record(connection, "operator:page", "session.begin", context.clock())
        return open_session(leads_to("/operator"), value)
    try:
        caller = _caller(request, context, value)
    except HttpError as error:
        return page("sign_in", next=form.get("next"), fault=error, oidc=context.settings.page.oidc)
    with context.database.write() as connection:
        token, at = caller.token.id, context.clock()
        value = sessions.begin(connection, now, organization_id=caller.organization.id, token_id=token)
        caller.record(connection, "session.begin", at, token)
        tokens.note_use(connection, token, at)
    return open_session(leads_to(local_path(form.get("next"))), value)


def _caller(request: Request, context: Context, value: str) -> Caller:
    with context.database.read() as connection:
        token = tokens.by_value(connection, value)
        owner = None if token is None else organizations.by_id(connection, token.organization_id)
    if token is None or owner is None or not token.is_valid(context.expiry_clock()):
        _count_attempt(request)
        raise HttpError(401, "invalid_token", _UNKNOWN)
    if not owner.active:
        raise HttpError(403, "organization_inactive", f"the organization {owner.slug} is not active")
    caller = Caller(owner, token)
    caller.require_scope(*READ, "settings")
    return caller


@router.post("/sign-out")
def sign_out(context: RequestContext, _: Writer, visitor: Anybody) -> RedirectResponse:
    if visitor is not None:
        with context.database.write() as connection:
            sessions.end(connection, visitor.session.digest)
    answer = leads_to("/sign-in")
    answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
    return answer


@router.get("/invitation")
def show_invitation(context: RequestContext, code: str = "") -> Response:
    """Show whom an invitation is from, or ask for its code; nothing is accepted by opening a link."""
    code = code.strip()
    with context.database.read() as connection:
        invitation = invitations.by_code(connection, code) if code else None
        owner = None
        if invitation is not None:
            owner = organizations.by_id(connection, invitation.organization_id)
        parent = None if owner is None else organizations.by_id(connection, owner.parent_id or "")
    now = context.expiry_clock()
    is_open = invitation is not None and invitation.accepted_at is None and invitation.expires_at > now
    if code and not is_open:
        return page("invitation", status=404, fault=_BAD_CODE, invitation=None)
    task = invitation and sessions.TASKS[invitation.role]
    return page("invitation", invitation=invitation, owner=owner, parent=parent, code=code, task=task)


@router.post("/invitation")
def accept_invitation(request: Request, context: RequestContext, form: AnyForm) -> Response:
    """Accept an invitation: show the member's first token, once, and sign them in."""
    now = context.expiry_clock()
    with context.database.read() as connection:
        invitation = invitations.by_code(connection, form.get("code"))
    if invitation is None:
        _count_attempt(request)
    with context.database.write() as connection:
        owner_id = invitations.accept(connection, form.get("code"), now)
        owner = None if owner_id is None else organizations.by_id(connection, owner_id)
        if owner is None or invitation is None:
            return page("invitation", fault=_BAD_CODE, invitation=None)
        try:
            member, token, value = welcome(connection, owner, invitation, context.clock())
        except SetupError as error:
            # The transaction is rolled back: the invitation stays open.
            raise HttpError(403, "not_acceptable", str(error)) from error
        session = sessions.begin(connection, now, organization_id=owner.id, member_id=member.id)
        who, at = f"member:{member.id}", context.clock()
        audit.record(connection, who, "invitation.accept", at, target=token.id, organization_id=owner.id)
    response = page("token", owner=owner, token=token, value=value, origin=origin_of(request))
    return open_session(response, session)


def _count_attempt(request: Request) -> None:
    """Count a wrong attempt, and refuse further ones of its address for a while (429).

    Right ones are never refused: behind a proxy all visitors have one address, and a stranger could lock them out.
    """
    peer = request.client.host if request.client else ""
    key = int.from_bytes(hashlib.sha256(peer.encode()).digest()[:4]) % _COUNTERS
    wait_s = request.app.state.attempts.wait_s(f"page:{key}")
    if wait_s is not None:
        text = f"too many attempts; try again in {wait_s} s"
        raise HttpError(429, "rate_limited", text, {"Retry-After": str(wait_s)})
