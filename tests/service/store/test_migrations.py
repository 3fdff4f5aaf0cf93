"""Migrations run in order, on both databases, all or nothing, and by one process at a time.

`test_an_older_database_is_migrated_to_the_current_schema` is the pattern for the test of each further step.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.store import migrations, organizations
from service.store.database import Database, DatabaseError
from service.store.schema import VERSION, metadata
from tests.service_process import refused_start
from tests.waiting import present

STEP = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0001", "0000"
def upgrade():
    op.add_column("organizations", sa.Column("day_usd", sa.Float))
    {more}
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'data' / 'service.sqlite'}"
    else:
        with request.getfixturevalue("postgres").temporary() as url:
            yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with contextlib.closing(Database(url)) as database:
        yield database


@pytest.fixture
def older(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of a version without daily budgets, with an organization, and the migration from it to now."""
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    package = Path(migrations.__file__).parent
    (folder / "env.py").write_text((package / "env.py").read_text())
    (folder / "versions" / "first.py").write_text("revision, down_revision = '0000', None\ndef upgrade(): pass\n")
    step = folder / "versions" / "step.py"
    step.write_text(STEP.format(more=""))
    monkeypatch.setattr("alembic.script.base.ScriptDirectory.from_config", lambda _: ScriptDirectory(str(folder)))
    database.migrate()
    with database.write() as connection:
        organizations.create(connection, name="Acme", now=1)
        connection.exec_driver_sql("ALTER TABLE organizations DROP COLUMN day_usd")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    return step


def shape(database: Database) -> dict[str, list[str]]:
    """Return the columns and the version of a database."""
    with database.read() as connection:
        there = sa.inspect(connection)
        found = {name: [str(one["name"]) for one in there.get_columns(name)] for name in there.get_table_names()}
        return found | {"version": [str(connection.exec_driver_sql("SELECT * FROM alembic_version").scalar())]}


def test_an_older_database_is_migrated_to_the_current_schema(database: Database, older: Path) -> None:
    """The rows are kept, and a second migration changes nothing."""
    database.migrate()
    migrated = shape(database)
    database.migrate()

    with database.write() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        found = present(organizations.by_slug(connection, "acme"))
    assert (found.name, found.day_usd) == ("Acme", None)
    assert shape(database) == migrated
    assert migrated["version"] == [f"{VERSION:04}"]


def test_a_failed_migration_changes_nothing(database: Database, older: Path) -> None:
    """All steps are one transaction, including the version number."""
    older.write_text(STEP.format(more='op.create_table("tokens")'))
    before = shape(database)

    with pytest.raises((sa.exc.DBAPIError, DatabaseError), match="tokens"):
        database.migrate()
    assert shape(database) == before


def test_simultaneous_starts_create_the_tables_once(database: Database, url: str, tmp_path: Path) -> None:
    """Both processes find the tables afterwards, and neither fails."""
    arguments = [] if database.is_sqlite else ["--database", url]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: refused_start(tmp_path / "data", "migrate", *arguments), range(2)))

    assert [one.returncode for one in done] == [0, 0], done
    with database.read() as connection:
        ours = {"include_name": lambda name, kind, _: kind != "table" or name in metadata.tables}
        assert compare_metadata(MigrationContext.configure(connection, opts=ours), metadata) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_database_of_another_version_is_refused(database: Database) -> None:
    """A newer, foreign or unreleased one is refused with the fix, and not changed."""
    database.migrate()
    number = "UPDATE alembic_version SET version_num = "
    unreleased = "INSERT INTO runwarden_meta VALUES ('schema_version', '5')"
    for statement, message in (
        (f"{number}'0099'", "version 99.*install the release"),
        (f"{number}'ae1027a6acf'", "another program"),
        (unreleased, "before the first release.*another --data-dir"),
    ):
        with database.write() as connection:
            connection.exec_driver_sql(f"{number}'{VERSION:04}'")
            connection.exec_driver_sql(statement)
        before = shape(database)

        with database.write() as connection, pytest.raises(DatabaseError, match=message):
            migrations.migrate(connection)
        with pytest.raises(DatabaseError, match=message):
            database.migrate()
        assert shape(database) == before


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_another_schema_with_the_same_version_number_is_refused(database: Database) -> None:
    """The error has the differences and the fix, and the rows are not changed.

    The queue's own tables and an operator's index do not count as differences.
    """
    database.migrate()
    changes = ["CREATE TABLE foreign_table (id INTEGER)", "CREATE INDEX workers_by_host ON workers (host)"]
    changes += ["ALTER TABLE workers DROP COLUMN at_work", "ALTER TABLE workers ADD COLUMN rack TEXT"]
    differences = ["", "", "workers.at_work", "workers.rack", "deletions.id, deletions.kind, deletions.requested_at"]
    for change, named in zip([*changes, "DROP TABLE deletions"], differences, strict=True):
        with database.write() as connection:
            connection.exec_driver_sql(change)

        fix = "install the version that wrote it, or start with another"
        expected = pytest.raises(DatabaseError, match=f"(?s){named}.*{fix}") if named else contextlib.nullcontext()
        with expected:
            database.migrate()
