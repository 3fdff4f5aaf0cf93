"""The doorbell wakes the workers when work is accepted; a ring may get lost, since workers also poll."""

import contextlib
import hashlib
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from service.store.database import Database

_CHANNEL: Final = "runwarden"
_CHECK_S: Final = 20.0
"""How often the connection that listens for PostgreSQL's notifications is checked."""


class Doorbell:
    """The doorbell of one database: NOTIFY on PostgreSQL, a local datagram for SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database
        name = hashlib.sha256(bytes(Path(str(database.url.database)).resolve())).hexdigest()
        # An abstract address (Linux only) leaves no file, and disappears with its process.
        self._address = f"\0runwarden-{name[:32]}"

    def ring(self) -> None:
        """Wake every worker on the database."""
        if self._database.is_sqlite:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
                bell.settimeout(0)
                bell.sendto(b"!", self._address)
            return
        with contextlib.suppress(sa.exc.SQLAlchemyError), self._database.engine.begin() as connection:
            connection.execute(sa.text(f"NOTIFY {_CHANNEL}"))

    def answer(self, wake: Callable[[], None], closing: threading.Event) -> None:
        """Call `wake` at each ring, in a daemon thread."""
        hear = self._hear_datagrams if self._database.is_sqlite else self._hear_notifications

        def listen() -> None:
            while not closing.is_set():
                with contextlib.suppress(OSError, self._database.engine.dialect.loaded_dbapi.Error):
                    hear(wake, closing)
                closing.wait(1.0)

        threading.Thread(target=listen, name="doorbell", daemon=True).start()

    def _hear_datagrams(self, wake: Callable[[], None], closing: threading.Event) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.bind(self._address)
            while bell.recv(1) and not closing.is_set():
                wake()

    def _hear_notifications(self, wake: Callable[[], None], closing: threading.Event) -> None:
        with contextlib.closing(self._database.connect_patiently(closing)) as connection:
            connection.autocommit = True
            connection.add_notify_handler(lambda _: wake())
            connection.execute(f"LISTEN {_CHANNEL}")
            # Work may have been accepted before the LISTEN.
            wake()
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            while not closing.is_set():
                poll.poll(_CHECK_S * 1000)
                connection.execute("SELECT 1")
