"""The process that all services and programs of a run are forked from: a start costs what it imports."""

import multiprocessing
import os
from multiprocessing import forkserver, resource_tracker
from typing import Any, Final

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.asked",
        *("tests.service_process", "service.server", "service.setup", "service.cli.serve", "service.store.migrations"),
        *("dbos", "dbos._sys_db_sqlite", "psycopg", "alembic.command", "uvicorn.lifespan.off", "sqlite3"),
        "tests.imported",
    ]
)
# Python's own, which has no public word for a server that several processes share.
_SERVER: Final[Any] = forkserver._forkserver


def shared() -> str | None:
    """Start the fork server and return its address; None where Python lets only the process that started it ask."""
    if hasattr(_SERVER, "_forkserver_authkey"):
        return None
    _SERVER.ensure_running()
    return str(_SERVER._forkserver_address)


def share(address: str) -> None:
    """Ask the server at an address for processes, instead of importing the same for three seconds more."""
    _SERVER._forkserver_address = address
    # Each process is given the end of a pipe that holds the server alive, which another process does here.
    _SERVER._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
    _SERVER.ensure_running = resource_tracker.ensure_running
