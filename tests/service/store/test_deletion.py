"""Deleting a run or an organization leaves only its id in the audit trail, and removes nothing of others."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from service.cli import main
from service.clock import now_micros
from service.execution.retention import clear_folder, complete_deletions
from service.execution.workspace import Workspaces
from service.settings import DataFolder
from service.store import (
    audit,
    deletions,
    events,
    invitations,
    organizations,
    repositories,
    runs,
    schema,
    tokens,
    turns,
)
from service.store.database import Database
from service.store.repositories import Repository
from service.store.rows import delete
from service.store.runs import InactiveOrganizationError
from service.store.turns import TurnOutcome
from tests.service.conftest import BOTH, UNBOXED, Api, accepted, order, organization
from tests.service.deployment import Deployment, deployment
from tests.service_process import demo_setup
from tests.waiting import COLD_START_S, eventually

SETTINGS = f"{UNBOXED}worker_ttl_s = 2\ndrain_s = 0.1\nconcurrency = 3\n"


@cache
def tables(database: Database) -> list[sa.Table]:
    """Return every table that may name deleted objects; read once for each database."""
    found = []
    with database.read() as connection:
        for schema in (None,) if database.is_sqlite else ("public", "dbos"):
            there = sa.MetaData()
            there.reflect(connection, schema=schema)
            found += there.sorted_tables
    return [table for table in found if table.name not in {"audit", "deletions"}]


def traces(database: Database, folder: DataFolder, *marks: str) -> list[str]:
    """Return where an id still occurs, in any table's rows or in files' names and contents, except on purpose."""
    with database.read() as connection:
        rows = [f"{table.name}: {row}" for table in tables(database) for row in connection.execute(sa.select(table))]
    found = [row for row in rows if any(mark in row for mark in marks)]
    # A file may disappear while it is read, since the service may be at work.
    for parent, folders, files in os.walk(folder.root):
        found += [f"{parent}/{name}" for name in (*folders, *files) if any(mark in name for mark in marks)]
        for path in (Path(parent, name) for name in files if name != "serve.log" and not name.endswith(".sqlite")):
            with contextlib.suppress(FileNotFoundError):
                content = path.read_bytes()
                found += [str(path)] * any(mark.encode() in content for mark in marks)
    return found


@pytest.fixture
def made(either_url: str | None, tmp_path: Path) -> Iterator[Deployment]:
    """A service over either database, with a second organization on one of the first one's repositories."""
    setup = demo_setup(tmp_path)
    first = setup["organizations"][0]
    other = {**first, "name": "Other", "slug": "other", "hosts": [], "repositories": first["repositories"][:1]}
    setup["organizations"].append(other)
    with deployment(tmp_path / "deployment", either_url, settings=SETTINGS, setup=setup) as there:
        yield there


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """The folder of a database without a service."""
    made = DataFolder(tmp_path)
    made.create()
    return made


@pytest.mark.parametrize("either_url", ["postgresql"], indirect=True)
def test_an_organization_is_deleted_while_a_run_works(made: Deployment, tmp_path: Path) -> None:
    """The run's agent is stopped and nothing is pushed.

    Its mails, logs, mirrors and queue entries go, another's stay.
    """
    folder = DataFolder(made.machine("first"))
    node = made.begin("serve", "--port", "0")
    client, other = made.client(node), Api(node, made.organizations[1])
    theirs, done, web = other.start("write it", "api"), client.start("write it"), client.start("write", "acme/web")
    assert {client.ended(done)["status"], client.ended(web)["status"], other.ended(theirs)["status"]} == {"completed"}
    child = client.post("/external/organizations", {"email": "a@customer.example"}).json()
    made.admin("invitation", "send", "b@customer.example", "--org", "acme")
    working = client.start(f"wait {tmp_path / 'gate'}")
    eventually(lambda: any((folder.work).glob("*/task.json")), "a run works", COLD_START_S)
    refused = CliRunner().invoke(
        main, ["org", "delete", "acme", "--yes", "--data-dir", str(folder.root)], env=made.environment
    )
    (folder.sessions / done / "home").mkdir(parents=True)
    (folder.caches / made.organization["id"] / "of-an-agent").mkdir(parents=True)
    deleted = made.admin("org", "delete", "acme", "--force", "--yes")
    mirrors = [path.name for path in folder.mirrors.glob("*.git")]

    assert "acme has 1 active run:" in refused.stderr
    assert deleted["state"] == "deleted"
    branches = {one["branch"] for one in deleted["left_on_code_hosts"]["branches"]}
    assert len(branches) == 2, "the run at work pushed none"
    assert traces(made.database, folder, done, web, working) == []
    left = traces(made.database, folder, made.organization["id"])
    assert [one for one in left if child["organization_id"] not in one] == [], "a child keeps the id of its creator"
    assert client.get("/external/runs").status_code == 401
    assert other.run(theirs)["status"] == "completed"
    assert "scribe at work" in made.admin("run", theirs, "--log")["turns"][0]["log"]
    assert len(mirrors) == 1, "the repository that another organization works on as well"
    assert other.ended(other.start("write again", "api"))["status"] == "completed"


@pytest.mark.parametrize("either_url", ["sqlite"], indirect=True)
def test_a_killed_deletion_completes_at_the_next_start(made: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right confirmation nothing is deleted; the remaining branch is named."""
    folder = DataFolder(made.machine("first"))
    node = made.begin("serve", "--port", "0")
    client = made.client(node)
    run_id, kept = client.start("write it"), client.start("write more")
    branch, _ = (client.ended(one)["branch_name"] for one in (run_id, kept))
    arguments = ["run", "delete", run_id, "--data-dir", str(folder.root)]
    asked = [
        CliRunner().invoke(main, arguments, input=typed, env=made.environment)
        for typed in ("", f"{kept}\n", f"{run_id}\n", "")
    ]
    left = traces(made.database, folder, run_id)
    listed = [one["run_id"] for one in client.runs()]
    log = made.admin("run", kept, "--log")["turns"][0]["log"]
    node.kill()
    # The command only executes its first transaction.
    with monkeypatch.context() as patch:
        patch.setattr("service.execution.retention.complete_deletions", lambda *_: 1)
        deleted = made.admin("org", "delete", "acme", "--yes")
    before = traces(made.database, folder, kept)
    made.begin("serve", "--port", "0")

    assert [one.exit_code for one in asked] == [2, 2, 0, 2], [one.output for one in asked]
    assert f"stays on the code host: branch {branch} of github:acme/api" in asked[2].stdout
    assert "there is no run" in asked[3].stderr
    assert (left, listed, bool(log)) == ([], [kept], True)
    assert (deleted["state"], bool(before)) == ("deleting", True)
    eventually(lambda: not traces(made.database, folder, kept, made.organization["id"]), "the organization is gone")


class Killed(BaseException):
    """The process is killed here."""


def an_organization(database: Database, folder: DataFolder, slug: str, url: str) -> tuple[str, list[str]]:
    """Make an organization with data everywhere."""
    now = now_micros()
    owner, made = organization(database, slug), [accepted(database, slug, url=url).id for _ in range(3)]
    with database.write() as connection:
        tokens.create(connection, owner, scopes=("admin",), alias=None, now=now)
        invitations.invite(connection, owner, "a@b.example", now)
        repositories.save(connection, owner, Repository("api", "github", "acme/api", url), now)
        events.add_endpoint(connection, owner, f"https://hooks.example/{owner}", events.TYPES, (), now)
        for run_id in made:
            turns.end(connection, run_id, 1, TurnOutcome("completed"), now)
    for run_id in made:
        folder.turn_file(run_id, 1, "log").parent.mkdir(parents=True)
        folder.turn_file(run_id, 1, "log").write_text(run_id, "utf-8")
        (folder.work / f"dead.{run_id}-1-1" / "tree").mkdir(parents=True)
    (folder.outbox / f"{owner}.eml").write_text(owner, "utf-8")
    return owner, made


@BOTH
def test_an_interrupted_deletion_is_completed(
    database: Database, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start completes it, even in the middle of the rows.

    An organization with the same repository keeps its data.
    """
    monkeypatch.setattr(deletions, "BATCH", 2)
    kept, kept_runs = an_organization(database, folder, "kept", "/srv/both.git")
    write = Database.write
    for cuts in count():
        owner, its_runs = an_organization(database, folder, f"gone-{cuts}", "/srv/both.git")
        with database.write() as connection:
            deletions.begin_organization(connection, owner, now_micros())
        calls = iter(range(cuts))

        @contextlib.contextmanager
        def cut(self: Database, calls: Iterator[int] = calls) -> Iterator[sa.Connection]:
            if next(calls, None) is None:
                raise Killed
            with write(self) as connection:
                yield connection

        with monkeypatch.context() as patch:
            patch.setattr(Database, "write", cut)
            try:
                complete_deletions(database, folder, now_micros)
            except Killed:
                is_cut = True
            else:
                is_cut = False
        assert complete_deletions(database, folder, now_micros) == 0
        assert traces(database, folder, owner, *its_runs) == [], cuts
        if not is_cut:
            break

    assert cuts >= 5
    assert all(len(traces(database, folder, one)) >= 3 for one in kept_runs)
    with database.read() as connection:
        assert deletions.noted_deletions(connection, "mirror") == []
        assert organizations.by_id(connection, kept) is not None
        assert len(tokens.of(connection, kept)) == 1


def test_a_working_workers_files_are_kept_until_it_ends(database: Database, folder: DataFolder) -> None:
    """The run's log and workspace stay until the worker is gone."""
    _, (run_id, *_) = an_organization(database, folder, "gone", "/srv/api.git")
    alive = Workspaces(folder, "alive")
    (folder.work / f"alive.{run_id}-1-1").mkdir()
    with database.write() as connection:
        deletions.delete_runs(connection, [run_id], now_micros())
    held = complete_deletions(database, folder, now_micros)
    kept = folder.turn_file(run_id, 1, "log").exists()
    alive.close()

    assert (held, kept) == (1, True)
    assert complete_deletions(database, folder, now_micros) == 0
    assert traces(database, folder, run_id) == []


def test_deleted_data_is_overwritten_in_the_file(database: Database, folder: DataFolder) -> None:
    """SQLite keeps no copy of it in free pages, whatever its build options."""
    owner, its_runs = an_organization(database, folder, "gone", "/srv/api.git")
    with database.write() as connection:
        deletions.begin_organization(connection, owner, now_micros())
        audit.record(connection, "operator:me@here", "organization.delete", now_micros(), target=owner)
    complete_deletions(database, folder, now_micros)
    before = folder.database_file.read_bytes()
    with database.write() as connection:
        delete(connection, schema.audit)
        deletions.forget(connection, now_micros())
    after = folder.database_file.read_bytes()

    assert owner.encode() in before
    assert [one for one in (owner, *its_runs) if one.encode() in after] == []


@BOTH
def test_an_inactive_organization_gets_no_run(database: Database, folder: DataFolder) -> None:
    """A request that was let in a moment before gets no run or repository; PostgreSQL would fail on a constraint."""
    owner = organization(database)
    with database.write() as connection:
        deletions.begin_organization(connection, owner, now_micros())

    for _ in range(2):
        with database.write() as connection, pytest.raises(InactiveOrganizationError):
            runs.accept(connection, order(owner), now_micros())
        complete_deletions(database, folder, now_micros)
    with database.write() as connection, pytest.raises(InactiveOrganizationError):
        repositories.save(connection, owner, Repository("api", "github", "acme/api", "/srv/api.git"), now_micros())


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_other_machines_remove_their_copies(database: Database, folder: DataFolder, tmp_path: Path) -> None:
    """PostgreSQL remembers a deletion; each data folder is cleaned when its worker starts, and once an hour."""
    second = DataFolder(tmp_path / "second")
    second.create()
    owner, its_runs = an_organization(database, folder, "gone", "/srv/gone.git")
    second.turn_file(its_runs[0], 1, "log").parent.mkdir(parents=True)
    with database.write() as connection:
        deletions.begin_organization(connection, owner, now_micros())
    complete_deletions(database, folder, now_micros)
    left = traces(database, second, its_runs[0])
    clear_folder(database, second)

    assert left == [str(second.runs / its_runs[0])]
    assert traces(database, second, its_runs[0]) == []


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_turn_deleted_while_it_ends_leaves_nothing(database: Database, folder: DataFolder) -> None:
    """The queue deletes outputs before turns, and a worker may write an output in between."""
    _, (run_id, *_) = an_organization(database, folder, "gone", "/srv/gone.git")
    begins = "INSERT INTO dbos.workflow_status (workflow_uuid, status, created_at, updated_at, priority)"
    ends = "UPDATE dbos.workflow_status SET status = 'SUCCESS' WHERE workflow_uuid = :turn"
    turn = {"turn": f"{run_id}:1"}
    with database.write() as connection:
        deletions.delete_runs(connection, [run_id], now_micros())
        connection.execute(sa.text(f"{begins} VALUES (:turn, 'PENDING', 1, 1, 0)"), turn)
    with ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            connection.execute(sa.text(ends), turn)
            connection.execute(sa.text("INSERT INTO dbos.workflow_output VALUES (:turn, 'null', NULL, 1)"), turn)
            deleting = pool.submit(complete_deletions, database, folder, now_micros)
            waits = sa.text("SELECT 1 FROM pg_locks WHERE NOT granted")
            eventually(lambda: bool(connection.execute(waits).all()), "the deletion waits")
        deleting.result()

    assert traces(database, folder, run_id) == []
