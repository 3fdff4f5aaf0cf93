"""Migrations: a new database gets the current tables at once; Alembic migrates an older one step by step.

Each step is a file in `versions` that imports nothing of the current schema and never changes once released.
"""

from typing import Final

import sqlalchemy as sa

from service.errors import ServiceError
from service.store.schema import VERSION, meta, metadata

_REVISION: Final = sa.table("alembic_version", sa.column("version_num", sa.String))
_FIRST_OF_ALEMBIC: Final = 5
"""Databases of earlier versions keep their number in `runwarden_meta`, where older programs read it."""


class DatabaseError(ServiceError):
    """The database cannot be used; the text names the cure."""


def version(connection: sa.Connection) -> int | None:
    """Return the version of a database's schema; None when it has no tables of this program.

    Raises:
        DatabaseError: Another program than this one versions it.
    """
    there = sa.inspect(connection)
    if there.has_table(_REVISION.name):
        found = connection.execute(sa.select(_REVISION.c.version_num)).scalar()
        if found is not None and not found.isdecimal():
            raise DatabaseError(f"the database belongs to another program: its Alembic revision is {found!r}")
        return None if found is None else int(found)
    if not there.has_table(meta.name):
        return None
    value = connection.execute(sa.select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    return None if value is None else int(value)


def migrate(connection: sa.Connection) -> None:
    """Bring the schema to this program's version, inside the caller's transaction and under its lock.

    Raises:
        DatabaseError: A newer program has migrated it.
    """
    found = version(connection)
    if found is not None and found > VERSION:
        raise DatabaseError(
            f"the database has schema version {found}, this program knows {VERSION}: "
            "install the release that wrote it, or newer"
        )
    if found is None:
        metadata.create_all(connection)
        connection.execute(sa.insert(meta).values(key="schema_version", value=str(_FIRST_OF_ALEMBIC)))
    if found is None or found < _FIRST_OF_ALEMBIC:
        stamp(connection, VERSION if found is None else found)
    if found is not None and found < VERSION:
        _upgrade(connection)


def stamp(connection: sa.Connection, number: int) -> None:
    """Note the version of tables that were just created, as Alembic would; its import is left to real migrations."""
    connection.execute(
        sa.text(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(sa.insert(_REVISION).values(version_num=f"{number:04}"))


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "service.store:migrations")
    config.set_main_option("path_separator", "os")
    command.upgrade(config, f"{VERSION:04}")
