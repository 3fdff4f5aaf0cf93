"""The operator's view: every organization, what waits, what failed, and who did what."""

from typing import Final

import sqlalchemy as sa
from fastapi import APIRouter, Response

from service.api.context import RequestContext
from service.api.errors import HttpError
from service.api.organizations import mail_sender
from service.clock import SECOND_MICROS
from service.page.site import leads_to, page
from service.page.visitor import Operator, Writer
from service.store import audit, endings, events, hosts, invitations, organizations, outages, postings, turns, workers
from service.store.schema import runs

_MOST: Final = 100
ACTOR: Final = "operator:page"
router = APIRouter(prefix="/operator")


@router.get("")
def show(context: RequestContext, visitor: Operator) -> Response:
    """Show the whole service."""
    now = context.clock()
    with context.database.read() as connection:
        counted = connection.execute(sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status))
        by_status: dict[str, int] = dict(counted.all())
        ttl = int(context.settings.execution.worker_ttl_s * SECOND_MICROS)
        living = workers.heard_within(connection, ttl, context.clock)
        taken = len(turns.dispatched(connection))
        owners = organizations.all_of(connection)
        connected = hosts.of_all(connection, [one.id for one in owners[::-1][:_MOST]])
        invited = invitations.all_of(connection)
        ending = endings.soon(connection, now)
        refused = postings.refused(connection, _MOST)
        away = outages.Sources(connection).waiting(connection)
        disabled = [one for one in events.endpoints(connection) if one.disabled_at is not None]
        trail = audit.latest(connection, _MOST)[::-1]
    return page(
        "operator",
        visitor,
        by_status=by_status,
        workers=living,
        taken=taken,
        organizations=owners[::-1][:_MOST],
        connected=connected,
        hidden=max(0, len(owners) - _MOST),
        invited={one.organization_id: one for one in invited},
        unsent=[one for one in invited if one.state(now) in {"waiting", "refused"}],
        now=now,
        ending=ending,
        refused=refused,
        away=away,
        disabled=disabled,
        trail=trail,
        names={one.id: one.name for one in owners},
    )


@router.post("/invitations/{invitation_id}/resend")
def resend(invitation_id: str, context: RequestContext, _: Writer, __: Operator) -> Response:
    """Invite the same address again, with a new code; the old invitation is withdrawn."""
    now = context.clock()
    with context.database.write() as connection:
        old = invitations.by_id(connection, invitation_id)
        made = None if old is None else invitations.invite_again(connection, old, ACTOR, now)
        if made is None:
            raise HttpError(404, "invitation_not_found", "there is no invitation that could be sent again")
    mail_sender(context).deliver(made)
    return leads_to("/operator")
