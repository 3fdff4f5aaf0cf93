"""Outages: model providers that did not answer the last request, and the turns that wait for them.

While a provider is down, one turn at a time is started to probe it; the first answer to any turn ends the outage.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from service.agents.options import ModelAccess
from service.clock import rfc3339
from service.store import agents
from service.store.database import insert_new
from service.store.schema import UNDER_WAY, WAITING, found, model_outages, runs, turns


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider that is down."""

    source: str
    """See `ModelAccess.source`."""
    shown: str
    """The provider's name for users."""
    since: int


def begin(connection: sa.Connection, access: ModelAccess, now: int) -> int:
    """Record that a provider gave no answer; return when the outage began."""
    insert_new(connection, model_outages, {"source": access.source, "shown": access.shown, "since": now})
    mine = model_outages.c.source == access.source
    return connection.execute(sa.select(model_outages.c.since).where(mine)).scalar() or now


def end(connection: sa.Connection, source: str) -> None:
    """Record that a provider answered."""
    connection.execute(sa.delete(model_outages).where(model_outages.c.source == source))


def all_of(connection: sa.Connection) -> list[Outage]:
    """Return the outages, longest first."""
    return found(connection, Outage, model_outages, order=[model_outages.c.since, model_outages.c.source])


class Sources:
    """The agents whose provider is down; agents are read only if any provider is."""

    def __init__(self, connection: sa.Connection) -> None:
        self.outages = {one.source: one for one in all_of(connection)}
        configured = agents.all_of(connection) if self.outages else []
        self._models = {(agent.organization_id, agent.name): agent.options.model for agent in configured}

    def of(self, organization_id: str, agent: str) -> str | None:
        """Return the provider that an organization's agent waits for; None if it is not down."""
        access = self._models.get((organization_id, agent), self._models.get((None, agent)))
        return access.source if access is not None and access.source in self.outages else None

    def agents_of(self, organization_id: str, sources: Iterable[str | None]) -> list[str]:
        """Return the names of an organization's agents that use one of the providers."""
        names = {name for owner, name in self._models if owner in {None, organization_id}}
        return sorted(name for name in names if self.of(organization_id, name) in {*sources})

    def waiting(self, connection: sa.Connection) -> list[tuple[Outage, int]]:
        """Return the outages, each with the number of turns that wait for it to end."""
        query = (
            sa.select(turns.c.organization_id, runs.c.agent, sa.func.count())
            .join(runs, runs.c.id == turns.c.run_id)
            .where(WAITING | UNDER_WAY)
            .group_by(turns.c.organization_id, runs.c.agent)
        )
        counted = Counter[str | None]()
        for owner, agent, number in connection.execute(query) if self.outages else ():
            counted[self.of(owner, agent)] += number
        return [(one, counted[source]) for source, one in self.outages.items()]


def clock_time(micros: int) -> str:
    """Return an instant to the minute, such as `2026-01-31 01:20 UTC`."""
    return f"{rfc3339(micros)[:16].replace('T', ' ')} UTC"
