"""The queue's history: what DBOS remembers of turns that came to their end, until somebody lets it forget them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import sqlalchemy as sa

from service.clock import rfc3339
from service.execution.queue import WORKFLOW
from service.store.database import Database, DatabaseError

if TYPE_CHECKING:
    from dbos import DBOSClient

_TABLE: Final = "workflow_status"
_SCHEMA: Final = "dbos"


@dataclass(frozen=True, slots=True)
class Entry:
    """One turn, as the queue names it."""

    workflow_id: str

    @property
    def run_id(self) -> str:
        """The run whose turn it is."""
        return self.workflow_id.rpartition(":")[0]


class QueueHistory:
    """A context with the queue's history in hand; empty where no worker has ever been."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._client: DBOSClient | None = None

    def __enter__(self) -> Self:
        schema = None if self._database.is_sqlite else _SCHEMA
        if sa.inspect(self._database.engine).has_table(_TABLE, schema=schema):
            from dbos import DBOSClient

            logging.getLogger("dbos").setLevel(logging.WARNING)
            url = self._database.url.render_as_string(hide_password=False)
            # A pool of one: whoever prunes has one thing at a time to ask.
            self._client = DBOSClient(
                system_database_url=url, system_database_pool_size=1, retry_connection_errors=False
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            self._client.destroy()

    def ended(self, before: int, skip: int, limit: int) -> list[Entry]:
        """Return entries that ended before an instant (microseconds), oldest first, after the first `skip`.

        Raises:
            DatabaseError: The queue's tables are not those of this release.
        """
        if self._client is None:
            return []
        until = rfc3339(before)
        try:
            found = self._client.list_workflows(
                name=WORKFLOW, completed_before=until, offset=skip, limit=limit, load_input=False, load_output=False
            )
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
            raise DatabaseError(f"the queue cannot be read: {error.orig}; see to: runwarden service migrate") from error
        return [Entry(one.workflow_id) for one in found]

    def forget(self, entries: Sequence[Entry]) -> None:
        """Remove entries with their steps, in one transaction."""
        if self._client is not None and entries:
            self._client.delete_workflows([entry.workflow_id for entry in entries])
