"""The metrics in Prometheus' text format, and the small server that answers with them."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from app.automations.metrics import BUCKETS_S, Snapshot
from storage.errors import StorageError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MOST_VALUES: Final = 30
"""Values of one label; the rest is counted as `other`."""
DEADLINE_S: Final = 10.0
"""Seconds that one scrape may take."""
LARGEST_HEAD: Final = 8_192
"""Bytes of a request's head."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DURATIONS: Final = "runwarden_run_duration_seconds"
Snapshots = Callable[[], Awaitable[Sequence[Snapshot]]]
"""Reads the current figures of all profiles."""
Values = Iterable[tuple[tuple[str, ...], float]]
"""The values of a metric, each with the values of its labels."""


class Figure(NamedTuple):
    """One metric and how to read it from a snapshot."""

    name: str
    """Without the prefix `runwarden_`; a counter ends with `_total`."""
    text: str
    labels: tuple[str, ...]
    """Its labels besides `profile`."""
    values: Callable[[Snapshot], Values]


def _by_one(figures: Mapping[str, float]) -> Values:
    yield from (((name,), figure) for name, figure in figures.items())


def _healthy(one: Snapshot) -> Values:
    yield from (((host.platform, host.status), 1) for host in one.hosts if host.connected)


def _ages(one: Snapshot) -> Values:
    yield from (((link.subject,), (one.now - link.last_ok_at).total_seconds()) for link in one.links if link.last_ok_at)


def _failing(one: Snapshot) -> Values:
    yield from (((link.subject,), link.failures) for link in one.links)


def _waits(one: Snapshot) -> Values:
    if one.wait is not None:
        yield (one.wait.reason,), max(0.0, (one.wait.until - one.now).total_seconds())


def _rate(one: Snapshot) -> Values:
    if one.rate is not None:
        yield (), one.rate


FIGURES: Final = (
    Figure("runs", "Runs held, by status.", ("status",), lambda one: _by_one(one.runs)),
    Figure("stuck_runs", "Active runs that take far longer than usual.", (), lambda one: [((), one.stuck)]),
    Figure("host_status", "The status of a code host as the service last said it.", ("platform", "status"), _healthy),
    Figure("poll_age_seconds", "Since the last poll that succeeded.", ("subject",), _ages),
    Figure("poll_failures", "Polls that failed in a row.", ("subject",), _failing),
    Figure("unknown_actions", "Writes whose outcome is unknown.", (), lambda one: [((), one.unknown)]),
    Figure(
        "automation_decisions_total",
        "Decisions of automations, by outcome.",
        ("automation", "outcome"),
        lambda one: one.decisions.items(),
    ),
    Figure(
        "automation_paused",
        "1: the automation is paused.",
        ("automation",),
        lambda one: _by_one(one.paused),
    ),
    Figure(
        "requests_total",
        "Requests that this process sent, by priority.",
        ("priority",),
        lambda one: _by_one(one.requests),
    ),
    Figure(
        "run_transitions_total",
        "Changes of status that this process saw.",
        ("from", "to"),
        lambda one: one.counts.transitions.items(),
    ),
    Figure("actions", "Writes in the ledger, by state.", ("kind", "state"), lambda one: one.ledger.items()),
    Figure(
        "deliveries_total",
        "Messages to people; `waiting`: not settled.",
        ("route", "outcome"),
        lambda one: one.deliveries.items(),
    ),
    Figure(
        "problems_told", "Problems that people were told of, and that are not over.", (), lambda one: [((), one.told)]
    ),
    Figure("budget_wait_seconds", "How long the request budget makes polls wait.", ("reason",), _waits),
    Figure("budget_requests_per_second", "What polls may send, where a limit is known.", (), _rate),
    Figure("heartbeats_total", "Heartbeats that this process sent.", ("outcome",), lambda one: _by_one(one.heartbeats)),
    Figure(
        "bot_working", "1: this process holds the automations' lease.", (), lambda one: [((), float(one.is_working))]
    ),
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

    for figure in FIGURES:
        kind = CounterMetricFamily if figure.name.endswith("_total") else GaugeMetricFamily
        family = kind(f"runwarden_{figure.name}", figure.text, labels=("profile", *figure.labels))
        for one in snapshots:
            for labels, value in _capped(dict(figure.values(one)), figure.labels).items():
                family.add_metric([_label(one.profile), *labels], value)
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
