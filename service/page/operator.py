"""The operator's view: every organization with its runs and usage, waiting work, failures, and the audit trail."""

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response

from service.api.context import Context, RequestContext
from service.api.errors import HttpError
from service.api.runs import page_of
from service.clock import DAY_MICROS
from service.outgoing.mail import deliver
from service.page.site import leads_to, page
from service.page.visitor import Operator, Visitor, Writer
from service.store import audit, endings, events, invitations, organizations, postings, runs, turns, usage, workers
from service.store.hosts import Host
from service.store.outages import ProviderOutages
from service.store.rows import by_owner
from service.store.runs import FINAL, OPEN, Filters, Run
from service.store.schema import hosts

_MAX_RUNS: Final = 100
_PAGE: Final = 25
_DAYS: Final = 30
_AT_ONCE: Final = 100
"""Runs that are cancelled in one transaction."""
_MAX_CANCELLED: Final = 1000
"""Runs of one preview; the page then offers to continue."""
_SHOWN: Final = re.compile(r"(run_\w+):([0-9]{1,9})(?!\S)")
ACTOR: Final = "operator:page"
router = APIRouter(prefix="/operator")


@router.get("")
def show(context: RequestContext, visitor: Operator, search: str = "") -> Response:
    """Show the whole service, with the organizations whose name, slug, id or invited address contains a text."""
    now = context.clock()
    with context.database.read() as connection:
        by_status = {status: runs.count(connection, Filters(None, status)) for status in OPEN}
        living = workers.heard_within(connection, context.settings.execution.worker_ttl_s, context.clock)
        taken = len(turns.dispatched_turns(connection))
        invited = invitations.all_of(connection)
        latest = {invitation.organization_id: invitation for invitation in invited}
        word = search.strip().casefold()
        emails = {owner: invitation.email for owner, invitation in latest.items()}
        owners = [
            owner
            for owner in organizations.all_of(connection)
            if word in " ".join((owner.name, owner.slug, owner.id, emails.get(owner.id, ""))).casefold()
        ]
        newest = owners[::-1][:_MAX_RUNS]
        hidden = max(0, len(owners) - _MAX_RUNS)
        connected = by_owner(connection, Host, hosts, [organization.id for organization in newest])
        ending = endings.soon(connection, now)
        refused = postings.refused_postings(connection, _MAX_RUNS)
        posted_for = runs.by_ids(connection, [posting.run_id for posting in refused])
        away = ProviderOutages(connection).waiting(connection)
        disabled = [endpoint for endpoint in events.endpoints(connection) if endpoint.disabled_at is not None]
        trail = audit.latest(connection, _MAX_RUNS)[::-1]
        named = [name for row in trail for name in (row.target, row.organization_id, row.actor.split(":")[-1]) if name]
        named += [endpoint.organization_id for endpoint in disabled]
        named += [run.organization_id for run in posted_for.values()]
        names = audit.names(connection, named)
    unsent = [invitation for invitation in invited if invitation.state(now) in {"waiting", "refused"}]
    facts: dict[str, Any] = {
        "by_status": by_status,
        "workers": living,
        "taken": taken,
        "organizations": newest,
        "connected": connected,
        "invited": latest,
        "unsent": unsent,
        "now": now,
        "ending": ending,
        "names": names,
        "refused": refused,
        "posted_for": posted_for,
        "away": away,
        "disabled": disabled,
        "trail": trail,
    }
    return page("operator", visitor, hidden=hidden, search=search, **facts)


def _chosen(context: RequestContext, _: Operator, org: str = "", status: str = "") -> Filters:
    """Return the runs of the organization (empty: all) and of the status (empty: any) that an address names."""
    with context.database.read() as connection:
        owner = organizations.by_slug(connection, org.strip()) if org.strip() else None
    if org.strip() and owner is None:
        raise HttpError(404, "organization_not_found", f"there is no organization {org!r}: write its slug")
    return Filters(owner.id if owner else None, status or None)


Chosen = Annotated[Filters, Depends(_chosen)]


@router.get("/runs")
def list_runs(
    context: RequestContext,
    visitor: Operator,
    filters: Chosen,
    org: str = "",
    page_token: str | None = None,
    cancelled: int = 0,
) -> Response:
    """Show the newest runs of an organization and of a status, or all of them."""
    with context.database.read() as connection:
        matches, following, count = page_of(context, connection, filters, page_token, _PAGE)
        active = runs.count(connection, filters, only_active=True)
        slugs = [organization.slug for organization in organizations.all_of(connection)[: -_MAX_RUNS - 1 : -1]]
    more = {"active": active, "slugs": slugs, "following": following, "cancelled": cancelled}
    return _runs(context, visitor, matches, count=count, org=org, chosen=filters.status, shown=None, **more)


@router.get("/runs/cancel")
def preview_cancel(context: RequestContext, visitor: Operator, filters: Chosen, org: str = "") -> Response:
    """Show which active runs of an organization and of a status would be cancelled, and ask."""
    if filters.status not in {None, *OPEN} or (filters.status is None and filters.organization_id is None):
        raise HttpError(400, "invalid_filter", "choose an organization, or the status queued or working")
    with context.database.read() as connection:
        matches = runs.active(connection, filters, _MAX_CANCELLED)[:_MAX_CANCELLED]
    # A turn that is accepted after the preview is not among them.
    run_turns = " ".join(f"{run.id}:{run.turn}" for run in matches)
    return _runs(context, visitor, matches[:_PAGE], count=len(matches), org=org, chosen=filters.status, shown=run_turns)


@router.post("/runs/cancel")
def cancel(context: RequestContext, form: Writer, _: Operator) -> Response:
    """Cancel the turns of the preview that are still open, and in the status it was for."""
    org, status = form.get("org"), form.get("status")
    run_turns = [(run_id, int(turn)) for run_id, turn in _SHOWN.findall(form.get("shown"))]
    if not run_turns:
        raise HttpError(400, "invalid_form", "open the preview first, and confirm it")
    cancelled = 0
    for start in range(0, min(len(run_turns), _MAX_CANCELLED), _AT_ONCE):
        with context.database.write() as connection:
            chunk = run_turns[start : start + _AT_ONCE]
            cancelled += len(turns.cancel_each(connection, chunk, status or None, ACTOR, context.clock))
    context.wake()
    return leads_to("/operator/runs", org=org, status=status, cancelled=cancelled)


def _runs(context: Context, visitor: Visitor, matches: list[Run], **facts: Any) -> Response:
    with context.database.read() as connection:
        last = turns.newest_of(connection, [run.id for run in matches])
        names = audit.names(connection, [run.organization_id for run in matches])
    return page("operator_runs", visitor, runs=matches, last=last, names=names, statuses=[*OPEN, *FINAL], **facts)


@router.get("/usage")
def show_usage(context: RequestContext, visitor: Operator) -> Response:
    """Show what each organization used in the last thirty days, the most expensive first."""
    today = context.clock() // DAY_MICROS
    with context.database.read() as connection:
        totals = usage.totals(connection, "organization", None, today - _DAYS + 1, today)
        limits = {organization.slug: organization for organization in organizations.all_of(connection)}
    totals.sort(key=lambda total: (-total.figures.micro_usd, -total.figures.tokens))
    return page("operator_usage", visitor, totals=totals, limits=limits)


@router.post("/invitations/{invitation_id}/resend")
def resend(invitation_id: str, context: RequestContext, _: Writer, __: Operator) -> Response:
    now = context.clock()
    with context.database.write() as connection:
        old = invitations.by_id(connection, invitation_id)
        invitation = None if old is None else invitations.invite_again(connection, old, ACTOR, now)
        if invitation is None:
            raise HttpError(404, "invitation_not_found", "there is no invitation that could be sent again")
    deliver(context.database, context.mailer, context.settings, context.clock, invitation)
    return leads_to("/operator")
