"""Migrations: a database of any earlier version becomes one of this version, step by step, or is refused."""

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from service.store.schema import VERSION, invitations, mails, meta, metadata, offers, workers


class DatabaseError(Exception):
    """The database cannot be used; the text names the cure."""


def migrate(connection: sa.Connection) -> None:
    """Bring the schema to this program's version, inside the caller's transaction and under its lock.

    Raises:
        DatabaseError: A newer program has been here.
    """
    found = version(connection)
    if found is None:
        metadata.create_all(connection)
        connection.execute(sa.insert(meta).values(key="schema_version", value=str(VERSION)))
        return
    if found > VERSION:
        raise DatabaseError(
            f"the database has schema version {found}, this program knows {VERSION}: "
            "install the release that wrote it, or newer"
        )
    for step in range(found, VERSION):
        _STEPS[step](connection)
    if found < VERSION:
        connection.execute(sa.update(meta).where(meta.c.key == "schema_version").values(value=str(VERSION)))


def version(connection: sa.Connection) -> int | None:
    """Return the version of a database's schema; None when it has none of our tables."""
    if not sa.inspect(connection).has_table(meta.name):
        return None
    value = connection.execute(sa.select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    return None if value is None else int(value)


def _from_1(connection: sa.Connection) -> None:
    # Nobody on record can be alive: whoever migrates a single machine's database has it alone.
    workers.drop(connection)
    metadata.create_all(connection)
    if "price" not in {column["name"] for column in sa.inspect(connection).get_columns(offers.name)}:
        connection.execute(sa.text("ALTER TABLE offers ADD COLUMN price TEXT"))
    # Codes were not kept, so a mail that did not leave then never will: its recipient has to be invited anew.
    state = sa.case((invitations.c.sent_at.is_(None), "refused"), else_="sent")
    before = sa.select(invitations.c.id, state, sa.literal(1), sa.literal(0)).where(
        invitations.c.id.not_in(sa.select(mails.c.invitation_id))
    )
    connection.execute(sa.insert(mails).from_select(["invitation_id", "state", "attempts", "due_at"], before))


_STEPS: Final[dict[int, Callable[[sa.Connection], None]]] = {1: _from_1}
"""What leads from a version to the next."""
