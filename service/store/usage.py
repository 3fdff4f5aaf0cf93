"""Model usage: recorded for each turn, and summed over turns, runs, days and organizations."""

import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

from service.agents.options import Agent, SpendingLimits
from service.agents.prices import ListPrice, Price
from service.clock import DAY_MICROS, SECOND_MICROS, Clock, Micros
from service.egress.budget import OrganizationDay, Spending
from service.egress.usage import Usage
from service.store import organizations as directory
from service.store import outages
from service.store.database import Database
from service.store.rows import insert_new, optional_filter, update
from service.store.schema import FIGURES, model_usage, organizations, runs, usage_days
from service.store.turns import Turn

Grouping = Literal["organization", "repository", "agent", "day"]
MICROS_PER_USD: Final = 1_000_000


def _sums(table: sa.Table, *names: str) -> Sequence[sa.ColumnElement[Any]]:
    sums = (sa.func.coalesce(sa.func.sum(table.c[name]), 0).label(name) for name in (*names, *FIGURES))
    return (sa.func.min(table.c.list_prices_of).label("list_prices_of"), *sums)


_SUMS: Final = _sums(model_usage)
_DAY_SUMS: Final = _sums(usage_days, "runs", "turns")


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """Model usage in requests, tokens and millionths of a dollar."""

    requests: int
    input_tokens: int
    cached_tokens: int
    """Input tokens that the provider read from its cache; `input_tokens` does not include them."""
    output_tokens: int
    micro_usd: int
    """The cost of the requests with a known price."""
    unpriced_requests: int = 0
    list_prices_of: str | None = None
    """The date (`2026-01-31`) of the oldest list price in the cost; None if only the operator's prices are."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.cached_tokens + self.output_tokens

    def document(self) -> dict[str, object]:
        """Return the figures as the API and the command line show them; the cost is null if no price is known."""
        document = asdict(self)
        cost_usd = document.pop("micro_usd") / MICROS_PER_USD
        last = {name: document.pop(name) for name in ("unpriced_requests", "list_prices_of")}
        return document | {"cost_usd": None if self.unpriced_requests == self.requests else cost_usd} | last


NOTHING: Final = UsageFigures(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ModelUse:
    """The usage of one answered request from an agent to a model."""

    agent_key: str
    provider: str
    model: str
    usage: Usage
    micro_usd: int | None
    """The cost; None if the price is not known."""
    list_prices_of: str | None = None
    asked_at: float = 0
    """The time of the request in seconds since 1970; 0 if not known."""


@dataclass(eq=False)
class TurnMeter:
    """Stores a turn's usage after each request, so that nothing is lost if the worker dies.

    All methods wait while the database is down.
    """

    _database: Database
    _turn: Turn
    _agent: Agent
    _clock: Clock
    trace: Callable[[ModelUse], None] = lambda _: None
    _down_since: int | None = None

    def spent(self) -> Spending:
        def read() -> Spending:
            with self._database.read() as connection:
                return read_spending(connection, self._turn.run_id, self._agent.key, self._clock())

        return self._database.retry(read)

    def add(self, model: str, usage: Usage, price: Price | None, asked_at: float = 0) -> None:
        access = self._agent.options.model
        provider = "" if access is None else access.provider
        price_date = price.looked_up.isoformat() if isinstance(price, ListPrice) else None
        use = ModelUse(self._agent.key, provider, model, usage, usage.micro_usd(price), price_date, asked_at)

        def write() -> None:
            with self._database.write() as connection:
                add(connection, self._turn, use, self._clock())
                if access is not None:
                    outages.end(connection, access.source)

        self._database.retry(write)
        self._down_since = None
        self.trace(use)

    def away_s(self) -> float | None:
        """Store that the provider gave no answer; return for how many seconds no turn got one (None: one did)."""
        access = self._agent.options.model
        if access is None:
            return None
        since = self._database.retry(lambda: self._database.transact(outages.begin, access, self._clock()))
        self._down_since = self._down_since or since
        if self._down_since == since:
            return (self._clock() - since) / SECOND_MICROS
        return None


def add(connection: sa.Connection, turn: Turn, use: ModelUse, now: Micros) -> None:
    """Add one request to a turn's usage and to the day's; tokens written to a cache count as input."""
    tokens = {"input_tokens": use.usage.input + use.usage.cache_write, "cached_tokens": use.usage.cached}
    figures = tokens | {"output_tokens": use.usage.output, "micro_usd": use.micro_usd or 0}
    figures |= {"requests": 1, "unpriced_requests": int(use.micro_usd is None)}
    # Locked, since several requests of a turn may be answered at the same time, and only one is the first.
    place = sa.select(*(runs.c[name] for name in ("organization_id", "platform", "path_key", "path")))
    run = connection.execute(place.where(runs.c.id == turn.run_id).with_for_update(key_share=True)).one()
    numbers = {*connection.scalars(sa.select(model_usage.c.number).where(model_usage.c.run_id == turn.run_id))}
    firsts = {"runs": int(not numbers), "turns": int(turn.number not in numbers)}
    key = {"run_id": turn.run_id, "number": turn.number, "model": use.model, "agent_key": use.agent_key}
    once = {"agent": use.agent_key.partition("/")[2], "list_prices_of": use.list_prices_of}
    _add(connection, model_usage, key, once | {"provider": use.provider}, figures)
    cell = {"organization_id": run.organization_id, "day": now // DAY_MICROS, "agent_key": use.agent_key}
    cell |= {"platform": run.platform, "path_key": run.path_key}
    _add(connection, usage_days, cell, once | {"path": run.path}, firsts | figures)


def _add(
    connection: sa.Connection, table: sa.Table, key: dict[str, Any], once: dict[str, Any], figures: dict[str, int]
) -> None:
    if not insert_new(connection, table, key | once | figures):
        more: dict[str, object] = {name: table.c[name] + figure for name, figure in figures.items()}
        dated, column = once["list_prices_of"], table.c.list_prices_of
        if dated is not None:
            more["list_prices_of"] = sa.case((column < dated, column), else_=dated)
        update(connection, table, *(table.c[name] == value for name, value in key.items()), **more)


def read_spending(connection: sa.Connection, run_id: str, agent_key: str, now: Micros) -> Spending:
    """Return a run's usage, and today's usage (UTC) of its agent and its organization."""
    of_run = model_usage.c.run_id == run_id
    of_day = (usage_days.c.day == now // DAY_MICROS) & (usage_days.c.agent_key == agent_key)
    tokens = model_usage.c.input_tokens + model_usage.c.cached_tokens + model_usage.c.output_tokens
    sums = [
        sa.select(sa.func.coalesce(sa.func.sum(column), 0)).where(where).scalar_subquery()
        for column, where in ((model_usage.c.micro_usd, of_run), (usage_days.c.micro_usd, of_day), (tokens, of_run))
    ]
    run_usd, day_usd, run_tokens = connection.execute(sa.select(*sums)).one()
    day, owner = OrganizationDay(), directory.of_run(connection, run_id)
    if owner is not None and (owner.day_usd is not None or owner.day_tokens is not None):
        today = now // DAY_MICROS
        used = totals(connection, None, owner.id, today, today)[0].figures
        day = OrganizationDay(used.micro_usd, used.tokens, owner.day_usd, owner.day_tokens)
    return Spending(int(run_usd), int(day_usd), int(run_tokens), day)


def day_shares(connection: sa.Connection, now: Micros) -> list[tuple[str, str, float]]:
    """Return organization (slug), kind (`usd`, `tokens`) and used share of each daily budget, highest share first."""
    limits = (organizations.c.slug, organizations.c.day_usd, organizations.c.day_tokens)
    has_limit = sa.or_(organizations.c.day_usd.is_not(None), organizations.c.day_tokens.is_not(None))
    limited = connection.execute(sa.select(*limits).where(has_limit)).all()
    of_today = totals(connection, "organization", None, now // DAY_MICROS, now // DAY_MICROS)
    used = {total.subject["organization"]: total.figures for total in of_today}
    shares = []
    for slug, usd, tokens in limited:
        of_day = used.get(slug, NOTHING)
        if usd is not None:
            shares.append((slug, "usd", of_day.micro_usd / MICROS_PER_USD / usd))
        if tokens is not None:
            shares.append((slug, "tokens", of_day.tokens / tokens))
    return sorted(shares, key=lambda share: (-share[2], share))


def of_turns(connection: sa.Connection, run_id: str) -> defaultdict[int, dict[str, UsageFigures]]:
    """Return the usage of each agent in each turn of a run, by number and agent."""
    key = (model_usage.c.number, model_usage.c.agent)
    by_turn = defaultdict[int, dict[str, UsageFigures]](dict)
    for row in connection.execute(sa.select(*key, *_SUMS).where(model_usage.c.run_id == run_id).group_by(*key)):
        by_turn[row.number][row.agent] = _figures(row)
    return by_turn


def add_up(parts: Collection[UsageFigures]) -> UsageFigures:
    """Return the sum of usages; its list prices are as old as the oldest of theirs."""
    dates = [part.list_prices_of for part in parts if part.list_prices_of]
    sums = {name: sum(getattr(part, name) for part in parts) for name in FIGURES}
    return UsageFigures(**sums, list_prices_of=min(dates, default=None))


def run_share(used: UsageFigures, budget: SpendingLimits) -> float | None:
    """Return the used share of a run's budget, for the limit that is closest; None if there is no budget."""
    limits = ((budget.run_usd, used.micro_usd / MICROS_PER_USD), (budget.run_tokens, used.tokens))
    return max((spent / most for most, spent in limits if most is not None), default=None)


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The usage of one organization, repository, agent or day, of an agent in a day, or the grand total."""

    subject: dict[str, Any]
    """`organization` (slug), `repository`, `agent` and `day` (since 1970), as grouped; empty for the grand total."""
    runs: int
    turns: int
    figures: UsageFigures


def totals(
    connection: sa.Connection,
    by: Grouping | Literal["agent and day"] | None,
    organization_id: str | None = None,
    first_day: int | None = None,
    last_day: int | None = None,
) -> list[UsageTotal]:
    """Return the usage grouped by `by`; None for one grand total. Days are since 1970 (UTC), both included.

    A run, and a turn, counts once: on the day, and for the agent, of its first request to a model.
    """
    slug, platform = organizations.c.slug, usage_days.c.platform
    subjects: dict[str | None, dict[str, sa.ColumnElement[Any]]] = {
        "organization": {"organization": slug},
        "repository": {"organization": slug, "repository": platform + ":" + sa.func.max(usage_days.c.path)},
        "agent": {"organization": slug, "agent": usage_days.c.agent},
        "day": {"day": usage_days.c.day},
        "agent and day": {"organization": slug, "agent": usage_days.c.agent, "day": usage_days.c.day},
        None: {},
    }
    subject = subjects[by]
    # Paths are compared regardless of case, as code hosts do, and shown as written.
    key = (slug, platform, usage_days.c.path_key) if by == "repository" else tuple(subject.values())
    query = sa.select(*(column.label(name) for name, column in subject.items()), *_DAY_SUMS)
    query = query.join_from(usage_days, organizations, organizations.c.id == usage_days.c.organization_id).where(
        optional_filter(usage_days.c.organization_id, organization_id),
        optional_filter(usage_days.c.day, first_day, operator.ge),
        optional_filter(usage_days.c.day, last_day, operator.le),
    )
    return [
        UsageTotal({name: row._mapping[name] for name in subject}, int(row.runs), int(row.turns), _figures(row))
        for row in connection.execute(query.group_by(*key).order_by(*key))
    ]


def _figures(row: sa.Row[Any]) -> UsageFigures:
    # PostgreSQL's sums are decimals.
    return UsageFigures(**{name: int(row._mapping[name]) for name in FIGURES}, list_prices_of=row.list_prices_of)
