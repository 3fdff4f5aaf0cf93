"""Migrations: a new database gets the current tables at once; Alembic migrates an older one step by step.

Each step is a file in `versions` that imports nothing of the current schema and never changes once released.
"""

from typing import Final

import sqlalchemy as sa

from service.errors import ServiceError
from service.store.schema import VERSION, meta, metadata

_REVISION: Final = sa.table("alembic_version", sa.column("version_num", sa.String))


class DatabaseError(ServiceError):
    """The database cannot be used; the text names the cure."""


def version(connection: sa.Connection) -> int | None:
    """Return the version of a database's schema; None when it has no tables of this program.

    Raises:
        DatabaseError: Another program versions it, or an unreleased version of this one wrote it.
    """
    there = sa.inspect(connection)
    if there.has_table(meta.name):
        unreleased = sa.select(meta.c.value).where(meta.c.key == "schema_version")
        if connection.execute(unreleased).scalar() is not None:
            raise DatabaseError(
                "the database was written before the first release, and cannot be upgraded: "
                "start with another --data-dir, or with an empty database"
            )
    if not there.has_table(_REVISION.name):
        return None
    found = connection.execute(sa.select(_REVISION.c.version_num)).scalar()
    if found is not None and not found.isdecimal():
        raise DatabaseError(f"the database belongs to another program: its Alembic revision is {found!r}")
    return None if found is None else int(found)


def migrate(connection: sa.Connection) -> None:
    """Bring the schema to this program's version, inside the caller's transaction and under its lock.

    Raises:
        DatabaseError: As for `version`, or a newer program has migrated it.
    """
    found = version(connection)
    if found is None:
        metadata.create_all(connection)
        # As Alembic would note it; its import is left to real migrations.
        columns = "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
        connection.execute(sa.text(f"CREATE TABLE alembic_version ({columns})"))
        connection.execute(sa.insert(_REVISION).values(version_num=f"{VERSION:04}"))
    elif found > VERSION:
        raise DatabaseError(
            f"the database has schema version {found}, this program knows {VERSION}: "
            "install the release that wrote it, or newer"
        )
    elif found < VERSION:
        from alembic import command
        from alembic.config import Config

        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "service.store:migrations")
        config.set_main_option("path_separator", "os")
        command.upgrade(config, "head")
