"""API tokens: hashed at rest, scoped, and short-lived (spec 5)."""

from dataclasses import asdict, dataclass
from typing import Final, Literal, get_args

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS, Micros
from service.store.rows import record_of, records_of, update
from service.store.schema import tokens

Scope = Literal["admin", "organizations:create", "runs:read", "runs:write", "settings"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
DEFAULT_LIFE_MICROS: Final = 30 * DAY_MICROS
LAST_USE_PRECISION_MICROS: Final = DAY_MICROS // 24
"""The precision of the last use: otherwise each request would write."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token without its value, of which only a digest is stored."""

    id: str
    organization_id: str
    alias: str | None
    scopes: tuple[str, ...]
    created_at: Micros
    expires_at: Micros
    revoked_at: Micros | None
    first_used_at: Micros | None = None
    last_used_at: Micros | None = None

    def is_valid(self, now: Micros) -> bool:
        return self.revoked_at is None and now < self.expires_at


def create(
    connection: sa.Connection,
    organization_id: str,
    *,
    scopes: tuple[str, ...],
    alias: str | None,
    now: Micros,
    life_micros: int = DEFAULT_LIFE_MICROS,
) -> tuple[TokenRecord, str]:
    """Add a token and return it with its value, which cannot be read again (spec 5.4)."""
    value = ids.new_token()
    token = TokenRecord(f"tok_{ids.ulid(now)}", organization_id, alias, scopes, now, now + life_micros, None)
    connection.execute(sa.insert(tokens).values(asdict(token) | {"digest": ids.digest(value)}))
    return token, value


def by_value(connection: sa.Connection, value: str) -> TokenRecord | None:
    """Return the token with a value, even if it has expired or was revoked."""
    return record_of(connection, TokenRecord, tokens, digest=ids.digest(value))


def by_id(connection: sa.Connection, token_id: str) -> TokenRecord | None:
    return record_of(connection, TokenRecord, tokens, id=token_id)


def of(connection: sa.Connection, organization_id: str) -> list[TokenRecord]:
    return records_of(connection, TokenRecord, tokens, organization_id=organization_id, order=[tokens.c.id])


def revoke(connection: sa.Connection, token_id: str, now: Micros) -> str | None:
    """Revoke a token and return its organization's id; None if there is no such active token."""
    active = sa.update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
    return connection.execute(active.values(revoked_at=now).returning(tokens.c.organization_id)).scalar()


def note_use(connection: sa.Connection, token_id: str, now: Micros) -> bool:
    """Record a use of a token; return whether it is the first."""
    update(connection, tokens, tokens.c.id == token_id, last_used_at=now)
    return update(connection, tokens, tokens.c.id == token_id, tokens.c.first_used_at.is_(None), first_used_at=now) > 0
