"""The audit trail: acts of administration, written in the transaction of the change and never changed later.

It holds ids and configured names, but no tokens, codes, e-mail addresses or error texts.
"""

import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

from service import ids
from service.clock import Micros
from service.store.rows import optional_filter, records_of
from service.store.schema import audit, event_endpoints, invitations, members, organizations, tokens

DONE: Final = "done"
FAILED: Final = "failed"
_NAMED: Final = {
    "org": organizations.c.name,
    "tok": tokens.c.alias,
    "mem": members.c.email,
    "inv": invitations.c.email,
    "ep": event_endpoints.c.url,
}
"""The beginning of an id, with the column of the name."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of administration."""

    id: str
    at: int
    actor: str
    """`operator:USER@HOST` of a command, `token:ID` of a request."""
    action: str
    """A subject and a verb, such as `token.revoke`."""
    outcome: str
    """`done` or `failed`; a failed act changed nothing."""
    target: str | None
    """Id or name of the changed object; None if the act failed before the object was found."""
    organization_id: str | None
    """The organization concerned, which may have been deleted since; None for the whole service."""
    detail: str | None


def record(
    connection: sa.Connection,
    actor: str,
    action: str,
    now: Micros,
    *,
    target: str | None = None,
    organization_id: str | None = None,
    detail: str | None = None,
    outcome: str = DONE,
) -> None:
    entry = AuditEntry(f"aud_{ids.ulid(now)}", now, actor, action, outcome, target, organization_id, detail)
    connection.execute(sa.insert(audit).values(asdict(entry)))


def latest(
    connection: sa.Connection,
    limit: int,
    *,
    organization_id: str | None = None,
    since: int | None = None,
    action: str | None = None,
) -> list[AuditEntry]:
    """Return the latest entries, oldest first; a filter of None is not applied."""
    is_own = optional_filter(audit.c.organization_id, organization_id)
    conditions = [is_own, optional_filter(audit.c.at, since, operator.ge)]
    if action is not None:
        conditions.append(sa.or_(audit.c.action == action, audit.c.action.startswith(f"{action}.", autoescape=True)))
    newest = [audit.c.at.desc(), audit.c.id.desc()]
    return records_of(connection, AuditEntry, audit, *conditions, order=newest, limit=limit)[::-1]


def names(connection: sa.Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return the names of organizations, tokens, members, invitations and endpoints; those without are left out."""
    names: dict[str, str] = {}
    for kind, column in _NAMED.items():
        ids_of_kind = {key for key in ids if key.startswith(f"{kind}_")}
        id_column = column.table.c.id
        if ids_of_kind:
            rows = connection.execute(sa.select(id_column, column).where(id_column.in_(ids_of_kind)))
            names |= {key: name for key, name in rows if name}
    return names
