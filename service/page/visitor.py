"""Visitors: sessions on the page, the fields of a form, and the protection of both."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Depends, Request, Response

from service.api.auth import READ, Caller, check_rate, require_scopes
from service.api.bodies import read_bytes
from service.api.context import RequestContext, context_of
from service.api.errors import HttpError, bad_request
from service.observability.requests import request_record
from service.store import organizations, sessions, tokens
from service.store.sessions import Session
from service.store.tokens import TokenRecord

COOKIE: Final = "__Host-runwarden_session"
"""The prefix lets no other host of the domain set it."""
CSRF: Final = "csrf"
_MAX_FIELDS: Final = 200


@dataclass(frozen=True, slots=True)
class Form:
    """The typed text, with one value for each field; the visitor sees it again if it cannot be used."""

    fields: Mapping[str, str]

    def get(self, name: str) -> str:
        """Return a field without blanks around it; empty: it was left out."""
        return self.fields.get(name, "").strip()


class NotSignedInError(HttpError):
    """The page that was asked for needs a session."""

    def __init__(self) -> None:
        super().__init__(401, "not_signed_in", "your session has ended, or you never signed in: sign in")


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in visitor."""

    session: Session
    csrf: str
    """What each of the person's forms carries: another site's cannot know it."""
    caller: Caller | None = None
    """The signed-in caller; None: the operator."""

    def may(self, *accepted: str) -> bool:
        """Whether a page or form for these scopes is of use to the visitor; without any, for `admin`."""
        return self.caller is not None and self.caller.has_scope(*accepted)


def open_session(response: Response, value: str) -> Response:
    """Let the browser keep a session: for this site alone, out of reach of scripts, over TLS or on this machine."""
    life_s = sessions.LIFE_MICROS // 1_000_000
    response.set_cookie(COOKIE, value, max_age=life_s, path="/", secure=True, httponly=True, samesite="lax")
    return response


async def read_form(request: Request) -> Form:
    """Return the form of a request, without a check of who sent it (400, 413 or 503: it cannot be read)."""
    if not hasattr(request.state, "form"):
        context = context_of(request)
        raw = await read_bytes(request, context.settings.limits.body_bytes, context.unproven_forms)

        def parse() -> Form:
            try:
                pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
            except ValueError as error:
                raise bad_request("malformed_form", f"the form cannot be read: {error}") from error
            if any("\0" in part for pair in pairs for part in pair):
                raise bad_request("invalid_text", "no field may hold NUL")
            return Form({name: value.replace("\r\n", "\n") for name, value in pairs})

        request.state.form = await context.parsing.run(parse)
    form: Form = request.state.form
    return form


async def _own_form(request: Request) -> Form:
    """Return the form of a request that a page of this site sent (403: another site did)."""
    form = await read_form(request)
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    is_ours = site in {"same-origin", "none"} if site else not origin or urlsplit(origin).netloc == request.url.netloc
    if not is_ours:
        raise HttpError(403, "cross_site", "another site sent this form: open the page itself and try again there")
    return form


AnyForm = Annotated[Form, Depends(_own_form)]


def anybody(request: Request, context: RequestContext) -> Visitor | None:
    """Return the visitor of the browser's session; None if there is no session or it has expired."""
    value = request.cookies.get(COOKIE)
    if not value:
        return None
    csrf = hmac.digest(context.page_key, f"csrf {value}".encode(), hashlib.sha256).hex()
    now = context.expiry_clock()
    with context.database.read() as connection:
        session = sessions.by_value(connection, value, now)
        if session is None and context.operator_token:
            session = sessions.by_value(connection, value, now, secret=context.operator_token)
        if session is None:
            return None
        owner = None
        if session.organization_id is not None:
            owner = organizations.by_id(connection, session.organization_id)
        token = None if session.token_id is None else tokens.by_id(connection, session.token_id)
        member = None
        if session.member_id is not None:
            member = sessions.member(connection, session.member_id)
    if now - session.seen_at >= sessions.SEEN_MICROS:
        with context.database.write() as connection:
            sessions.note_use(connection, session, now)
    if session.organization_id is None:
        return Visitor(session, csrf)
    if member is not None:
        scopes = sessions.ROLES[member.role]
        token = TokenRecord(member.id, member.organization_id, member.email, scopes, now, now + 1, None)
    if owner is None or token is None or not token.is_valid(now):
        return None
    if not owner.active:
        raise HttpError(403, "organization_inactive", f"the organization {owner.slug} is not active")
    caller = Caller(owner, token)
    record = request_record(request.scope)
    record.organization, record.actor = owner.slug, caller.actor
    check_rate(context, owner)
    return Visitor(session, csrf, caller)


def _signed_in(visitor: Annotated[Visitor | None, Depends(anybody)]) -> Visitor:
    if visitor is None:
        raise NotSignedInError
    return visitor


def _member(visitor: Annotated[Visitor, Depends(_signed_in)]) -> Caller:
    if visitor.caller is None:
        raise HttpError(403, "no_organization", "the operator has no organization here: sign in with a token of it")
    return visitor.caller


def _operator(visitor: Annotated[Visitor, Depends(_signed_in)]) -> Visitor:
    if visitor.caller is not None:
        raise HttpError(404, "not_found", "there is nothing here")
    return visitor


def _writer(visitor: Annotated[Visitor | None, Depends(anybody)], form: AnyForm) -> Form:
    if visitor is None:
        raise NotSignedInError
    if not hmac.compare_digest(form.get(CSRF).encode(), visitor.csrf.encode()):
        raise HttpError(403, "stale_form", "this form is from another session: go back, reload the page and try again")
    return form


Anybody = Annotated[Visitor | None, Depends(anybody)]
# The caller that the session represents, if it has one of the scopes.
RunReader = Annotated[Caller, Depends(require_scopes(_member, *READ))]
RunWriter = Annotated[Caller, Depends(require_scopes(_member, "runs:write"))]
Configurer = Annotated[Caller, Depends(require_scopes(_member, "settings"))]
SettingsReader = Annotated[Caller, Depends(require_scopes(_member, "settings", *READ))]
Administrator = Annotated[Caller, Depends(require_scopes(_member))]
Operator = Annotated[Visitor, Depends(_operator)]
SignedIn = Annotated[Visitor, Depends(_signed_in)]
Writer = Annotated[Form, Depends(_writer)]
"""A form that the signed-in person sent from a page of this session."""


async def _nothing() -> None:
    """Return nothing: only a handler that refuses a form passes these, to the one that shows the form again."""


Fault = Annotated[HttpError | str | None, Depends(_nothing)]
Typed = Annotated[Mapping[str, str] | None, Depends(_nothing)]


def local_path(text: str) -> str:
    """Return where a sign-in leads to: a path of this site, and nowhere else."""
    if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable():
        return text
    return "/"


def address(path: str, /, **query: object) -> str:
    """Return a path with a query; empty values are left out."""
    values = {name: str(value) for name, value in query.items() if value not in {None, ""}}
    return f"{path}?{urlencode(values)}" if values else path
