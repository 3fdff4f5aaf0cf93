"""Migrations: a new database gets the current tables directly; Alembic migrates an older one step by step.

Each step is a file in `versions` that imports nothing of the current schema and never changes once released.
"""

from typing import Final

import sqlalchemy as sa

from service.errors import ServiceError
from service.store.schema import VERSION, meta, metadata

_REVISION: Final = sa.table("alembic_version", sa.column("version_num", sa.String))
_COLUMNS: Final = {
    "sqlite": """SELECT m.name, c.name, c."notnull" FROM sqlite_master m, pragma_table_info(m.name) c
        WHERE m.type = 'table'""",
    "postgresql": """SELECT relname, attname, attnotnull FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE relkind = 'r' AND pg_table_is_visible(c.oid) AND attnum > 0 AND NOT attisdropped""",
}


class DatabaseError(ServiceError):
    """The database cannot be used; the text says how to fix it."""


def version(connection: sa.Connection) -> int | None:
    """Return a schema's version; None: it has no tables of ours (`DatabaseError`: another program's, or unreleased)."""
    inspector = sa.inspect(connection)
    if inspector.has_table(meta.name):
        unreleased = sa.select(meta.c.value).where(meta.c.key == "schema_version")
        if connection.execute(unreleased).scalar() is not None:
            fix = "start with another --data-dir, or with an empty database"
            raise DatabaseError(f"the database was written before the first release, and cannot be upgraded: {fix}")
    if not inspector.has_table(_REVISION.name):
        return None
    revision = connection.execute(sa.select(_REVISION.c.version_num)).scalar()
    if revision is not None and not revision.isdecimal():
        raise DatabaseError(f"the database belongs to another program: its Alembic revision is {revision!r}")
    return None if revision is None else int(revision)


def check(connection: sa.Connection) -> None:
    """Refuse tables with other columns than this program's: unreleased versions may share a version number."""
    rows = connection.exec_driver_sql(_COLUMNS[connection.dialect.name])
    present = {(table, column, not required) for table, column, required in rows if table in metadata.tables}
    columns = (column for table in metadata.tables.values() for column in table.columns)
    ours = {(column.table.name, column.name, bool(column.nullable)) for column in columns}
    if different := sorted({f"{table}.{column}" for table, column, _ in present ^ ours}):
        raise DatabaseError(
            f"the database was written by another version of this program, though its schema has the same number, "
            f"{VERSION}: {', '.join(different)} {'differs' if len(different) == 1 else 'differ'}; "
            "install the version that wrote it, or start with another --data-dir, or with an empty database"
        )


def migrate(connection: sa.Connection) -> None:
    """Upgrade the schema to this program's version, inside the caller's transaction and under its lock."""
    present = version(connection)
    if present is None:
        metadata.create_all(connection)
        # As Alembic would record it; only real migrations pay for importing Alembic.
        columns = "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
        connection.execute(sa.text(f"CREATE TABLE alembic_version ({columns})"))
        connection.execute(sa.insert(_REVISION).values(version_num=f"{VERSION:04}"))
    elif present > VERSION:
        newer = f"the database has schema version {present}, this program knows {VERSION}"
        raise DatabaseError(f"{newer}: install the release that wrote it, or newer")
    elif present < VERSION:
        from alembic import command
        from alembic.config import Config

        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "service.store:migrations")
        config.set_main_option("path_separator", "os")
        command.upgrade(config, "head")
    check(connection)
