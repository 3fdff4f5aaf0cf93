"""Connections to PostgreSQL on which no call waits for ever, whatever becomes of the network or of this process."""

import time
from collections.abc import Callable, Generator
from typing import Any, Final

import psycopg
import sqlalchemy as sa

_ANSWER_S: Final = 30.0
"""Longer than any statement of the service takes, and than a lock is held by a process that was frozen."""
_CONNECT_S: Final = 10
_SETTING: Final = "SET idle_in_transaction_session_timeout = '20s'"
"""The locks of a process that is frozen, or cut off from the database, are free again after this time."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that ends when the server does not answer.

    The kernel would tell after two hours, and not at all where a proxy in between lives on.
    """

    answer_s: float | None = _ANSWER_S
    """How long an answer may take; None: as long as it likes."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Wait for what `gen` sends and receives.

        Raises:
            OperationalError: There was no answer in time; the connection is closed.
        """
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = float("inf") if self.answer_s is None else time.monotonic() + self.answer_s
        try:
            wanted = next(gen)
            while True:
                # Several times a second, also when nothing has come.
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.close()
                    raise psycopg.OperationalError(f"the server did not answer within {self.answer_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def connector(url: sa.URL) -> Callable[[], BoundedConnection]:
    """Return what opens such a connection to a database."""
    args, options = url.get_dialect()().create_connect_args(url)

    def connect() -> BoundedConnection:
        connection = BoundedConnection.connect(*args, **{"connect_timeout": _CONNECT_S, **options})
        connection.execute(_SETTING)
        connection.commit()
        return connection

    return connect
