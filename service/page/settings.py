"""An organization's settings: tokens, members, code hosts, agents, events and usage."""

from datetime import timedelta
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError
from sqlalchemy import Connection

from service.api import organizations as organizations_api
from service.api import results as results_api
from service.api.auth import Caller
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request
from service.clock import DAY_MICROS, EPOCH
from service.errors import first_fault
from service.outgoing.mail import checked_address
from service.outgoing.webhooks import addresses_of
from service.page.site import leads_to, origin_of, page
from service.page.visitor import Administrator, Anybody, Configurer, Fault, SettingsReader, SignedIn, Typed, Writer
from service.settings import Role
from service.setup import SetupError, TokenEntry, make_token
from service.store import deliveries, events, organizations, repositories, sessions, tokens, usage
from service.store.sessions import ROLES
from service.store.tokens import SCOPES

DURATIONS: Final = ("1d", "7d", "30d", "90d", "365d")
_DAYS: Final = 30
_MAX_EVENTS: Final = 100
router = APIRouter(prefix="/settings")


@router.get("")
def enter(visitor: SignedIn) -> Response:
    return leads_to("/settings/tokens" if visitor.may() else "/settings/hosts")


@router.get("/tokens")
def show_tokens(
    context: RequestContext, caller: Administrator, visitor: Anybody, fault: Fault = None, typed: Typed = None
) -> Response:
    with context.database.read() as connection:
        rows = tokens.of(connection, caller.organization.id)[::-1]
    fields = {"alias": "", "duration": "30d", "scope-admin": "on"} | dict(typed or {})
    facts: dict[str, Any] = {"tokens": rows, "own": caller.token.id, "now": context.expiry_clock()}
    return page("tokens", visitor, fault=fault, fields=fields, scopes=SCOPES, durations=DURATIONS, **facts)


@router.post("/tokens")
def create_token(
    request: Request, context: RequestContext, form: Writer, caller: Administrator, visitor: Anybody
) -> Response:
    """Create a token and show its value, which cannot be shown again (spec 5.2 to 5.5)."""
    chosen = [scope for scope in SCOPES if form.get(f"scope-{scope}")]
    typed = {"alias": form.get("alias"), "duration": form.get("duration")}
    typed |= {f"scope-{scope}": "on" for scope in chosen}
    if not chosen:
        return show_tokens(context, caller, visitor, "choose at least one scope", typed | {"scope-admin": ""})
    try:
        entry = TokenEntry.model_validate(
            {"alias": form.get("alias") or "unnamed", "scopes": chosen, "duration": form.get("duration") or "30d"}
        )
        with context.database.write() as connection:
            token, value = make_token(connection, caller.organization, entry, context.clock())
            caller.record(connection, "token.create", context.clock(), token.id, " ".join(chosen))
    except (ValidationError, SetupError) as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else str(error)
        return show_tokens(context, caller, visitor, fault, typed)
    return page("token", visitor, token=token, value=value, origin=origin_of(request))


@router.post("/tokens/{token_id}/revoke")
def revoke_token(token_id: str, context: RequestContext, _: Writer, caller: Administrator) -> Response:
    """Revoke a token; its sessions end with it."""
    with context.database.write() as connection:
        if token_id not in {row.id for row in tokens.of(connection, caller.organization.id)}:
            raise HttpError(404, "token_not_found", "there is no such token")
        if tokens.revoke(connection, token_id, context.clock()):
            caller.record(connection, "token.revoke", context.clock(), token_id)
    return leads_to("/settings/tokens")


@router.get("/members")
def show_members(
    context: RequestContext, caller: Administrator, visitor: Anybody, fault: Fault = None, typed: Typed = None
) -> Response:
    with context.database.read() as connection:
        rows = sessions.members_of(connection, caller.organization.id)
    token_id, email = caller.token.id, (typed or {}).get("email", "").strip()
    return page("members", visitor, fault=fault, members=rows, own=token_id, email=email, roles=ROLES)


@router.post("/members")
def add_member(context: RequestContext, form: Writer, caller: Administrator, visitor: Anybody) -> Response:
    try:
        email = checked_address(form.get("email"))[0]
    except ValueError as error:
        return show_members(context, caller, visitor, f"the address cannot be used: {error}", form.fields)
    with context.database.write() as connection:
        role = _role(form.get("role"))
        member = sessions.put_member(connection, caller.organization.id, email, context.clock(), role)
        caller.record(connection, "member.add", context.clock(), member.id, role)
    return leads_to("/settings/members")


@router.post("/members/{member_id}/role")
def change_role(member_id: str, context: RequestContext, form: Writer, caller: Administrator) -> Response:
    """Give a member another role, which also holds in open sessions."""
    return _set_role(context, caller, member_id, "member.role", _role(form.get("role")))


@router.post("/members/{member_id}/remove")
def remove_member(member_id: str, context: RequestContext, _: Writer, caller: Administrator) -> Response:
    """Let a user sign in no longer; open sessions are closed."""
    return _set_role(context, caller, member_id, "member.remove", None)


def _set_role(context: Context, caller: Caller, member_id: str, action: str, role: Role | None) -> Response:
    with context.database.write() as connection:
        if not sessions.set_role(connection, caller.organization.id, member_id, role, context.clock()):
            raise HttpError(404, "member_not_found", "there is no such member")
        caller.record(connection, action, context.clock(), member_id, role)
    return leads_to("/settings/members")


def _role(typed: str) -> Role:
    role = typed or "admin"
    if role not in ROLES:
        raise bad_request("invalid_role", f"role must be one of {', '.join(ROLES)}")
    return cast("Role", role)


@router.get("/hosts")
async def show_hosts(context: RequestContext, caller: SettingsReader, visitor: Anybody) -> Response:
    """Show the code hosts with their health (spec 4.5), the repositories, and the schedules of their rules."""
    try:
        health: Any = (await organizations_api.installation_health(context, caller))["code_hosting"]
    except HttpError as error:
        if error.error_code != "no_code_host":
            raise
        health = {}

    def show() -> Response:
        with context.database.read() as connection:
            rows = repositories.of(connection, caller.organization.id)
            schedules = repositories.all_schedules(connection, caller.organization.id)
            last = deliveries.latest_scheduled(connection, caller.organization.id)
        return page("hosts", visitor, health=health, repositories=rows, schedules=schedules, last=last)

    return await run_in_threadpool(show)


@router.get("/agents")
def show_agents(context: RequestContext, caller: SettingsReader, visitor: Anybody) -> Response:
    return page("agents", visitor, agents=results_api.list_agents(context, caller)["agents"])


@router.get("/events")
def show_events(
    context: RequestContext, caller: Configurer, visitor: Anybody, fault: Fault = None, typed: Typed = None
) -> Response:
    with context.database.read() as connection:
        rows = events.endpoints(connection, caller.organization.id)
        newest = events.latest(connection, _MAX_EVENTS, caller.organization.id)
    url = (typed or {}).get("url", "").strip()
    chosen = [kind for kind in events.TYPES if typed is None or typed.get(f"type-{kind}", "").strip()]
    facts: dict[str, Any] = {"types": events.TYPES, "chosen": chosen, "url": url}
    urls = {row.id: row.url for row in rows}
    return page("events", visitor, fault=fault, endpoints=rows, urls=urls, events=newest, **facts)


@router.post("/events/endpoints")
async def add_endpoint(context: RequestContext, form: Writer, caller: Configurer, visitor: Anybody) -> Response:
    """Add an endpoint and show its secret, which cannot be shown again."""

    def add() -> Response:
        url = form.get("url")
        types = [kind for kind in events.TYPES if form.get(f"type-{kind}")]
        try:
            addresses_of(url, context.settings.events.allow_private)
            with context.database.write() as connection:
                endpoint = events.add_endpoint(connection, caller.organization.id, url, types, (), context.clock())
                caller.record(connection, "endpoint.add", context.clock(), endpoint.id)
        except events.EndpointError as error:
            return show_events(context, caller, visitor, str(error), form.fields)
        return page("new_secret", visitor, endpoint=endpoint, secret=endpoint.secret)

    # Its name is looked up, which may take long.
    return await context.outgoing.run(add, caller.organization.id)


@router.post("/events/endpoints/{endpoint_id}/rotate")
def rotate_secret(
    endpoint_id: str, context: RequestContext, _: Writer, caller: Configurer, visitor: Anybody
) -> Response:
    """Give an endpoint a new secret and show it; for a day the old one signs as well."""
    with context.database.write() as connection:
        old = _endpoint(connection, endpoint_id, caller)
        secret = events.rotate(connection, old, context.clock())
        caller.record(connection, "endpoint.rotate", context.clock(), old.id)
    return page("new_secret", visitor, endpoint=old, secret=secret)


@router.post("/events/endpoints/{endpoint_id}/remove")
def remove_endpoint(endpoint_id: str, context: RequestContext, _: Writer, caller: Configurer) -> Response:
    with context.database.write() as connection:
        events.remove_endpoint(connection, _endpoint(connection, endpoint_id, caller).id)
        caller.record(connection, "endpoint.remove", context.clock(), endpoint_id)
    return leads_to("/settings/events")


def _endpoint(connection: Connection, endpoint_id: str, caller: Caller) -> events.Endpoint:
    row = events.endpoint(connection, endpoint_id, caller.organization.id)
    if row is None:
        raise HttpError(404, "endpoint_not_found", "there is no such endpoint")
    return row


@router.post("/events/{event_id}/replay")
def replay_event(event_id: str, context: RequestContext, _: Writer, caller: Configurer) -> Response:
    """Deliver an event again, whatever its state."""
    with context.database.write() as connection:
        row = events.by_id(connection, event_id, caller.organization.id)
        if row is None:
            raise HttpError(404, "event_not_found", "there is no such event: it may be too old")
        events.replay(connection, row, context.clock())
        caller.record(connection, "event.replay", context.clock(), event_id)
    context.wake()
    return leads_to("/settings/events")


@router.get("/usage")
def show_usage(context: RequestContext, caller: SettingsReader, visitor: Anybody) -> Response:
    """Show the usage of the last thirty days, by day, agent and repository, and the trial."""
    today = context.clock() // DAY_MICROS
    days = range(today - _DAYS + 1, today + 1)
    filters = (caller.organization.id, days[0], today)
    with context.database.read() as connection:
        (total,) = usage.totals(connection, None, *filters)
        by_day = {row.subject["day"]: row for row in usage.totals(connection, "day", *filters)}
        tables = {by: usage.totals(connection, by, *filters) for by in ("agent", "repository")}
        trial = organizations.trial_of(connection, caller.organization.id)
    dated = [(EPOCH.date() + timedelta(days=day), by_day.get(day)) for day in days]
    largest = max((row.figures.micro_usd for _, row in dated if row), default=0)
    return page("usage", visitor, total=total, days=dated, most=largest, tables=tables, trial=trial)
