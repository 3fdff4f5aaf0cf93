"""Metrics: figures that no name of the service can break or blow up."""

from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from app.automations.metrics import MOST_VALUES, Snapshot, exposition

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def test_hostile_names_neither_break_a_scrape_nor_grow_without_bound() -> None:
    """A lone surrogate is replaced, and the rarest of many statuses are counted as others."""
    runs = {"a\ud800b": 500, **{f"status {number}": 1 for number in range(1_000)}}
    one = Snapshot("acme", NOW, runs, 0, (), (), 0, {}, {}, {}, is_working=True)

    families = {each.name: each for each in text_string_to_metric_families(exposition([one]).decode())}

    counted = {sample.labels["status"]: sample.value for sample in families["runwarden_runs"].samples}
    assert counted["a?b"] == 500
    assert (len(counted), sum(counted.values())) == (MOST_VALUES + 1, 1_500)
