"""The doorbell: accepting a turn rings it, and every worker on the database hears it (PostgreSQL)."""

import logging
import threading
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

_CHANNEL: Final = "runwarden_turns"
_POLL_S: Final = 5.0
_RETRY_S: Final = 2.0
_logger = logging.getLogger(__name__)


def ring(connection: sa.Connection) -> None:
    """Tell all workers, when this transaction commits, that a turn waits; on SQLite the worker polls."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"NOTIFY {_CHANNEL}"))


class DoorbellListener:
    """A thread that listens on a connection of its own and calls `on_ring` at each ring."""

    def __init__(self, url: sa.URL, on_ring: Callable[[], None]) -> None:
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._on_ring = on_ring
        self._ended = threading.Event()
        threading.Thread(target=self._listen, name="doorbell", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._ended.set()

    def _listen(self) -> None:
        import psycopg

        while not self._ended.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"LISTEN {_CHANNEL}")
                    # A ring from before the connection listened would be missed.
                    self._on_ring()
                    while not self._ended.is_set():
                        for _ in connection.notifies(timeout=_POLL_S, stop_after=1):
                            self._on_ring()
            except psycopg.Error as error:
                _logger.warning("the doorbell does not work (%s); until it does, turns wait for the next round", error)
                self._ended.wait(_RETRY_S)
