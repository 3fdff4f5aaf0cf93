"""The pure parts of the console: times, timelines and freshness as words."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from app.console.feeds import CoalescedTask
from app.engine.times import ago, clock_time, span, start_text
from storage.records import LinkState, Repository, Run, RunDetail, StatusTransition
from storage.records.activity import Wait, WaitReason
from widgets.frame import PollTiming, freshness
from widgets.kit.badges import health_badge, run_badge
from widgets.runs.facts import Period, periods

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
PATIENCE = PollTiming(opened_at=NOON - timedelta(hours=1), period_s=10.0)


def before(**by: float) -> datetime:
    return NOON - timedelta(**by)


def test_times_are_written_as_words() -> None:
    """Ages, starts, spans and moments are written as words.

    A clock that is slightly ahead changes nothing, one far ahead is mentioned.
    """
    said = {
        ago(NOON, NOON): "just now",
        ago(before(seconds=119), NOON): "1m ago",
        ago(before(days=400), NOON): "400d ago",
        ago(before(minutes=-5), NOON): "in 5m",
        # From a day on, the local time is shown; in another year, the year instead of the hour.
        start_text(before(hours=23, minutes=59), NOON): "23h ago",
        start_text(before(hours=28), NOON): "3 May 08:00",
        start_text(before(days=200), NOON): "16 Oct 2025",
        start_text(None, NOON): "-",
        span(3900): "1h05m",
        span(183600): "2d03h",
        # A time of today needs no date.
        clock_time(before(minutes=1), NOON): "11:59:00",
        clock_time(before(days=1), NOON): "3 May 12:00",
        clock_time(before(days=365), NOON): "4 May 2025 12:00",
    }

    assert list(said) == list(said.values())
    assert ago(before(seconds=-30), NOON) == "just now"


def test_unknown_statuses_are_shown_as_received() -> None:
    """An unknown status is neither good nor bad: it is a warning with the word, dimmed once it is known to be final."""
    assert run_badge("paused").text == "◆ paused"
    assert run_badge("archived", is_final=True).text == "◇ archived"
    assert run_badge("", is_final=True).word == "no status"
    assert (run_badge("cancelled").text, run_badge("cancelled").tone) == ("⊘ cancelled", "quiet")
    assert run_badge("failed", is_final=True) == run_badge("failed")
    assert health_badge("OK", {"ok"}).tone == "good"
    assert health_badge("degraded", {"ok"}).tone == "warn"
    assert health_badge("on holiday", {"ok"}).text == "✗ on holiday"


def link(ok_s: float | None = None, kind: str | None = None, *, failures: int = 1) -> LinkState:
    """A link with an answer of this age, whose polls have failed since then."""
    last_ok_at = None if ok_s is None else before(seconds=ok_s)
    if kind is None:
        return LinkState("runs", last_ok_at=last_ok_at)
    return LinkState("runs", last_ok_at=last_ok_at, failing_since=NOON, failures=failures, error_kind=kind)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, "◌ connecting…"),
        (link(), "◌ connecting…"),
        (link(19), "● live · just now"),
        (link(20), "◌ 20s old"),
        (link(720, "unreachable"), "◌ no answer for 12m"),
        (link(None, "not_authorized"), "✗ token refused"),
        (link(0, "token"), "✗ no token"),
        (link(None, "some_new_kind"), "◌ not answering"),
    ],
)
def test_only_recent_answers_are_live(state: LinkState | None, text: str) -> None:
    """Old facts show their age, and a failure its reason; what counts as late depends on the poll interval."""
    often = PollTiming(opened_at=NOON - timedelta(hours=1), period_s=2.0)

    assert freshness(state, PATIENCE, NOON).text == text
    assert freshness(link(13), often, NOON).text == "◌ 13s old"


@pytest.mark.parametrize(
    ("state", "wait", "text"),
    [
        (link(4), "own_pace", "● live · just now"),
        (link(25), "own_pace", "◌ 25s old: rate limit"),
        (link(4, "rate_limited"), "rate_limit", "◌ 4s old: rate limited"),
        (link(None, "unreachable", failures=5), "service_down", "◌ service unreachable"),
        (link(None, "not_authorized"), "service_down", "✗ token refused"),
    ],
)
def test_a_wait_shows_its_reason(state: LinkState, wait: WaitReason, text: str) -> None:
    """The reason only appears when facts are older than between two polls, and never hides what only a user can fix."""
    assert freshness(state, PATIENCE, NOON, Wait(wait, NOON + timedelta(minutes=2))).text == text


def detail(status: str, *moves: tuple[str | None, str, datetime], created: datetime | None = None) -> RunDetail:
    run = Run("run_1", status, "main", Repository.parse("acme/api"), created, NOON, "{}")
    transitions = tuple(StatusTransition("run_1", old, new, at) for old, new, at in moves)
    return RunDetail(run, NOON, NOON, "current", transitions)


def test_time_before_the_first_observation_is_unknown() -> None:
    """A run first seen active has an unobserved time before; one first seen queued was queued since its creation."""
    late = detail("working", (None, "working", before(minutes=5)), created=before(minutes=9))
    early = detail(
        "failed",
        (None, "queued", before(minutes=8)),
        ("queued", "working", before(minutes=6)),
        ("working", "failed", before(minutes=2)),
        created=before(minutes=9),
    )

    assert periods(late, NOON) == (
        Period(None, before(minutes=9), 240.0),
        Period("working", before(minutes=5), 300.0, is_ongoing=True),
    )
    assert periods(early, NOON) == (
        Period("queued", before(minutes=9), 180.0),
        Period("working", before(minutes=6), 240.0),
        Period("failed", before(minutes=2), None, is_final=True),
    )


async def test_requests_during_a_round_cause_one_more_round() -> None:
    """Ten requests during one round cause one further round, never two at once, and even after a failing round."""
    gate, begun, tasks, rounds = asyncio.Event(), asyncio.Event(), list[asyncio.Task[None]](), list[int]()

    async def work() -> None:
        rounds.append(1)
        begun.set()
        await gate.wait()
        if len(rounds) == 1:
            raise OSError("disk full")

    task = CoalescedTask(work, lambda work: tasks.append(asyncio.ensure_future(work())))
    task.ask()
    await begun.wait()
    for _ in range(10):
        task.ask()
    gate.set()
    with pytest.raises(OSError, match="disk full"):
        await tasks[0]
    await tasks[1]

    assert (len(rounds), len(tasks)) == (2, 2)
