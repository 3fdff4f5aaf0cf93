"""A database that the service cannot use, or that differs from the running service's, is refused."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from service.cli import main
from service.settings import DataFolder
from service.store.database import Database, DatabaseError
from tests.lab import free_port
from tests.service.postgres import USER, Cluster
from tests.service_process import command
from tests.waiting import eventually


def test_an_address_with_several_hosts_has_sqlalchemys_form() -> None:
    """The writable host is used, the password is not shown; libpq's form and unreadable addresses are refused."""
    url = "postgres://u:p,w@/name?host=h1&host=h2:5&target_session_attrs=read-write"
    with contextlib.closing(Database(url)) as database:
        found = database.url.get_dialect()().create_connect_args(database.url)[1]

    assert (found["host"], str(found["port"]), found["target_session_attrs"]) == ("h1,h2", ",5", "read-write")
    assert (found["user"], found["password"], found["dbname"]) == ("u", "p,w", "name")
    assert "p,w" not in database.shown
    with contextlib.closing(Database("postgresql://u@h/name?application_name=a@b,c")) as database:
        assert database.url.host == "h"
    refused = ("u@h1,h2:2/name", "u:p@h1:1,h2:2/n", "h1,h2/n", "u@[::1],h2/n", "u@h1,h2/n?options=a@b", "u@h:x/n")
    for address in (*(f"postgresql://{rest}" for rest in refused), "mysql://u@h1:1,h2:2/name"):
        with pytest.raises(
            DatabaseError, match="must read postgresql://user@host/name, or, for several hosts, postgres"
        ):
            Database(address)
    with pytest.raises(DatabaseError, match="'mysql' is not a supported database; use postgresql://user@host/name"):
        Database("mysql://u@h/name")


POOLER = """
[databases]
kept = host=127.0.0.1 port={server} user={user} dbname={name} pool_mode=session
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 100
"""


def test_a_pooler_that_changes_sessions_is_refused(postgres: Cluster, postgres_url: str) -> None:
    """PgBouncer is refused in any mode except `session`, which keeps a connection's settings and LISTEN."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed; on Debian: apt-get install pgbouncer")
    port = free_port()
    file = postgres.folder / f"pgbouncer-{port}.ini"
    name = postgres_url.rpartition("/")[2]
    file.write_text(POOLER.format(server=postgres.port, user=USER, port=port, name=name), "utf-8")
    file.chmod(0o644)
    # Like PostgreSQL, it does not run as root.
    owner = None if os.geteuid() else postgres.folder.stat().st_uid
    process = subprocess.Popen([program, "--quiet", str(file)], user=owner)
    url = postgres_url.replace(f":{postgres.port}/", f":{port}/")

    def refusal() -> str:
        with contextlib.closing(Database(url)) as database, pytest.raises(DatabaseError) as refused:
            database.migrate()
        return str(refused.value)

    try:
        eventually(lambda: "pool_mode = session" in refusal(), "it is refused", saw=refusal)
        with contextlib.closing(Database(url.removesuffix(name) + "kept")) as database:
            database.migrate()
    finally:
        process.terminate()
        process.wait(30)


def test_a_command_for_another_database_is_refused(tmp_path: Path) -> None:
    """The command would fill an SQLite file that nobody reads; `apply` prints the database that it wrote to."""
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
