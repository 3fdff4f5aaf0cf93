"""Metrics for Prometheus: this process counts its own requests, and reads the rest from the database at a scrape."""

import logging
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import metadata
from typing import Any, Final

import prometheus_client as prometheus
import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service import DISTRIBUTION
from service.clock import DAY_MICROS, SECOND_MICROS, Clock, Micros
from service.observability.requests import RequestRecord
from service.settings import SettingsError
from service.store import dispatch, endings, turns, usage, workers
from service.store.database import Database
from service.store.outages import ProviderOutages
from service.store.rows import unsent
from service.store.schema import CANCELLED, invitations, postings
from service.store.usage import MICROS_PER_USD, NOTHING, UsageFigures
from service.text import one_line

OTHERS: Final = "(others)"
"""The label of all organizations beyond the cap; no slug can equal it, since none has brackets."""
UNREAD: Final = "unread"
"""The route label of connections that were refused before a request had arrived."""
_ORGANIZATIONS: Final = 50
"""How many organizations have a series each: those whose turns wait longest."""
_AGENTS: Final = 50
"""How many agents have a usage series each: the first that are seen."""
_ENDINGS: Final = 50
"""How many expiring keys have a series each: the first to expire."""
_MAX_LABEL: Final = 100
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TURN_S: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_OVERLAP_MICROS: Final = 600 * SECOND_MICROS
_MAX_GAP_MICROS: Final = DAY_MICROS
"""Turns that ended longer ago than this before a scrape are not counted."""
_SHORTEST_TOKEN: Final = 16
_logger = logging.getLogger(__name__)
_DATABASE_UP_HELP: Final = "Whether the database answers and can be written."
_KEY_ENDS: Final = "Until a key expires, for those that expire within 14 days."
_OUTAGES: Final = "Turns that wait for a model's provider which gives no answer."


class ServiceMetrics(Collector):
    """The metrics of one process.

    It asks the database at each scrape, so that no value is old and none outlives its subject.
    """

    def __init__(self, database: Database, clock: Clock, worker_ttl_s: float) -> None:
        self._database = database
        self._clock = clock
        self._worker_ttl_s = worker_ttl_s
        # The times at which series began would double their number, and nothing uses them.
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
        # Not the global registry, which would also show the metrics of libraries.
        self._registry = registry = prometheus.CollectorRegistry()
        counter = partial(prometheus.Counter, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        text = "Requests answered by this process, by the template of their path."
        self._requests = counter("runwarden_http_requests", text, ("method", "route", "status"))
        text = "From a request's head to the end of its answer."
        self._durations = histogram(
            "runwarden_http_request_duration_seconds", text, ("method", "route"), buckets=_REQUEST_S
        )
        text = "Deliveries of code hosts to this process, by decision."
        self._deliveries = counter("runwarden_webhook_deliveries", text, ("platform", "result"))
        build = prometheus.Info("runwarden_build", "What runs here.", registry=registry)
        try:
            version = metadata.version(DISTRIBUTION)
        except metadata.PackageNotFoundError:
            version = "unknown"
        kind = "sqlite" if database.is_sqlite else "postgresql"
        build.info({"version": version, "python": platform.python_version(), "database": kind})
        prometheus.ProcessCollector(registry=registry)
        # In this order: at a scrape, `collect` updates the metrics that are registered after it.
        registry.register(self)
        text = "From a worker's first attempt at a turn until it finishes."
        self._lasted = histogram("runwarden_turn_duration_seconds", text, ("outcome",), buckets=_TURN_S)
        for outcome in ("completed", "failed", CANCELLED):
            # The series exists from the start, so that Prometheus sees its first increase.
            self._lasted.labels(outcome)
        text = "From the acceptance of a turn to a worker's first attempt at it."
        self._waited = histogram("runwarden_turn_wait_seconds", text, buckets=_TURN_S)
        self._began = self._read_until = clock()
        self._ended: dict[tuple[str, int], int] = {}
        """Turns that were counted, and when they ended; forgotten when they can no longer be read again."""
        labels = ("organization", "agent")
        self._tokens = counter("runwarden_model_tokens", "Tokens that models counted.", (*labels, "kind"))
        self._cost = counter("runwarden_model_cost_usd", "US dollars, at known prices.", labels)
        self._first_day = 0
        self._used: dict[tuple[str, str, int], UsageFigures] | None = None
        """The usage at the last scrape; None before the first one, since earlier usage is not counted."""
        self._named: set[tuple[str, str]] = set()

    def count_request(self, record: RequestRecord) -> None:
        method = record.method if record.method in _METHODS else "other"
        route = label(record.route)
        self._requests.labels(method, route, str(record.status or "none")).inc()
        self._durations.labels(method, route).observe(record.duration_s)

    def count_delivery(self, platform: str, result: str) -> None:
        self._deliveries.labels(platform, result).inc()

    def count_refusal(self, status: int) -> None:
        """Count a connection that was refused before a request had arrived: only its status is known."""
        self._requests.labels("other", UNREAD, str(status)).inc()

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format; this queries the database."""
        return prometheus.generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the database's figures; while it does not answer, only that it is down."""
        try:
            is_up = int(not self._database.write_fault)
            yield from [_gauge("runwarden_database_up", _DATABASE_UP_HELP, is_up), *self._ask()]
        except sa.exc.SQLAlchemyError as error:
            _logger.warning("a scrape found the database unavailable: %s", getattr(error, "orig", None) or error)
            yield _gauge("runwarden_database_up", _DATABASE_UP_HELP, 0)

    def _ask(self) -> list[Metric]:
        with self._database.read() as connection:
            started = time.perf_counter()
            connection.execute(sa.text("SELECT 1"))
            database_s = time.perf_counter() - started
            shares = dispatch.shares(connection)
            living = workers.heard_within(connection, self._worker_ttl_s, self._clock)
            owed = unsent(connection, invitations.c.mail)
            unposted = unsent(connection, postings.c.state)
            now = self._clock()
            self._count_ended(connection, now)
            self._count_usage(connection, now // DAY_MICROS)
            budgets = usage.day_shares(connection, now)[:_ORGANIZATIONS]
            ending = endings.soon(connection, now)[:_ENDINGS]
            outages = Counter[str]()
            for outage, number in ProviderOutages(connection).waiting(connection):
                outages[label(outage.shown)] += number
        # A line for each label: those whose turns wait longest, and one for all others. That one always exists, so that
        # a sum over the organizations always has a value.
        waiting = Counter[str]()
        at_work = Counter[str]()
        oldest = dict[str, int]()
        for number, share in enumerate(shares):
            name = label(share.organization) if number < _ORGANIZATIONS else OTHERS
            waiting[name] += share.waiting
            at_work[name] += share.at_work
            if share.oldest is not None:
                oldest[name] = min(share.oldest, oldest.get(name, share.oldest))
        waiting[OTHERS] += 0
        at_work[OTHERS] += 0
        ages = {name: max(0, now - oldest.get(name, now)) / SECOND_MICROS for name in waiting}
        left = {(key.kind, label(key.organization), label(key.name)): key.ends_at - now for key in ending}
        ends = {labels: micros / SECOND_MICROS for labels, micros in left.items()}
        used = {(label(slug), kind): used_share for slug, kind, used_share in budgets}
        slots = sum(worker.concurrency for worker in living)
        executed = sum(worker.at_work for worker in living)
        return [
            _gauge("runwarden_database_round_trip_seconds", "How long the database takes to answer.", database_s),
            _gauge("runwarden_queue_turns", "Turns that wait for a slot.", waiting, "organization"),
            _gauge("runwarden_queue_oldest_seconds", "How long the oldest of them has waited.", ages, "organization"),
            _gauge("runwarden_places_in_use", "Turns that have a slot.", at_work, "organization"),
            _gauge("runwarden_places", "Slots of all workers together.", slots),
            _gauge("runwarden_turns_at_work", "Turns that the workers execute.", executed),
            _gauge("runwarden_workers", "Workers whose heartbeat is in time.", len(living)),
            _gauge("runwarden_day_budget_used_ratio", "Of a budget a day: 1 is all of it.", used, "organization kind"),
            _gauge("runwarden_key_ends_seconds", _KEY_ENDS, ends, "kind organization name"),
            _gauge("runwarden_model_outage_turns", _OUTAGES, outages, "provider"),
            _gauge("runwarden_mails_owed", "Invitations not sent: to be retried, or refused.", owed, "state"),
            _gauge("runwarden_postings_owed", "Results to be retried on code hosts, or refused.", unposted, "state"),
        ]

    def _count_ended(self, connection: sa.Connection, now: Micros) -> None:
        """Count, once each, the turns that finished on any worker since the last time."""
        # Read recent ones twice: they may have been committed late, or by a machine whose clock is behind.
        earliest = max(self._began, self._read_until - _OVERLAP_MICROS, now - _MAX_GAP_MICROS)
        for turn in turns.ended_since(connection, earliest):
            if (turn.run_id, turn.number) in self._ended:
                continue
            self._ended[turn.run_id, turn.number] = turn.finished_at
            started_at = turn.finished_at if turn.started_at is None else turn.started_at
            self._lasted.labels(turn.outcome).observe((turn.finished_at - started_at) / SECOND_MICROS)
            self._waited.observe((started_at - turn.accepted_at) / SECOND_MICROS)
        self._read_until = now
        self._ended = {key: ended for key, ended in self._ended.items() if ended >= now - _OVERLAP_MICROS}

    def _count_usage(self, connection: sa.Connection, today: int) -> None:
        """Count what agents on any worker used since the last scrape; the deletion of a run lowers no counter."""
        # The day before as well: its last usage is read after midnight.
        self._first_day = max(self._first_day, today - 1)
        days = usage.totals(connection, "agent and day", None, self._first_day)
        # The most expensive first.
        days.sort(key=lambda day: -day.figures.micro_usd)
        figures = {tuple(day.subject.values()): day.figures for day in days}
        for key, used in figures.items():
            before = used if self._used is None else self._used.get(key, NOTHING)
            labels = label(key[0]), label(key[1])
            if labels not in self._named and len(self._named) >= _AGENTS:
                labels = OTHERS, OTHERS
            else:
                self._named.add(labels)
            for kind in ("input", "cached", "output"):
                name = f"{kind}_tokens"
                self._tokens.labels(*labels, kind).inc(max(0, getattr(used, name) - getattr(before, name)))
            if used.unpriced_requests < used.requests:
                self._cost.labels(*labels).inc(max(0, used.micro_usd - before.micro_usd) / MICROS_PER_USD)
        self._used = figures


def operators_token(variable: str, environment: Mapping[str, str]) -> str | None:
    """Return a token that the operator set, for scraping or for the page, or None (`SettingsError`: too short)."""
    token = environment.get(variable, "")
    if not token:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        rule = f"a token has at least {_SHORTEST_TOKEN} ASCII characters and no spaces"
        raise SettingsError(f"{variable}: {rule}; make one with: openssl rand -hex 32")
    return token


def label(text: str) -> str:
    """Return a text as the value of a label: one line, without characters that would break a scrape."""
    return one_line(text)[:_MAX_LABEL]


def _gauge(name: str, meaning: str, value: float | Mapping[Any, float], labels: str = "") -> GaugeMetricFamily:
    """Return a gauge: a number, or one for each label, or for each tuple of several labels."""
    if isinstance(value, float | int):
        return GaugeMetricFamily(name, meaning, value=value)
    family = GaugeMetricFamily(name, meaning, labels=labels.split())
    for key, number in value.items():
        family.add_metric((key,) if isinstance(key, str) else key, number)
    return family
