"""Migrations: from every version that ever was, on both databases, all or nothing, and by one process at a time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hatchling.builders.wheel import WheelBuilder

from service.store import agents, invitations, organizations, tokens, turns
from service.store import rate_limits as rate_limits_store
from service.store.database import Database, DatabaseError
from service.store.schema import VERSION, metadata
from tests.service_process import ROOT, fork

NOW = 1_700_000_000_000_000
TABLES = (Path(__file__).parent / "tables_until_v4.sql").read_text("utf-8").splitlines()
VERSIONS = ["1", "1b", "2", "3", "4"]
"""Of version 1 there are two: tables were added to it before its number was raised."""
ROWS = """
INSERT INTO organizations (id, name, slug, active, entitlements, created_at)
VALUES ('org_1', 'Acme', 'acme', TRUE, '["ServiceAPI"]', 1);
INSERT INTO tokens (id, organization_id, digest, alias, scopes, created_at, expires_at)
VALUES ('tok_1', 'org_1', 'd', 'ci', '["admin"]', 1, 2);
INSERT INTO invitations (id, organization_id, email, code_digest, sent_at, expires_at)
VALUES ('inv_1', 'org_1', 'a@b.example', 'c', NULL, 2);
INSERT INTO agents (id, name, argv, timeout_s, network, environment)
VALUES ('agent_1', 'scribe', '["true"]', 1.0, FALSE, '[]');
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'data' / 'service.sqlite'}"
    return str(request.getfixturevalue("empty_postgres_url"))


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url)
    yield made
    made.close()


def as_it_was(database: Database, version: str) -> None:
    """Make the tables of a version as the program of that time made them, with a row here and there."""
    until = VERSIONS[: VERSIONS.index(version) + 1]
    lines = [line.partition(" -- ") for line in TABLES[1:]]
    script = "\n".join(text for text, _, since in lines if not since or since in until)
    script += f"\n{ROWS}INSERT INTO runwarden_meta (\"key\", value) VALUES ('schema_version', '{version[0]}');"
    if not database.is_sqlite:
        script = script.replace("BLOB", "BYTEA")
    with database.write() as connection:
        for statement in filter(str.strip, script.split(";")):
            connection.exec_driver_sql(statement)


def shape(database: Database) -> dict[str, Any]:
    """Return what a database is made of, whatever the order in which it came to be."""
    with database.read() as connection:
        there = sa.inspect(connection)
        kinds = {"sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'"}
        triggers = kinds.get(connection.dialect.name, "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")
        made = {name: _table(there, name) for name in there.get_table_names()}
        return made | {"triggers": sorted(connection.execute(sa.text(triggers)).scalars())}


def _table(there: sa.Inspector, name: str) -> list[str]:
    parts: list[Any] = [{**column, "type": str(column["type"])} for column in there.get_columns(name)]
    for index in there.get_indexes(name):
        conditions = {key: str(value) for key, value in index.get("dialect_options", {}).items()}
        parts.append({**index, "dialect_options": conditions})
    parts += [*there.get_foreign_keys(name), *there.get_unique_constraints(name), there.get_pk_constraint(name)]
    return sorted(map(str, parts))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_any_version_becomes_what_a_new_one_is(database: Database, tmp_path: Path, version: str) -> None:
    """Table by table, index by index; its rows are kept, and a second time changes nothing."""
    as_it_was(database, version)
    database.migrate()
    database.migrate()
    migrated = shape(database)
    with database.write() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
        found = organizations.by_slug(connection, "acme")
        kept = [tokens.of(connection, "org_1")[0].alias, agents.by_name(connection, "org_1", "scribe")]
        invited = [one.mail for one in invitations.all_of(connection) if version.startswith("1")]
        taken = rate_limits_store.take(connection, "org_1", 1, 60, lambda: NOW)
        metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
    database.migrate()

    assert migrated == shape(database)
    assert differences == []
    assert found is not None
    assert found.entitlements == ("ServiceAPI",)
    assert kept == ["ci", agents.Agent("scribe", ("true",), 1.0)]
    assert invited in ([], ["refused"]), "codes were not kept: its recipient needs a new invitation"
    assert taken == (1, 0.0)


def test_what_was_pushed_before_an_upgrade_is_known_as_the_service_s_own(database: Database) -> None:
    """A delivery about it starts no run."""
    as_it_was(database, "4")
    run = "INSERT INTO runs VALUES ('run_1', 'org_1', 'a', 'completed', 'b', 'github', 'p', 'p', 'u', NULL, 2, 1, 1)"
    turn = "INSERT INTO turns (run_id, number, status, instructions, inputs, attempt, accepted_at, commit_sha) VALUES "
    with database.write() as connection:
        connection.exec_driver_sql(run)
        connection.exec_driver_sql(f"{turn}('run_1', 1, 'completed', 'x', '{{}}', 1, 1, '{'a' * 40}')")
        connection.exec_driver_sql(f"{turn}('run_1', 2, 'failed', 'x', '{{}}', 1, 1, NULL)")
    database.migrate()

    with database.read() as connection:
        assert [turns.is_own_commit(connection, sha * 40) for sha in "ab"] == [True, False]


def test_agents_for_all_are_one_for_each_name_after_an_upgrade(database: Database) -> None:
    """Version 2 let two processes add the same one; the newest stays."""
    as_it_was(database, "2")
    again = "INSERT INTO agents (id, name, argv, timeout_s, network, environment) VALUES "
    row = "('agent_{0}', 'scribe', '[\"true\"]', {0}, FALSE, '[]')"
    with database.write() as connection:
        connection.exec_driver_sql(again + row.format(2))
    database.migrate()

    with database.write() as connection:
        assert [agent.timeout_s for _, agent in agents.all_of(connection)] == [2]
        with pytest.raises(sa.exc.IntegrityError):
            connection.exec_driver_sql(again + row.format(3))


def test_two_processes_that_migrate_at_once_do_it_once(database: Database, url: str, tmp_path: Path) -> None:
    """Both find the tables afterwards, and neither fails."""
    as_it_was(database, "1")
    arguments = ["status", "--json", "--data-dir", str(tmp_path / "data")]
    arguments += [] if database.is_sqlite else ["--database", url]
    begun = [fork(arguments, {}, tmp_path / f"log-{number}") for number in range(2)]
    for process, printed in begun:
        with printed:
            printed.read()
        process.join()

    logs = [(tmp_path / f"log-{number}").read_text("utf-8") for number in range(2)]
    assert [process.exitcode for process, _ in begun] == [0, 0], logs
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


@pytest.mark.parametrize(("revision", "message"), [("0099", "version 99"), ("ae1027a6acf", "another program")])
def test_what_another_program_versions_is_refused(database: Database, revision: str, message: str) -> None:
    """A newer program's database, with the cure, and one that is not ours; neither is touched."""
    database.migrate()
    with database.write() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
    before = shape(database)

    with pytest.raises(DatabaseError, match=message):
        database.migrate()
    assert shape(database) == before


@pytest.mark.parametrize("version", [None, "4"], ids=["new", "migrated"])
def test_a_program_of_version_4_refuses_it(database: Database, version: str | None) -> None:
    """It reads a number of its own, and has to find a higher one there."""
    if version is not None:
        as_it_was(database, version)
    database.migrate()

    with database.read() as connection:
        number = "SELECT value FROM runwarden_meta WHERE \"key\" = 'schema_version'"
        assert connection.exec_driver_sql(number).scalar() == "5"


def test_a_migration_that_fails_leaves_the_database_as_it_was(database: Database) -> None:
    """All steps are one transaction, from the first to the number of the last."""
    as_it_was(database, "1")
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE audit (mine INTEGER)")
    before = shape(database)

    with pytest.raises((sa.exc.DBAPIError, DatabaseError), match="audit"):
        database.migrate()
    assert shape(database) == before


def test_the_steps_lead_to_the_version_of_the_program() -> None:
    """One after the other, each numbered; the last is the one that the tables stand for."""
    steps = ScriptDirectory(str(ROOT / "service" / "store" / "migrations")).walk_revisions()

    assert [step.revision for step in steps] == [f"{number:04}" for number in range(VERSION, 0, -1)]


def test_the_steps_are_in_the_wheel() -> None:
    """An installed service migrates as a checkout does."""
    included = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    steps = {f"service/store/migrations/versions/v{number:04}.py" for number in range(1, VERSION + 1)}

    assert steps | {"service/store/migrations/env.py"} <= included


def test_alembic_is_imported_only_where_a_migration_is_due(tmp_path: Path) -> None:
    """A command on a new database or a current one does not pay for it."""
    source = (
        "import sys\nfrom service.store.database import Database\n"
        f"for _ in range(2):\n    Database('sqlite:///{tmp_path}/service.sqlite').migrate()\n"
        "sys.exit('alembic' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=False).returncode == 0
