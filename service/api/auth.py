"""Authentication: bearer tokens, their scopes, and their organization (spec 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request
from sqlalchemy import Connection

from service.api.context import Context, RequestContext
from service.api.errors import HttpError
from service.clock import Micros
from service.observability.requests import request_record
from service.store import audit, organizations, tokens
from service.store.organizations import Organization
from service.store.tokens import TokenRecord

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="runwarden"'}
READ: Final = ("runs:read", "runs:write")
_REJECTED = {"WWW-Authenticate": 'Bearer realm="runwarden", error="invalid_token"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: its organization and token."""

    organization: Organization
    token: TokenRecord

    @property
    def actor(self) -> str:
        """The caller's name in the audit trail: a token, or a member who signed in on the page."""
        return f"{'member' if self.token.id.startswith('mem_') else 'token'}:{self.token.id}"

    def record(
        self, connection: Connection, action: str, now: Micros, target: str | None = None, detail: str | None = None
    ) -> None:
        """Add an act of the caller, which concerns its organization, to the audit trail."""
        owner = self.organization.id
        audit.record(connection, self.actor, action, now, target=target, organization_id=owner, detail=detail)

    def has_scope(self, *accepted: str) -> bool:
        """Whether the caller has one of the scopes, or `admin`, which includes all."""
        return bool({"admin", *accepted} & {*self.token.scopes})

    def require_scope(self, *accepted: str) -> None:
        """Refuse a caller who has none of the scopes (403, spec 5.6)."""
        if not self.has_scope(*accepted):
            scopes = " or ".join([*accepted, "admin"])
            text = f"this needs the scope {scopes}: use a token with it, or ask for that role"
            raise HttpError(403, "insufficient_scope", text)


def _caller(request: Request, context: RequestContext) -> Caller:
    headers = request.headers.getlist("authorization")
    scheme, _, value = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not value.strip():
        raise HttpError(401, "missing_token", "send the header 'Authorization: Bearer <API token>'", _CHALLENGE)
    with context.database.read() as connection:
        token = tokens.by_value(connection, value.strip())
        organization = None
        if token is not None:
            organization = organizations.by_id(connection, token.organization_id)
    record = request_record(request.scope)
    if token is not None:
        record.token_id = token.id
        record.actor = token.alias or token.id
    if organization is not None:
        record.organization = organization.slug
    if token is None or not token.is_valid(context.expiry_clock()):
        text = "the bearer token is unknown, revoked or expired; create another"
        raise HttpError(401, "invalid_token", text, _REJECTED)
    if organization is None:
        raise HttpError(404, "organization_not_found", "the organization of this token no longer exists")
    if not organization.active:
        raise HttpError(403, "organization_inactive", f"the organization {organization.slug} is not active")
    check_rate(context, organization)
    caller = Caller(organization, token)
    now = context.clock()
    if token.last_used_at is None or now - token.last_used_at >= tokens.LAST_USE_PRECISION_MICROS:
        with context.database.write() as connection:
            if tokens.note_use(connection, token.id, now):
                caller.record(connection, "token.first_use", now, token.id)
    return caller


def check_rate(context: Context, organization: Organization) -> None:
    """Count a request, and refuse one beyond the organization's limit (429, spec 8)."""
    wait_s = context.rate.wait_s(organization.id)
    if wait_s is not None:
        text = f"the organization {organization.slug} sent too many requests; try again in {wait_s} s"
        raise HttpError(429, "rate_limited", text, {"Retry-After": str(wait_s)})


def require_scopes(find: Callable[..., Caller], *accepted: str) -> Callable[[Caller], Caller]:
    """Return the dependency that finds a caller, and refuses one without any of the scopes."""

    def check(caller: Annotated[Caller, Depends(find)]) -> Caller:
        caller.require_scope(*accepted)
        return caller

    return check


# Each together with `admin`, as in the spec (5.6); the others are an extension.
AnyCaller = Annotated[Caller, Depends(_caller)]
Creator = Annotated[Caller, Depends(require_scopes(_caller, "organizations:create"))]
"""A caller who may create organizations, if its own has the entitlement."""
Configurer = Annotated[Caller, Depends(require_scopes(_caller, "settings"))]
RunWriter = Annotated[Caller, Depends(require_scopes(_caller, "runs:write"))]
RunReader = Annotated[Caller, Depends(require_scopes(_caller, *READ))]
