"""Signing in with an address that the operator's identity provider vouches for (OpenID Connect)."""

import logging
import os
from typing import Any, Final

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from itsdangerous import BadData, URLSafeTimedSerializer
from joserfc.errors import JoseError

from service.api.context import Context, RequestContext
from service.api.errors import HttpError
from service.page.site import leads_to, page
from service.page.visitor import AnyForm, local_path, open_session
from service.settings import OidcSettings, SettingsError
from service.store import audit, organizations, sessions
from service.store.organizations import Organization
from service.store.sessions import Member

_COOKIE: Final = "runwarden_oidc"
_LIFE_S: Final = 600
"""How long a visitor may take to sign in at the provider, and to choose an organization."""
BACK: Final = "/sign-in/oidc/back"
router = APIRouter()
_logger = logging.getLogger(__name__)


def client_of(settings: OidcSettings) -> Any:
    """Return Authlib's client of the provider.

    Raises:
        SettingsError: Its secret is not in the environment.
    """
    secret = os.environ.get(settings.client_secret_env)
    if not secret:
        raise SettingsError(
            f"page.oidc is set, but the environment variable {settings.client_secret_env} holds no secret; set it"
        )
    return OAuth().register(
        "oidc",
        server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
        client_id=settings.client_id,
        client_secret=secret,
        client_kwargs={"scope": "openid email", "code_challenge_method": "S256", "timeout": 10, "trust_env": False},
    )


@router.get("/sign-in/oidc")
async def begin(request: Request, context: RequestContext, next: str = "") -> Response:  # noqa: A002 — in addresses
    """Redirect to the provider; a signed cookie holds the values that its answer must match."""
    client, settings = _client(request, context)
    request.scope["session"] = {"next": local_path(next)}
    try:
        answer: Response = await client.authorize_redirect(request, f"{context.settings.page.url}{BACK}")
        if client.server_metadata.get("issuer") != settings.issuer:
            raise _sign_in_error(
                f"it calls itself {client.server_metadata.get('issuer')!r}, and not {settings.issuer!r}"
            )
    except (httpx.HTTPError, AuthlibBaseError, ValueError, RuntimeError) as error:
        raise _sign_in_error(error) from error
    state = _signer(context, "state").dumps(request.session)
    # Lax: the provider sends the browser back with a GET.
    answer.set_cookie(_COOKIE, state, _LIFE_S, path="/sign-in", secure=True, httponly=True, samesite="lax")
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.get(BACK)
async def come_back(request: Request, context: RequestContext) -> Response:
    """Check the provider's answer, and open a session in the organization of the address."""
    client, settings = _client(request, context)
    try:
        request.scope["session"] = _signer(context, "state").loads(request.cookies.get(_COOKIE, ""), _LIFE_S)
        token = await client.authorize_access_token(request)
        claims = dict(token.get("userinfo") or {})
        if "email" not in claims:
            # The standard allows the provider to give an address only in its userinfo.
            userinfo = await client.userinfo(token=token)
            if not claims or userinfo.get("sub") != claims.get("sub"):
                raise _sign_in_error("it gave the address of another user")
            claims |= userinfo
    except BadData as error:
        raise HttpError(
            400, "sign_in_expired", "this sign-in took too long, or began elsewhere: sign in again"
        ) from error
    except (httpx.HTTPError, AuthlibBaseError, JoseError, ValueError, RuntimeError, KeyError) as error:
        raise _sign_in_error(error) from error
    email = str(claims.get("email", "")).lower()
    if claims.get("email_verified") is not True or "@" not in email:
        raise HttpError(403, "address_not_verified", "the provider does not vouch for your address: verify it there")
    memberships = await run_in_threadpool(_memberships, context, settings, email)
    if not memberships:
        raise HttpError(403, "not_a_member", f"{email} is in no organization here: ask an administrator to add it")
    if len(memberships) > 1:
        ticket = _signer(context, "choice").dumps([email, request.session["next"]])
        choices = [(member.id, f"{owner.name} ({owner.slug})") for member, owner in memberships]
        answer: Response = page("choose", ticket=ticket, choices=sorted(choices, key=lambda choice: choice[1]))
    else:
        answer = await run_in_threadpool(_enter, context, memberships[0][0], request.session["next"])
    answer.delete_cookie(_COOKIE, path="/sign-in", secure=True, httponly=True, samesite="lax")
    return answer


@router.post("/sign-in/choose")
def choose(request: Request, context: RequestContext, form: AnyForm) -> Response:
    _, settings = _client(request, context)
    try:
        email, following = _signer(context, "choice").loads(form.get("ticket"), _LIFE_S)
    except BadData as error:
        raise HttpError(400, "sign_in_expired", "this took too long: sign in again") from error
    memberships = _memberships(context, settings, email)
    member = next((row for row, _ in memberships if row.id == form.get("member")), None)
    if member is None:
        raise HttpError(403, "not_a_member", f"{email} is no longer in this organization")
    return _enter(context, member, following)


def _client(request: Request, context: Context) -> tuple[Any, OidcSettings]:
    settings = context.settings.page.oidc
    if settings is None:
        raise HttpError(404, "not_found", "there is nothing here")
    client = request.app.state.oidc
    client.client_secret = os.environ.get(settings.client_secret_env) or client.client_secret
    return client, settings


def _signer(context: Context, purpose: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(context.page_key, salt=f"oidc {purpose}")


def _sign_in_error(reason: object) -> HttpError:
    _logger.error("the identity provider cannot be used: %s", reason)
    return HttpError(502, "sign_in_failed", "the identity provider did not sign you in: try again, or use an API token")


def _memberships(context: Context, settings: OidcSettings, email: str) -> list[tuple[Member, Organization]]:
    """Return the memberships of an address in active organizations; that of its domain is made if there is none."""
    slug = settings.domains.get(email.rpartition("@")[2])
    with context.database.write() as connection:
        owner = None if slug is None else organizations.by_slug(connection, slug)
        if owner is not None:
            sessions.add_member(connection, owner.id, email, context.clock(), settings.role)
        rows = sessions.memberships(connection, [email])
        pairs = [(row, organizations.by_id(connection, row.organization_id)) for row in rows]
    return [(row, owner) for row, owner in pairs if owner is not None and owner.active]


def _enter(context: Context, member: Member, following: str) -> Response:
    with context.database.write() as connection:
        owner = member.organization_id
        if sessions.member(connection, member.id) is None:
            raise HttpError(403, "not_a_member", f"{member.email} is no longer in this organization")
        value = sessions.begin(connection, context.expiry_clock(), organization_id=owner, member_id=member.id)
        audit.record(connection, f"member:{member.id}", "session.begin", context.clock(), organization_id=owner)
    return open_session(leads_to(local_path(following)), value)
