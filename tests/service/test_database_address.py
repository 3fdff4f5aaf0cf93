"""Addresses of PostgreSQL: several hosts, and a connection pooler in between."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from service.cli import main
from service.settings import DataFolder
from service.store.database import Database, DatabaseError
from tests.lab import free_port
from tests.service.conftest import Api
from tests.service.deployment import deployment
from tests.service.postgres import USER, Cluster
from tests.service_process import command
from tests.waiting import eventually

UNBOXED = '[execution]\nsandbox = "none"\n'


def test_an_address_is_read_as_libpq_reads_it() -> None:
    """Each host has its own port, and of several hosts the one that can be written to is used.

    What cannot be read is refused with the two forms that it may have.
    """
    for address, host, port in (
        ("postgresql://u:p%2Cw@h1:1,h2:2/name", "h1,h2", "1,2"),
        ("postgres://u:p%2Cw@h1,h2:5/name?sslmode=require", "h1,h2", ",5"),
        ("postgresql+psycopg://u:p%2Cw@[::1]:1,h2/name?target_session_attrs=any", "::1,h2", "1,"),
        ("postgresql://u:p,w@h1:1/name", "h1", "1"),
    ):
        with contextlib.closing(Database(address)) as database:
            dialect = database.url.get_dialect()()
            found = dialect.create_connect_args(database.url)[1]
            shown = database.url.render_as_string(hide_password=True)

        assert (found["host"], str(found["port"])) == (host, port)
        assert (found["user"], found["password"], found["dbname"]) == ("u", "p,w", "name")
        asked = "any" if "any" in address else "read-write"
        assert found.get("target_session_attrs", "read-write") == asked
        assert "p,w" not in shown
    for address in ("postgresql://u@h1:x,h2:2/name", "postgresql://u@h:1,i:2/n?nope=1", "mysql://u@h1:1,h2:2/name"):
        with pytest.raises(DatabaseError, match="must read postgresql://user@host/name, or postgresql://user@host1"):
            Database(address)


POOLER = """
[databases]
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 100
"""


@pytest.fixture
def pooled(postgres: Cluster, postgres_url: str) -> Iterator[Callable[[str], str]]:
    """`pooled("session")` starts a PgBouncer in that mode in front of the database, and returns its address."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed; on Debian: apt-get install pgbouncer")
    with contextlib.ExitStack() as started:

        def begin(mode: str) -> str:
            port = free_port()
            file = postgres.folder / f"pgbouncer-{port}.ini"
            file.write_text(POOLER.format(server=postgres.port, user=USER, port=port, mode=mode), "utf-8")
            file.chmod(0o644)
            # Like PostgreSQL, it does not run as root.
            owner = postgres.folder.stat().st_uid
            log = started.enter_context(file.with_suffix(".log").open("wb"))
            process = subprocess.Popen(
                [program, str(file)], stdout=log, stderr=log, user=owner if not os.geteuid() else None
            )
            started.callback(process.wait, 30)
            started.callback(process.terminate)
            url = postgres_url.replace(f":{postgres.port}/", f":{port}/")
            eventually(lambda: answers(url), "PgBouncer answers", saw=file.with_suffix(".log").read_text)
            return url

        yield begin


def answers(url: str) -> bool:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)
    return False


def test_a_deployment_works_behind_a_pooler_that_keeps_sessions_and_a_host_that_is_down(
    pooled: Callable[[str], str], tmp_path: Path
) -> None:
    """The first host does not answer; API, worker and queue use the second, and a notice wakes the worker.

    That one is PgBouncer in session mode.
    """
    url = pooled("session").replace("@", f"@127.0.0.1:{free_port()},")
    with deployment(tmp_path / "nodes", url, settings=f"{UNBOXED}look_s = 600\n") as nodes:
        serving = nodes.api("api")
        nodes.begin("worker", machine="worker")
        api = Api(serving, nodes.organization)

        assert api.ended(api.start("nothing"))["status"] == "completed"


def test_a_pooler_that_changes_sessions_is_refused(pooled: Callable[[str], str]) -> None:
    """PgBouncer in its other modes: settings of a connection and LISTEN would not hold."""
    for mode, reason in (("transaction", "pool_mode = session"), ("statement", "statement pooling")):
        with contextlib.closing(Database(pooled(mode))) as database, pytest.raises(DatabaseError, match=reason):
            database.migrate()


def test_a_command_for_another_database_than_the_service_s_is_refused(tmp_path: Path) -> None:
    """It would fill an SQLite file that nobody reads; `apply` prints the database that it wrote to."""
    file = tmp_path / "setup.toml"
    file.write_text('[[agents]]\nname = "mine"\nargv = ["true"]\n')
    folder = DataFolder(tmp_path / "data")
    made = command(folder.root, "apply", str(file))
    folder.database_file.unlink()
    folder.note_database("postgresql+psycopg://db.example/runwarden")
    given = ["apply", str(file), "--data-dir", str(folder.root)]
    done = CliRunner().invoke(main, given)

    assert made["database"] == f"sqlite:///{folder.database_file}"
    assert done.exit_code == 2
    assert "uses the database postgresql+psycopg://db.example/runwarden: set RUNWARDEN_SERVICE_DATABASE" in done.stderr
    assert not folder.database_file.exists()
