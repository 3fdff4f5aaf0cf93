"""Samples become uptime, a strip and incidents; unknown time never counts as good or bad."""

from datetime import UTC, datetime, timedelta

import pytest

from app.health.facts import flips, incidents, slices, uptime
from storage.records import HealthSpan

NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
WORDS = frozenset({"ok"})
HOLD = MINUTE

Spans = tuple[HealthSpan, ...]


def spans(*parts: tuple[str, float, float]) -> Spans:
    """A platform's spans: the status, and the minutes before now at which each began and ended."""
    return tuple(HealthSpan("github", status, NOW - start * MINUTE, NOW - end * MINUTE) for status, start, end in parts)


@pytest.mark.parametrize(
    ("seen", "share", "known_share"),
    [
        ((("ok", 780, 60), ("unreachable", 60, 0)), 12 / 13, 13 / 24),
        ((), None, 0.0),
        ((("ok", 3000, 2000),), None, 0.0),
        ((("unreachable", 5000, 720), ("ok", 720, 0)), 0.5, 1.0),
        ((("ok", 780, 60), ("no status", 60, 0)), 1.0, 12 / 24),
    ],
)
def test_uptime_counts_only_known_time(seen: tuple, share: float | None, known_share: float) -> None:
    """Unknown time is neither up nor down, and time outside the window does not count."""
    found = uptime(spans(*seen), DAY, NOW, WORDS)

    assert found.share == (None if share is None else pytest.approx(share))
    assert found.known_s == pytest.approx(known_share * DAY.total_seconds())


def test_an_unknown_status_is_neither_good_nor_bad() -> None:
    """An unknown status neither starts nor ends an incident and is no change.

    Only healthy to unhealthy and back count.
    """
    seen = spans(("ok", 60, 50), ("degraded", 50, 8), ("unreachable", 8, 6), ("ok", 6, 4), ("unreachable", 4, 0))
    assert [flips(seen, WORDS, NOW - minutes * MINUTE) for minutes in (10, 55)] == [2, 3]
    well = spans(("ok", 60, 40), ("no status", 40, 20), ("ok", 20, 0))
    unwell = spans(("down", 60, 40), ("no status", 40, 20), ("down", 20, 0))

    assert (incidents(well, WORDS, HOLD), flips(well, WORDS, NOW - DAY)) == ((), 0)
    (one,) = incidents(unwell, WORDS, HOLD)
    assert (one.words, one.is_ongoing, flips(unwell, WORDS, NOW - DAY)) == (("down",), True, 0)
    assert slices(well, NOW, 4, 15 * MINUTE, WORDS)[1] is None


def test_an_incident_ends_with_a_lasting_recovery() -> None:
    """A recovery of half a minute belongs to the incident; one of ten minutes ends it."""
    trouble = (("degraded", 60, 50), ("unreachable", 50, 40), ("ok", 40, 39.5), ("unreachable", 39.5, 30))
    later = (("ok", 30, 20), ("degraded", 20, 19.5), ("ok", 19.5, 0))
    found = incidents(spans(("ok", 100, 60), *trouble, *later), WORDS, HOLD)

    newest, older = found
    assert (newest.word, newest.lasted, newest.worst, newest.is_over) == ("degraded", 0.5 * MINUTE, "impaired", True)
    assert older.words == ("unreachable", "degraded")
    assert (older.lasted, older.recoveries, older.worst, older.bad_s) == (30 * MINUTE, 1, "bad", 19.5 * 60)
    assert older.recovered_at == NOW - 30 * MINUTE


@pytest.mark.parametrize(
    ("seen", "connected", "start", "is_over"),
    [
        ((("ok", 100, 60), ("unreachable", 60, 20)), True, 60, False),
        ((("unreachable", 200, 180), ("unreachable", 60, 20)), True, 200, False),
        ((("unreachable", 60, 20),), False, 60, True),
    ],
)
def test_an_unobserved_gap_does_not_end_an_incident(seen: tuple, connected: bool, start: float, is_over: bool) -> None:
    """An unobserved gap during an incident does not end it; a platform that is gone has no incident any more."""
    (found,) = incidents(spans(*seen), WORDS, HOLD, connected=connected)

    assert (found.start, found.until) == (NOW - start * MINUTE, NOW - 20 * MINUTE)
    assert (found.is_over, found.recovered_at) == (is_over, None)
