"""Expiring keys: API tokens, code host tokens and model keys, if their expiry is known."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from service.clock import DAY_MICROS, EPOCH, MICROSECOND, Micros
from service.store import agents
from service.store.schema import hosts, organizations, tokens

WARNED_DAYS: Final = (1, 7, 14)
_SHOWN_AFTER_DAYS: Final = 7
"""How long an expired API token is still listed: its users may not have noticed yet."""


@dataclass(frozen=True, slots=True)
class EndingKey:
    """A key that expires soon, or has expired."""

    kind: str
    """`api_token`, `host_token` or `model_key`."""
    organization: str
    """The slug; empty for all organizations."""
    name: str
    """The token's alias or id, or the variable that holds it."""
    ends_at: Micros
    days: int
    """1, 7 or 14: it expires within that many days; 0 if it has expired."""


def soon(connection: sa.Connection, now: Micros) -> list[EndingKey]:
    """Return the keys that expire within 14 days, soonest first, without API tokens that have a successor."""
    slugs: dict[str | None, str] = dict(connection.execute(sa.select(organizations.c.id, organizations.c.slug)).all())
    slugs[None] = ""
    named = sa.func.coalesce(tokens.c.alias, tokens.c.id)
    last = sa.func.max(tokens.c.expires_at)
    latest = sa.select(organizations.c.slug, named, last).where(tokens.c.revoked_at.is_(None))
    latest = latest.join(organizations, organizations.c.id == tokens.c.organization_id)
    latest = latest.group_by(organizations.c.slug, named).having(last > now - _SHOWN_AFTER_DAYS * DAY_MICROS)
    expiries = {("api_token", slug, name): ends_at for slug, name, ends_at in connection.execute(latest)}
    # The date from the host itself is newer than the operator's.
    ends = sa.func.coalesce(hosts.c.token_told, hosts.c.token_ends)
    dated = (ends.is_not(None), hosts.c.token_env != "", hosts.c.rotate.is_not(True))
    query = sa.select(hosts.c.organization_id, hosts.c.token_env, ends).where(*dated)
    dates: list[tuple[str, str | None, str, str]] = [("host_token", *row) for row in connection.execute(query)]
    for agent in agents.all_of(connection):
        model = agent.options.model
        if model is not None and model.key_env is not None and model.key_ends is not None:
            dates.append(("model_key", agent.organization_id, model.key_env, model.key_ends.isoformat()))
    for kind, owner, name, day in dates:
        at = (datetime.fromisoformat(f"{day}T00:00:00+00:00") - EPOCH) // MICROSECOND
        expiries[kind, slugs[owner], name] = at
    endings = [
        EndingKey(*key, at, days)
        for key, at in expiries.items()
        if (days := next((some for some in (0, *WARNED_DAYS) if at <= now + some * DAY_MICROS), None)) is not None
    ]
    return sorted(endings, key=lambda key: (key.ends_at, key.kind, key.name))
