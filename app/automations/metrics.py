"""Metrics of the bots for Prometheus, made from the files when it asks, so that no figure is stale."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from app.api.budget import Priority
from app.engine import Engine
from storage.errors import StorageError
from storage.records import LinkState, PlatformHealth, RunFilter
from storage.records.following import StatusChange
from storage.records.service_traits import Wait
from storage.state import AT_WORK, OWN, State

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MOST_VALUES: Final = 30
"""Values of one label; the rest is counted as `other`."""
DEADLINE_S: Final = 10.0
"""Seconds that one scrape may take."""
LARGEST_HEAD: Final = 8_192
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


BUCKETS_S: Final = (60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0)


@dataclass(slots=True)
class RunCounts:
    """The changes of runs that this process saw."""

    transitions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Their number by the status before and after the change; a run that is seen first was `new`."""
    ended: Counter[tuple[str, float]] = field(default_factory=Counter)
    """Runs that ended, by status and the bucket that holds how long they took."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Their total duration, by status."""

    def add(self, changes: Sequence[StatusChange]) -> None:
        """Count these changes of status."""
        for change in changes:
            self.transitions[change.old or "new", change.new] += 1
            if change.is_final:
                took_s = max(0.0, (change.at - change.active_since).total_seconds())
                self.ended[change.new, next((end for end in BUCKETS_S if took_s <= end), math.inf)] += 1
                self.seconds[change.new] += took_s


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One profile's figures."""

    profile: str
    now: datetime
    runs: Mapping[str, int]
    """By status."""
    stuck: int
    hosts: tuple[PlatformHealth, ...]
    links: tuple[LinkState, ...]
    unknown: int
    """Actions whose outcome is unknown."""
    decisions: Mapping[tuple[str, str], int]
    """By rule and outcome."""
    paused: Mapping[str, bool]
    """By rule."""
    requests: Mapping[str, int]
    """Sent by this process, by priority."""
    is_working: bool
    ledger: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Actions by kind and state."""
    deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By route and outcome."""
    told: int = 0
    """Problems that were told and are not over."""
    wait: Wait | None = None
    """Why the request budget lets no poll through now."""
    rate: float | None = None
    """Requests per second that polls may send; None: no limit is known."""
    counts: RunCounts = field(default_factory=RunCounts)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    """The heartbeats of this process, by outcome."""


async def snapshot(engine: Engine, state: State, counts: RunCounts, *, is_working: bool) -> Snapshot:
    """The figures now.

    Raises:
        StorageError: A file cannot be read.
    """
    states = await state.rule_states()
    return Snapshot(
        profile=engine.profile.name,
        now=engine.clock(),
        runs=await engine.cache.status_counts(RunFilter()),
        stuck=len(await engine.cache.stuck()),
        hosts=await engine.cache.health(),
        links=await engine.cache.links(),
        unknown=len(await engine.ledger.unresolved()),
        decisions=await state.outcomes(),
        paused={name: each.paused is not None for name, each in states.items() if name not in {OWN, AT_WORK}},
        requests={priority.name.lower(): engine.client.budget.sent[priority] for priority in Priority},
        is_working=is_working,
        ledger=await engine.ledger.state_counts(),
        deliveries=await state.delivery_counts(),
        told=len({told.group for told in await state.told()}),
        wait=await engine.client.budget.wait(),
        rate=await engine.client.budget.poll_rate(),
        counts=counts,
    )


def exposition(snapshots: Sequence[Snapshot]) -> bytes:
    """The figures in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Figures(Collector):
        def collect(self) -> "Iterator[Metric]":
            return _families(snapshots)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return generate_latest(registry)


def _families(snapshots: Sequence[Snapshot]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text, labels, counts in FIGURES:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"runwarden_{name}", text, labels=("profile", *labels))
        for one in snapshots:
            for values, figure in _capped(dict(counts(one)), labels).items():
                family.add_metric([_label(one.profile), *values], figure)
        yield family
    yield _durations(snapshots)


def _durations(snapshots: Sequence[Snapshot]) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    text = "How long runs took that ended while this process watched, by final status."
    family = HistogramMetricFamily(DURATIONS, text, labels=("profile", "status"))
    for one in snapshots:
        ended = one.counts.ended
        for status in sorted({status for status, _ in ended})[:MOST_VALUES]:
            upto = accumulate(ended[status, end] for end in (*BUCKETS_S, math.inf))
            buckets = list(zip((*map(str, BUCKETS_S), "+Inf"), upto, strict=True))
            family.add_metric([_label(one.profile), _label(status)], buckets, one.counts.seconds[status])
    return family


def _capped(figures: Mapping[tuple[str, ...], float], labels: Sequence[str]) -> dict[tuple[str, ...], float]:
    """The figures with at most `MOST_VALUES` values of each label: names of the service are not bounded."""
    kept = sorted(figures, key=lambda values: -figures[values])[:MOST_VALUES]
    capped: dict[tuple[str, ...], float] = {}
    for values, figure in figures.items():
        shown = tuple(map(_label, values)) if values in kept else ("other",) * len(labels)
        capped[shown] = capped.get(shown, 0) + figure
    return capped


def _label(text: str) -> str:
    # A lone surrogate would break the whole scrape.
    return text.encode("utf-8", "replace").decode("utf-8")


def _by_one(figures: Mapping[str, float]) -> Iterator[tuple[tuple[str, ...], float]]:
    yield from (((name,), figure) for name, figure in figures.items())


def _healthy(one: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    yield from (((host.platform, host.status), 1) for host in one.hosts if host.connected)


def _ages(one: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    yield from (((link.subject,), (one.now - link.last_ok_at).total_seconds()) for link in one.links if link.last_ok_at)


def _failing(one: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    yield from (((link.subject,), link.failures) for link in one.links)


def _waits(one: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    if one.wait is not None:
        yield (one.wait.reason,), max(0.0, (one.wait.until - one.now).total_seconds())


def _rate(one: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    if one.rate is not None:
        yield (), one.rate


DURATIONS: Final = "runwarden_run_duration_seconds"
FIGURES: Final = (
    ("runs", "Runs held, by status.", ("status",), lambda one: _by_one(one.runs)),
    ("stuck_runs", "Active runs that take far longer than usual.", (), lambda one: [((), one.stuck)]),
    ("host_status", "The status of a code host as the service last said it.", ("platform", "status"), _healthy),
    ("poll_age_seconds", "Since the last poll that succeeded.", ("subject",), _ages),
    ("poll_failures", "Polls that failed in a row.", ("subject",), _failing),
    ("unknown_actions", "Writes whose outcome is unknown.", (), lambda one: [((), one.unknown)]),
    (
        "automation_decisions_total",
        "Decisions of automations, by outcome.",
        ("automation", "outcome"),
        lambda one: one.decisions.items(),
    ),
    (
        "automation_paused",
        "1: the automation is paused.",
        ("automation",),
        lambda one: _by_one(one.paused),
    ),
    (
        "requests_total",
        "Requests that this process sent, by priority.",
        ("priority",),
        lambda one: _by_one(one.requests),
    ),
    (
        "run_transitions_total",
        "Changes of status that this process saw.",
        ("from", "to"),
        lambda one: one.counts.transitions.items(),
    ),
    ("actions", "Writes in the ledger, by state.", ("kind", "state"), lambda one: one.ledger.items()),
    (
        "deliveries_total",
        "Messages to people; `waiting`: not settled.",
        ("route", "outcome"),
        lambda one: one.deliveries.items(),
    ),
    ("problems_told", "Problems that people were told of, and that are not over.", (), lambda one: [((), one.told)]),
    ("budget_wait_seconds", "How long the request budget makes polls wait.", ("reason",), _waits),
    ("budget_requests_per_second", "What polls may send, where a limit is known.", (), _rate),
    ("heartbeats_total", "Heartbeats that this process sent.", ("outcome",), lambda one: _by_one(one.heartbeats)),
    ("bot_working", "1: this process holds the automations' lease.", (), lambda one: [((), float(one.is_working))]),
)


Snapshots = Callable[[], Awaitable[Sequence[Snapshot]]]


async def serve(host: str, port: int, snapshots: Snapshots) -> asyncio.Server:
    """Answer GET /metrics there until the server is closed.

    Raises:
        OSError: The address cannot be used.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The connection of a peer that is too slow, or closes it, is given up.
        with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await _answer(head, snapshots)
                lines = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{lines}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, host, port, limit=LARGEST_HEAD)


async def _answer(head: bytes, snapshots: Snapshots) -> tuple[str, bytes]:
    if head.split(b" ", 2)[:2] != [b"GET", b"/metrics"]:
        return "404 Not Found", b"Here is only GET /metrics.\n"
    try:
        return "200 OK", exposition(await snapshots())
    except StorageError as error:
        return "503 Service Unavailable", f"{error}\n".encode("utf-8", "replace")
