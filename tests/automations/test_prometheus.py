"""A real Prometheus scrapes the bot, and the shipped rules and dashboards only ask for metrics that exist."""

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from app.automations.metrics import DURATIONS, MAX_VALUES, RunCounts, Snapshot, families
from storage.records.following import StatusChange
from tests.program import ROOT

SHIPPED = ROOT / "deploy" / "prometheus"
PROMETHEUS = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed; on Debian: apt-get install prometheus",
)


@PROMETHEUS
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", SHIPPED / "watch.yml"), ("test", "rules", Path(__file__).parent / "watch.test.yml")],
)
def test_promtool_accepts_what_ships_and_the_alerts_fire(arguments: tuple[str, ...]) -> None:
    """Each shipped alert fires on the fault that it is for, and none fires on a healthy bot."""
    checked = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr


NOW = datetime(2026, 5, 1, tzinfo=UTC)


class Figures(Collector):
    """Figures to be scraped."""

    def __init__(self, one: Snapshot) -> None:
        self.one = one

    def collect(self) -> Iterator[Metric]:
        return families([self.one])


def scraped(one: Snapshot) -> dict[str, Metric]:
    """The figures as a scrape reads them, by name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(one))
    text = generate_latest(registry).decode()
    return {each.name: each for each in text_string_to_metric_families(text)}


def test_hostile_names_neither_break_a_scrape_nor_grow_without_bound() -> None:
    """A lone surrogate is replaced, and the rarest of many statuses are counted as others."""
    runs = {("a\ud800b",): 500.0, **{(f"status {number}",): 1.0 for number in range(1_000)}}

    found = scraped(Snapshot("acme", {"runs": runs}))

    counted = {sample.labels["status"]: sample.value for sample in found["runwarden_runs"].samples}
    assert counted["a?b"] == 500
    assert (len(counted), sum(counted.values())) == (MAX_VALUES + 1, 1_500)


def test_runs_that_end_are_counted_by_how_long_they_took() -> None:
    """Runs are in the first fitting bucket of a consistent histogram.

    Changes of status are counted by both statuses.
    """
    counts = RunCounts()
    for took_s, new in ((30, "completed"), (61, "completed"), (90_000, "completed"), (5, "failed")):
        began = NOW - timedelta(seconds=took_s)
        counts.add(
            [StatusChange("run_1", "acme/api", "x", "working", new, NOW, NOW, began, is_pinned=False, is_final=True)]
        )
    counts.add([StatusChange("run_1", "acme/api", "x", None, "queued", NOW, NOW, NOW, is_pinned=False, is_final=False)])

    found = scraped(Snapshot("acme", {"run_transitions_total": counts.transitions}, counts))

    durations = {
        (s.name.removeprefix(DURATIONS), s.labels.get("le"), s.labels["status"]): s.value
        for s in found[DURATIONS].samples
    }
    assert [durations["_bucket", le, "completed"] for le in ("60.0", "300.0", "43200.0", "+Inf")] == [1, 2, 2, 3]
    assert (durations["_count", None, "completed"], durations["_sum", None, "completed"]) == (3, 90_091)
    transitions = {(s.labels["from"], s.labels["to"]): s.value for s in found["runwarden_run_transitions"].samples}
    assert transitions == {("working", "completed"): 3, ("working", "failed"): 1, ("new", "queued"): 1}
