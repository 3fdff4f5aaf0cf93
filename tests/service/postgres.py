"""A real PostgreSQL: a cluster of one's own in a temporary folder, on loopback, owned by an unprivileged user."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.lab import free_port

USER = "runwarden"


class NoPostgresError(Exception):
    """PostgreSQL cannot be had here; the text says why."""


@dataclass(frozen=True)
class Cluster:
    """A running server."""

    programs: Path
    folder: Path
    port: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, template: str = "template1") -> str:
        """Create a database, empty or as its template is, and return its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            # Before version 15 the only way, and since then half the work of the usual one where nothing is synced.
            strategy = "STRATEGY FILE_COPY" if connection.info.server_version >= 15_00_00 else ""
            connection.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" {strategy}')
        return self.url(database)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        # fsync is off: the machine does not lose power in a test, and a killed server needs no disk to recover.
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
        log = str(self.folder / "log")
        self._control("-w", "-t", "60", "-l", log, "-o", settings, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` breaks every connection, `immediate` is a crash."""
        self._control("-w", "-t", "60", "-m", mode, "stop")

    def _control(self, *arguments: str) -> None:
        _run([str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), *arguments], self.folder)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Make a cluster, start it, and leave nothing of it.

    Raises:
        NoPostgresError: The programs are missing, or there is no user to run them as.
    """
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="runwarden-postgres-"))
    try:
        if os.geteuid() == 0:
            owner = _owner()
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = str(folder / "data")
        initdb = [str(programs / "initdb"), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]
        _run([*initdb, "--locale=C.UTF-8"], folder)
        made = Cluster(programs, folder, free_port())
        made.start()
        try:
            yield made
        finally:
            made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    found = str(places[-1]) if places else shutil.which("initdb")
    if found is None:
        raise NoPostgresError("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    return Path(found).resolve().parent


def _owner() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgresError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def _run(argv: list[str], folder: Path) -> None:
    owner = _owner() if os.geteuid() == 0 else None
    done = subprocess.run(
        argv,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(folder)},
        user=None if owner is None else owner.pw_uid,
        group=None if owner is None else owner.pw_gid,
        extra_groups=None if owner is None else [],
        stdin=subprocess.DEVNULL,
        # Not a pipe: the server would hold it open.
        stdout=(folder / "output").open("ab"),
        stderr=subprocess.STDOUT,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{argv[0]}: {(folder / 'output').read_text('utf-8', 'replace')[-2000:]}"
