"""The bots' metrics, read from the files at each scrape so that none is stale, and served by prometheus_client."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from app.api.budget import Priority
from app.engine.engine import Engine
from storage.records import RunFilter
from storage.records.following import StatusChange
from storage.state import AT_WORK, OWN

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

BUCKETS_S: Final = (60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0)
"""Upper bounds of the histogram buckets for the durations of runs."""
MAX_VALUES: Final = 30
"""Values of one label; further ones are counted as `other`."""
DEADLINE_S: Final = 10.0
"""How long reading the files for one scrape may take."""
DURATIONS: Final = "runwarden_run_duration_seconds"
Values = Mapping[tuple[str, ...], float]

FIGURES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "runs": ("Runs held, by status.", ("status",)),
    "stuck_runs": ("Active runs that take far longer than usual.", ()),
    "host_status": ("The status of a code host as the service last said it.", ("platform", "status")),
    "poll_age_seconds": ("Since the last poll that succeeded.", ("subject",)),
    "poll_failures": ("Polls that failed in a row.", ("subject",)),
    "unknown_actions": ("Writes whose outcome is unknown.", ()),
    "automation_decisions_total": ("Decisions of automations, by outcome.", ("automation", "outcome")),
    "automation_paused": ("1: the automation is paused.", ("automation",)),
    "requests_total": ("Requests that this process sent, by priority.", ("priority",)),
    "run_transitions_total": ("Changes of status that this process saw.", ("from", "to")),
    "actions": ("Writes in the ledger, by state.", ("kind", "state")),
    "deliveries_total": ("Notification messages; `waiting`: not settled.", ("route", "outcome")),
    "problems_reported": ("Problems that were reported and are not over.", ()),
    "budget_wait_seconds": ("How long the request budget makes polls wait.", ("reason",)),
    "heartbeats_total": ("Heartbeats that this process sent.", ("outcome",)),
    "bot_working": ("1: this process holds the automations' lease.", ()),
}
"""The help text and the labels in addition to `profile`, by name without the prefix `runwarden_`."""


@dataclass(slots=True)
class RunCounts:
    """The changes of runs that this process saw."""

    transitions: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Changes by the status before and after; a run seen for the first time was `new`."""
    ended: Counter[tuple[str, float]] = field(default_factory=Counter)
    """Finished runs by status and bucket of their duration."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, changes: Sequence[StatusChange]) -> None:
        for change in changes:
            self.transitions[change.old or "new", change.new] += 1
            if change.is_final:
                took_s = max(0.0, (change.at - change.active_since).total_seconds())
                self.ended[change.new, next((end for end in BUCKETS_S if took_s <= end), math.inf)] += 1
                self.seconds[change.new] += took_s


class Snapshot(Struct, frozen=True):
    """One profile's metrics at one moment."""

    profile: str
    values: Mapping[str, Values]
    counts: RunCounts = msgspec.field(default_factory=RunCounts)


async def snapshot(engine: Engine, counts: RunCounts, heartbeats: Mapping[str, int], *, is_working: bool) -> Snapshot:
    state = engine.usable_state()
    cache = engine.cache
    ledger = engine.ledger
    now = engine.clock()
    budget = engine.client.budget
    links = await cache.links()
    wait = await budget.wait()
    by_status = await cache.status_counts(RunFilter())
    lost = await cache.lost_counts()
    rules = await state.rule_states()
    paused: Values = {(name,): rule.paused is not None for name, rule in rules.items() if name not in {OWN, AT_WORK}}
    values: dict[str, Values] = {
        "runs": {
            **{(status,): count - lost.get(status, 0) for status, count in by_status.items()},
            **({("gone",): sum(lost.values())} if lost else {}),
        },
        "stuck_runs": {(): len(await cache.stuck())},
        "host_status": {(host.platform, host.status): 1 for host in await cache.health() if host.connected},
        "poll_age_seconds": {
            (link.subject,): (now - link.last_ok_at).total_seconds() for link in links if link.last_ok_at
        },
        "poll_failures": {(link.subject,): link.failures for link in links},
        "unknown_actions": {(): len(await ledger.unresolved())},
        "automation_decisions_total": await state.outcomes(),
        "automation_paused": paused,
        "requests_total": {(priority.name.lower(),): budget.sent[priority] for priority in Priority},
        "run_transitions_total": counts.transitions,
        "actions": await ledger.state_counts(),
        "deliveries_total": await state.delivery_counts(),
        "problems_reported": {(): len({problem.group for problem in await state.reported_problems()})},
        "budget_wait_seconds": ({} if wait is None else {(wait.reason,): max(0.0, (wait.until - now).total_seconds())}),
        "heartbeats_total": {(outcome,): count for outcome, count in heartbeats.items()},
        "bot_working": {(): float(is_working)},
    }
    return Snapshot(engine.profile.name, values, counts)


def serve(host: str, port: int, snapshots: Callable[[], Coroutine[Any, Any, Sequence[Snapshot]]]) -> "WSGIServer":
    """Answer scrapes on a thread until the server is shut down; the metrics are read on this event loop.

    A scrape whose metrics cannot be read fails, which Prometheus shows as `up == 0`. May raise `OSError`.
    """
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.registry import Collector

    loop = asyncio.get_running_loop()

    class Figures(Collector):
        def collect(self) -> "Iterator[Metric]":
            return families(asyncio.run_coroutine_threadsafe(snapshots(), loop).result(DEADLINE_S))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    server, _ = start_http_server(port, host, registry)
    return server


def families(snapshots: Sequence[Snapshot]) -> "Iterator[Metric]":
    """Convert to Prometheus' metrics, with at most `MAX_VALUES` values of each label."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for name, (text, labels) in FIGURES.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"runwarden_{name}", text, labels=("profile", *labels))
        for view in snapshots:
            figures = view.values.get(name, {})
            # A service may send any number of names, but the size of a scrape must be bounded.
            frequent = sorted(figures, key=lambda values: -figures[values])[:MAX_VALUES]
            capped: dict[tuple[str, ...], float] = {}
            for values, figure in figures.items():
                shown = tuple(map(_label, values)) if values in frequent else ("other",) * len(values)
                capped[shown] = capped.get(shown, 0) + figure
            for shown_values, value in capped.items():
                family.add_metric([_label(view.profile), *shown_values], value)
        yield family
    text = "How long runs took that ended while this process watched, by final status."
    durations = HistogramMetricFamily(DURATIONS, text, labels=("profile", "status"))
    for view in snapshots:
        counts = view.counts.ended
        for status in sorted({status for status, _ in counts})[:MAX_VALUES]:
            upto = accumulate(counts[status, end] for end in (*BUCKETS_S, math.inf))
            buckets = list(zip((*map(str, BUCKETS_S), "+Inf"), upto, strict=True))
            durations.add_metric([_label(view.profile), _label(status)], buckets, view.counts.seconds[status])
    yield durations


def _label(text: str) -> str:
    # A lone surrogate would break the whole scrape.
    return text.encode("utf-8", "replace").decode("utf-8")
