"""The doorbell: who accepts work wakes the workers; a ring may be lost, as each worker also looks by itself."""

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from service.store.database import Database

_CHANNEL: Final = "runwarden"
_CHECK_S: Final = 20.0
"""How often the connection that waits for PostgreSQL's notice is checked."""
_PAUSE_S: Final = 1.0
_logger = logging.getLogger(__name__)


class Doorbell:
    """The doorbell of one database: a notice of PostgreSQL's, or a named pipe beside SQLite's file."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pipe = Path(f"{database.url.database}-bell")

    def ring(self) -> None:
        """Wake every worker on the database; errors are left to the workers' own looks."""
        if self._database.is_sqlite:
            # Without a worker nobody reads the pipe, or it is not there.
            with contextlib.suppress(OSError):
                pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                with os.fdopen(pipe, "wb", buffering=0) as bell:
                    bell.write(b"!")
            return
        with contextlib.suppress(SQLAlchemyError), self._database.engine.begin() as connection:
            connection.execute(sa.text(f"NOTIFY {_CHANNEL}"))

    def answer(self, wake: Callable[[], None], closing: threading.Event) -> None:
        """Call `wake` at each ring, in a thread that ends with the process."""
        given = (self._read_pipe, (wake,)) if self._database.is_sqlite else (self._hear_notices, (wake, closing))
        threading.Thread(target=given[0], args=given[1], name="doorbell", daemon=True).start()

    def _read_pipe(self, wake: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._pipe, 0o600)
            # Open for writing as well: without a writer the pipe would be at its end.
            pipe = os.open(self._pipe, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            _logger.warning("%s; what another process accepts waits for this worker's next look (look_s)", error)
            return
        with os.fdopen(pipe, "rb", buffering=0) as bell:
            while bell.read(1 << 16):
                wake()

    def _hear_notices(self, wake: Callable[[], None], closing: threading.Event) -> None:
        gone: Any = self._database.engine.dialect.loaded_dbapi.Error
        while not closing.is_set():
            with contextlib.suppress(gone), contextlib.closing(self._database.connect_patiently(closing)) as connection:
                connection.autocommit = True
                connection.add_notify_handler(lambda _: wake())
                connection.execute(f"LISTEN {_CHANNEL}")
                # For what was accepted while nobody listened.
                wake()
                while not closing.is_set():
                    select.select([connection], [], [], _CHECK_S)
                    connection.execute("SELECT 1")
            closing.wait(_PAUSE_S)
