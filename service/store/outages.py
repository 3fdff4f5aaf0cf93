"""Outages: model providers that did not answer the last request, and the turns that wait for them.

While a provider is down, one turn at a time is started to probe it; the first answer to any turn ends the outage.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from service.agents.options import REVIEWER, AgentOptions, ModelAccess
from service.clock import SECOND_MICROS, Micros, rfc3339
from service.store import agents
from service.store.rows import delete, insert_new, records_of
from service.store.runs import Run
from service.store.schema import IS_RUNNING, TURN_AGENT, WAITING, model_outages, runs, turns


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider that is down."""

    source: str
    """The provider, as `ModelAccess.source` names it."""
    shown: str
    """The provider's name for users."""
    since: int

    @property
    def text(self) -> str:
        return f"waiting for {self.shown} since {clock_time(self.since)}"


def begin(connection: sa.Connection, access: ModelAccess, now: Micros) -> int:
    """Record that a provider gave no answer; return when the outage began."""
    insert_new(connection, model_outages, {"source": access.source, "shown": access.shown, "since": now})
    is_same = model_outages.c.source == access.source
    return connection.scalar(sa.select(model_outages.c.since).where(is_same)) or now


def end(connection: sa.Connection, source: str) -> None:
    """Record that a provider answered."""
    delete(connection, model_outages, source=source)


class ProviderOutages:
    """The agents whose provider is down; agents are read only if any provider is."""

    def __init__(self, connection: sa.Connection) -> None:
        longest_first = [model_outages.c.since, model_outages.c.source]
        down = records_of(connection, Outage, model_outages, order=longest_first)
        self._outages = {outage.source: outage for outage in down}
        configured = [REVIEWER, *agents.all_of(connection)] if self._outages else []
        self._options = {(agent.organization_id, agent.name): agent.options for agent in configured}

    def _options_of(self, organization_id: str, agent: str) -> AgentOptions | None:
        return self._options.get((organization_id, agent), self._options.get((None, agent)))

    def of(self, organization_id: str, agent: str) -> Outage | None:
        """Return the outage that an organization's agent waits for; None if its provider is not down."""
        options = self._options_of(organization_id, agent)
        access = None if options is None else options.model
        return None if access is None else self._outages.get(access.source)

    def waiting_agents(self, organization_id: str, probed: Collection[Outage | None], now: Micros) -> list[str]:
        """Return the names of an organization's agents that wait for such an outage, and have no fallback by now."""
        names = {name for owner, name in self._options if owner in {None, organization_id}}
        waiting = {name for name in names if self.of(organization_id, name) in probed}
        return sorted(name for name in waiting if self.stand_in(organization_id, name, now) is None)

    def fallback(self, organization_id: str, agent: str, unavailable: dict[str, str]) -> str | None:
        """Return the first fallback of an agent that may work; those before it are added to the unavailable ones."""
        if (options := self._options_of(organization_id, agent)) is None:
            return None
        for name in options.fallback:
            outage = self.of(organization_id, name)
            if name not in unavailable and self._options_of(organization_id, name) is not None and outage is None:
                return name
            unavailable.setdefault(name, outage.text if outage else "it is not configured")
        return None

    def stand_in(self, organization_id: str, agent: str, now: Micros) -> tuple[str, dict[str, str]] | None:
        """Return the fallback of an agent whose provider has been down for longer than it waits, and the reason."""
        options = self._options_of(organization_id, agent)
        outage = self.of(organization_id, agent)
        if options is None or outage is None or now - outage.since <= options.waits_s * SECOND_MICROS:
            return None
        unavailable = {agent: outage.text}
        name = self.fallback(organization_id, agent, unavailable)
        return None if name is None else (name, unavailable)

    def is_probed(self, connection: sa.Connection, run: Run) -> bool:
        """Whether another run has a slot and asks the provider of a run's agent."""
        query = sa.select(turns.c.organization_id, TURN_AGENT).join(runs, runs.c.id == turns.c.run_id)
        at_work = connection.execute(query.where(IS_RUNNING, runs.c.id != run.id)).all()
        return self.of(run.organization_id, run.agent) in {self.of(*row) for row in at_work}

    def waiting(self, connection: sa.Connection) -> list[tuple[Outage, int]]:
        """Return the outages, each with the number of turns that wait for it to end."""
        query = (
            sa.select(turns.c.organization_id, TURN_AGENT, sa.func.count())
            .join(runs, runs.c.id == turns.c.run_id)
            .where(WAITING | IS_RUNNING)
            .group_by(turns.c.organization_id, TURN_AGENT.element)
        )
        counted = Counter[Outage | None]()
        if self._outages:
            for owner, agent, number in connection.execute(query):
                counted[self.of(owner, agent)] += number
        return [(outage, counted[outage]) for outage in self._outages.values()]


def clock_time(micros: int) -> str:
    """Return an instant to the minute, such as `2026-01-31 01:20 UTC`."""
    return f"{rfc3339(micros)[:16].replace('T', ' ')} UTC"
