"""Unreleased versions share a schema version number: a database of another one is recognized by its columns."""

import pytest

from service.store.database import Database, DatabaseError
from tests.service.conftest import BOTH


@BOTH
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("ALTER TABLE workers DROP COLUMN at_work", "workers.at_work differs"),
        ("ALTER TABLE workers ADD COLUMN rack TEXT", "workers.rack differs"),
        ("DROP TABLE deletions", "deletions.id, deletions.kind, deletions.requested_at differ"),
    ],
    ids=["older", "newer", "a table less"],
)
def test_another_schema_with_the_same_version_number_is_refused(database: Database, change: str, named: str) -> None:
    """At the start, with the differences and the fix; its rows are not touched."""
    database.migrate()
    with database.write() as connection:
        connection.exec_driver_sql(change)

    with pytest.raises(DatabaseError, match=f"(?s){named}.*install the version that wrote it, or start with another"):
        database.migrate()


@BOTH
def test_foreign_tables_and_indexes_are_no_difference(database: Database) -> None:
    """The queue's own tables are next to ours, and an operator may add an index."""
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE foreign_table (id INTEGER)")
        connection.exec_driver_sql("CREATE INDEX workers_by_host ON workers (host)")

    database.migrate()
