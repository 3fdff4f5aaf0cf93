"""`orgs list`: the ledger's attempts; the API has no call that lists organizations."""

import json
from datetime import datetime

import click

from app.cli.context import Invocation
from app.cli.documents import as_received, invitation_ends_at, organization_document
from app.cli.exits import Exit
from app.cli.options import FactCommand
from app.cli.table import Column
from app.cli.times import age, rfc3339
from storage.records import Action


@click.command("list", cls=FactCommand)
@click.pass_obj
def list_organizations(invocation: Invocation, /) -> int:
    """List every organization that was asked for from here, newest first. The network is not touched."""
    return invocation.run(lambda: _list(invocation))


async def _list(invocation: Invocation) -> int:
    async with invocation.engine(needs_token=False) as engine:
        found = await engine.ledger.organizations()
        now = engine.clock()
    entries = [organization_document(action) for action in found]
    columns: tuple[Column[Action], ...] = (
        Column("state", _state, "state", lambda a: a.state),
        Column("email", _email, "email", flexible=True),
        Column("organization", _name, "organization", flexible=True),
        Column("id", lambda a: a.result_id or "", "organization_id"),
        Column("asked", lambda a: age(a.created_at, now), "created_at", lambda a: rfc3339(a.created_at)),
        Column(
            "invitation",
            lambda a: _invitation(a, now),
            "invitation_expires_at",
            lambda a: rfc3339(invitation_ends_at(a)),
        ),
        Column("action", lambda a: a.action_id, "action_id"),
    )
    invocation.output.listing("organizations", entries, found, columns, empty="No organization was asked for yet.")
    return Exit.DONE


def _email(action: Action) -> str:
    return str(json.loads(action.body_json).get("email", ""))


def _name(action: Action) -> str:
    return str(as_received(action.response_json).get("organization_name") or "")


def _state(action: Action) -> str:
    return action.state + (f" ({action.resolution.replace('_', ' ')})" if action.resolution else "")


def _invitation(action: Action, now: datetime) -> str:
    ends_at = invitation_ends_at(action)
    if ends_at is None:
        return ""
    return f"expires {age(ends_at, now)}" if ends_at > now else f"expired {age(ends_at, now)}"
