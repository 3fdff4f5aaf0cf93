"""Maintenance and drained machines: turns at work finish there, and no other begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from service.store.schema import meta, replace_rows
from service.store.workers import Worker

_MAINTENANCE: Final = "maintenance"
_DRAIN: Final = "drain:"


@dataclass(frozen=True, slots=True)
class Pauses:
    """What keeps workers from beginning turns."""

    maintenance: str | None
    """Why no worker begins a turn, for everybody who waits; None: they do."""
    drained: dict[str, int]
    """When each machine was drained, by name: workers that started there earlier begin nothing more."""

    def holds(self, worker: Worker) -> bool:
        """Whether a worker begins no turns."""
        return self.maintenance is not None or worker.started_at <= self.drained.get(worker.host, -1)


def current(connection: sa.Connection) -> Pauses:
    """Return the present pauses."""
    condition = sa.or_(meta.c.key == _MAINTENANCE, meta.c.key.startswith(_DRAIN))
    held = {one.key: one.value for one in connection.execute(sa.select(meta.c.key, meta.c.value).where(condition))}
    drained = {key.removeprefix(_DRAIN): int(value) for key, value in held.items() if key != _MAINTENANCE}
    return Pauses(held.get(_MAINTENANCE), drained)


def begin(connection: sa.Connection, why: str) -> None:
    """Begin the maintenance, or replace its reason."""
    replace_rows(connection, meta, [{"key": _MAINTENANCE, "value": why}], [meta.c.key])


def end(connection: sa.Connection) -> None:
    """End the maintenance, if there is one."""
    connection.execute(sa.delete(meta).where(meta.c.key == _MAINTENANCE))


def drain(connection: sa.Connection, machine: str, living: Sequence[Worker]) -> None:
    """Let a machine's workers begin nothing more; those that start later do."""
    latest = str(max(one.started_at for one in living if one.host == machine))
    replace_rows(connection, meta, [{"key": f"{_DRAIN}{machine}", "value": latest}], [meta.c.key])
