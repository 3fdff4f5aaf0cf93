"""Usage: what each turn used of a model, and what a run and a day have cost so far."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from service.clock import DAY_MICROS, Clock
from service.egress.budget import Spent
from service.egress.usage import Usage
from service.store.agents import Agent
from service.store.database import Database
from service.store.schema import model_usage
from service.store.turns import Turn

_FIGURES: Final = ("requests", "input_tokens", "cached_tokens", "output_tokens", "micro_usd")


class TurnLedger:
    """Keeps what one turn uses, request by request: a worker that dies loses none of it."""

    def __init__(self, database: Database, turn: Turn, agent: Agent, clock: Clock) -> None:
        self._database = database
        self._turn = turn
        self._agent = agent
        self._clock = clock

    def spent(self) -> Spent:
        """Return what the run and the agent's day have used."""
        with self._database.read() as connection:
            return spent(connection, self._turn.run_id, self._agent.key, self._clock())

    def add(self, model: str, usage: Usage, micro_usd: int) -> None:
        """Keep what one request used."""
        access = self._agent.options.model
        provider = "" if access is None else access.provider
        with self._database.write() as connection:
            add(connection, self._turn, self._agent.key, provider, model, usage, micro_usd, self._clock())


def add(
    connection: sa.Connection,
    turn: Turn,
    agent_key: str,
    provider: str,
    model: str,
    usage: Usage,
    micro_usd: int,
    now: int,
) -> None:
    """Add one request to what a turn used of a model; tokens written to a cache count as input."""
    values = (1, usage.input + usage.cache_write, usage.cached, usage.output, micro_usd)
    figures = dict(zip(_FIGURES, values, strict=True))
    key = {"run_id": turn.run_id, "number": turn.number, "model": model, "day": now // DAY_MICROS}
    condition = [model_usage.c[name] == value for name, value in key.items()]
    more = {name: model_usage.c[name] + figure for name, figure in figures.items()}
    if not connection.execute(sa.update(model_usage).where(*condition).values(more)).rowcount:
        row = key | figures | {"agent_key": agent_key, "provider": provider}
        connection.execute(sa.insert(model_usage).values(row))


def spent(connection: sa.Connection, run_id: str, agent_key: str, now: int) -> Spent:
    """Return what a run, and an agent today (UTC), have used."""
    of_run, of_day = (
        model_usage.c.run_id == run_id,
        ((model_usage.c.day == now // DAY_MICROS) & (model_usage.c.agent_key == agent_key)),
    )
    tokens = model_usage.c.input_tokens + model_usage.c.cached_tokens + model_usage.c.output_tokens
    sums = [
        sa.select(sa.func.coalesce(sa.func.sum(what), 0)).where(where).scalar_subquery()
        for what, where in ((model_usage.c.micro_usd, of_run), (model_usage.c.micro_usd, of_day), (tokens, of_run))
    ]
    run_usd, day_usd, run_tokens = connection.execute(sa.select(*sums)).one()
    return Spent(int(run_usd), int(day_usd), int(run_tokens))


def of_turns(connection: sa.Connection, run_id: str) -> Sequence[sa.Row[tuple[object, ...]]]:
    """Return the rows of a run, by turn and model."""
    query = sa.select(model_usage).where(model_usage.c.run_id == run_id)
    return connection.execute(query.order_by(model_usage.c.number, model_usage.c.model)).all()
