"""Connections to PostgreSQL on which no call waits forever, even if the network or this process fails."""

import select
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from sqlalchemy import event

_ANSWER_S: Final = 30.0
"""Longer than any statement of the service takes, and longer than a frozen process can hold a lock."""
_CONNECT_S: Final = 10
_PINGED_AFTER_S: Final = 5.0
"""A connection that was idle for longer is tried before it is used: a firewall may have forgotten it."""
_SETTING: Final = "SET idle_in_transaction_session_timeout = '20s'"
"""Releases the locks of a process that is frozen or cut off from the database after this time."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes when the server does not answer.

    The kernel would notice after two hours, and never if a proxy in between keeps the connection open.
    """

    answer_s: float | None = _ANSWER_S
    """How long an answer may take; None for no limit."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Run the exchange of `gen`; without an answer in time, the connection closes (`OperationalError`)."""
        return super().wait(self._with_deadline(gen), *args, **options)

    def _with_deadline(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = float("inf") if self.answer_s is None else time.monotonic() + self.answer_s
        try:
            wanted = next(gen)
            while True:
                # Resumes several times a second, even if nothing has arrived.
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.close()
                    raise psycopg.OperationalError(f"the server did not answer within {self.answer_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def connector(url: sa.URL) -> Callable[[], BoundedConnection]:
    args, options = url.get_dialect()().create_connect_args(url)

    def connect() -> BoundedConnection:
        connection = BoundedConnection.connect(*args, **{"connect_timeout": _CONNECT_S, **options})
        connection.execute(_SETTING)
        connection.commit()
        return connection

    return connect


def replace_lost(engine: sa.Engine) -> None:
    """Let an engine replace the connections that were lost while they were idle."""

    @event.listens_for(engine, "checkin")
    def note_idle(_connection: object, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check(connection: psycopg.Connection[Any], record: Any, _proxy: object) -> None:
        if (idle_since := record.info.get("idle_since")) is None:
            # It is new: SQLAlchemy opens three in a row at most, and then raises an error that no caller expects.
            return
        try:
            # `pool_pre_ping` would ask each time. An idle server sends nothing, except that it closes the connection.
            socket = select.poll()
            socket.register(connection, select.POLLIN)
            is_lost = bool(socket.poll(0))
            if not is_lost and time.monotonic() - idle_since > _PINGED_AFTER_S:
                engine.dialect.do_ping(connection)  # type: ignore[arg-type]  # psycopg's connection is one of DBAPI
        except (psycopg.Error, OSError):
            is_lost = True
        if is_lost:
            raise sa.exc.InvalidatePoolError
