"""A real PostgreSQL cluster in a temporary folder, on loopback, owned by an unprivileged user."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.lab import free_port

USER = "runwarden"


class NoPostgresError(Exception):
    """PostgreSQL is not available; the text says why."""


@dataclass(frozen=True)
class Cluster:
    """A running server."""

    programs: Path
    folder: Path
    port: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, template: str = "template1") -> str:
        """Create a database, empty or as a copy of its template, and return its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            # The only way before version 15, and since then half the work of the default one if nothing is synced.
            strategy = "STRATEGY FILE_COPY" if connection.info.server_version >= 15_00_00 else ""
            connection.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" {strategy}')
        return self.url(database)

    @contextlib.contextmanager
    def temporary(self, template: str = "template1") -> Iterator[str]:
        """The address of a new database, which is dropped afterwards, since all of a run's would fill a small disk."""
        name = f"test_{secrets.token_hex(8)}"
        yield self.create(name, template)
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def start(self) -> None:
        # fsync is off: tests do not cut the power, and a killed server needs no synced disk to recover.
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
        self.run("pg_ctl", "-w", "-t", "60", "-l", str(self.folder / "log"), "-o", settings, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` breaks every connection, `immediate` is a crash."""
        self.run("pg_ctl", "-w", "-t", "60", "-m", mode, "stop")

    def run(self, program: str, *arguments: str) -> None:
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = {"user": _owner().pw_uid, "group": _owner().pw_gid, "extra_groups": []}
        # The server would keep the pipe open.
        with (self.folder / "output").open("ab") as output:
            result = subprocess.run(
                [self.programs / program, "-D", self.folder / "data", *arguments],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=120,
                **user,
            )
        text = (self.folder / "output").read_text("utf-8", "replace")
        assert result.returncode == 0, f"{program}: {text[-2000:]}"


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Create a cluster, start it, and remove it afterwards.

    Raises: NoPostgresError: The programs are missing, or there is no user to run them as.
    """
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    initdb = str(places[-1]) if places else shutil.which("initdb")
    if initdb is None:
        raise NoPostgresError("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="runwarden-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, _owner().pw_uid, _owner().pw_gid)
        server = Cluster(Path(initdb).resolve().parent, folder, free_port())
        options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8"]
        server.run("initdb", *options)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


def _owner() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgresError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
