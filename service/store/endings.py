"""Keys that end: API tokens, tokens of code hosts and keys of models, as far as their end is known."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from service.clock import DAY_MICROS, EPOCH, MICROSECOND, rfc3339
from service.store import agents
from service.store.schema import hosts, organizations, tokens

WARNED_DAYS: Final = (1, 7, 14)
_SHOWN_AFTER_DAYS: Final = 7
"""How long an API token that ended is still named: its callers may not have noticed yet."""


@dataclass(frozen=True, slots=True)
class EndingKey:
    """A key that ends soon, or has ended."""

    kind: str
    """`api_token`, `host_token` or `model_key`."""
    organization: str
    """The slug; empty: all organizations."""
    name: str
    """The token's alias or id, or the variable that holds it."""
    ends_at: int
    days: int
    """The smallest of 1, 7 and 14 days within which it ends; 0: it has ended."""

    def document(self) -> dict[str, object]:
        """Return it as the command line shows it."""
        shown = {"kind": self.kind, "organization": self.organization or None, "name": self.name}
        return shown | {"ends_at": rfc3339(self.ends_at), "within_days": self.days}


def soon(connection: sa.Connection, now: int) -> list[EndingKey]:
    """Return the keys that end within 14 days, the first to end first, without API tokens that have a successor."""
    found: dict[tuple[str, str, str], int] = {}
    slugs: dict[str, str] = dict(connection.execute(sa.select(organizations.c.id, organizations.c.slug)).all())
    named = sa.func.coalesce(tokens.c.alias, tokens.c.id)
    latest = sa.select(organizations.c.slug, named, sa.func.max(tokens.c.expires_at))
    latest = latest.join(organizations, organizations.c.id == tokens.c.organization_id)
    for slug, name, ends_at in connection.execute(
        latest.where(tokens.c.revoked_at.is_(None)).group_by(organizations.c.slug, named)
    ):
        if ends_at > now - _SHOWN_AFTER_DAYS * DAY_MICROS:
            found["api_token", slug, name] = ends_at
    # What the host itself told is newer than what its operator wrote down.
    ends = sa.func.coalesce(hosts.c.token_told, hosts.c.token_ends)
    for owner, name, day in connection.execute(
        sa.select(hosts.c.organization_id, hosts.c.token_env, ends).where(ends.is_not(None), hosts.c.token_env != "")
    ):
        found["host_token", slugs.get(owner, owner), name] = _micros(day)
    for owner, agent in agents.all_of(connection):
        model = agent.options.model
        if model is not None and model.key_env is not None and model.key_ends is not None:
            slug = "" if owner is None else slugs.get(owner, owner)
            found["model_key", slug, model.key_env] = _micros(model.key_ends.isoformat())
    listed = [
        EndingKey(*key, at, days)
        for key, at in found.items()
        if (days := next((some for some in (0, *WARNED_DAYS) if at <= now + some * DAY_MICROS), None)) is not None
    ]
    return sorted(listed, key=lambda one: (one.ends_at, one.kind, one.name))


def _micros(day: str) -> int:
    return (datetime.fromisoformat(f"{day}T00:00:00+00:00") - EPOCH) // MICROSECOND
