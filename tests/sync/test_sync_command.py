"""`runwarden runs sync`: history fetched in the foreground."""

from datetime import UTC, datetime

import pytest

from app.cli.progress import line
from storage.records.coverage import BackfillProgress
from tests.lab import stamp
from tests.sync.conftest import MINUTE, Desk, Recorder
from tests.sync.test_backfill import ended


@pytest.fixture
def history(peer: Recorder) -> Recorder:
    """The service with the thousand ended runs that a first refresh reads."""
    ended(peer, 1_000)
    return peer


def test_the_command_fetches_what_is_missing_and_says_how_far_it_came(history: Recorder, desk: Desk) -> None:
    """Everything of the age asked for is held; a second time nothing is asked for but the newest."""
    ended(history, 500, "old", after=1_000)
    assert desk.facts("runs", "sync", "--days", "0.1")["fetched"] == 0  # The first refresh brings a thousand.
    second = desk.facts("runs", "sync", "--days", "1000")

    assert (second["fetched"], second["held"], second["whole"]) == (500, 1_500, False)
    assert second["complete_since"] <= stamp(history.now - 1_500 * MINUTE)
    desk.asked()
    assert desk.facts("runs", "sync", "--days", "1000")["fetched"] == 0
    assert desk.asked() <= 4


@pytest.mark.parametrize("date_filter", ["created_at", ""])
def test_the_command_counts_entries_that_cannot_be_kept(history: Recorder, desk: Desk, date_filter: str) -> None:
    """What is called complete never leaves them out silently."""
    ended(history, 500, "old", after=1_000)
    history.runs["old_00300"]["run_id"] = None
    history.date_filter = date_filter  # type: ignore[assignment]

    assert desk.facts("runs", "sync", "--days", "1000")["dropped"] == 1
    assert "dropped" not in desk.facts("runs", "sync", "--days", "1000")


def test_the_command_waits_out_a_limit(history: Recorder, desk: Desk) -> None:
    """It ends when all is here, not at the first refusal."""
    ended(history, 1_000, "old", after=1_000)
    history.before(16, lambda: history.rate_limited(0))

    assert desk.facts("runs", "sync")["held"] == 2_000


def test_the_command_says_why_it_cannot(history: Recorder, desk: Desk) -> None:
    """A refused token ends it."""
    history.refused = {"test-token": 401}

    assert desk.run("runs", "sync", "--json").code == 4


def test_the_bar_says_how_far_it_is() -> None:
    """A bar where the end is known, the runs fetched, how far back, and the time left."""
    progress = BackfillProgress("running", 2_500, 10_000, datetime(2026, 5, 1, 12, tzinfo=UTC), 75.0)

    assert (
        line(progress)
        == "██████░░░░░░░░░░░░░░░░░░  25% · 2,500 runs of about 10,000 · back to 2026-05-01 12:00 · 1m15s left"
    )
    assert line(BackfillProgress("running", 2_500)) == "2,500 runs"
