"""Runs that come into the list where it was read already: no claim covers them before they are held."""

from datetime import timedelta
from typing import Any

import pytest

from app.engine import Engine
from storage.values import utc_now
from tests.sync.conftest import Desk, ended
from tests.sync.peer import MINUTE, SECOND

HOUR = timedelta(hours=1)
DAY = 24 * HOUR


@pytest.mark.parametrize(("hours", "date_filter"), [(1, "ignored"), (13, "created")])
def test_a_service_whose_clock_is_set_back(desk: Desk, hours: int, date_filter: Any) -> None:
    """What is created from then on lies before what is held: that is not claimed again until its time has passed."""
    desk.peer.date_filter = date_filter
    desk.peer.fill(900)
    desk.poll()
    desk.peer.clock_offset = -hours * HOUR
    desk.peer.fill(3, every=SECOND)
    claims = [desk.facts("runs", "list", "--limit", "1"), desk.facts("runs", "list", "--cached")]
    desk.poll()
    desk.peer.fill(3, every=SECOND)
    claims.append(desk.facts("runs", "list", "--cached"))
    desk.fill()
    claims.append(desk.facts("runs", "list", "--cached"))

    assert desk.missing()
    assert not any(map(desk.false_claims, claims))
    assert claims[-1]["as_of"] < desk.peer.runs["run_00900"].born.isoformat()


@pytest.mark.parametrize("date_filter", ["created", "ignored"])
def test_a_clock_that_was_set_back_before_it_was_heard(desk: Desk, date_filter: Any) -> None:
    """The newest runs are shown created in the service's future: what it creates now comes below them."""
    desk.peer.date_filter = date_filter
    desk.peer.fill(300)
    desk.peer.clock_offset = -2 * HOUR
    desk.poll()
    desk.peer.fill(3, every=SECOND / 1000)
    claims = [desk.facts("runs", "list", "--limit", "1"), desk.facts("runs", "list", "--cached")]
    desk.fill()
    desk.peer.fill(3, every=SECOND / 1000)
    claims += [desk.facts("runs", "list", "--limit", "1"), desk.facts("runs", "list", "--cached")]

    assert desk.missing()
    assert not any(map(desk.false_claims, claims))


def test_a_clock_set_back_while_nothing_was_claimed(desk: Desk) -> None:
    """Without times only a list read to its end is claimed; a run that came below its newest ones is not, then."""
    desk.peer.has_readable_times, desk.peer.date_filter = False, "ignored"
    desk.peer.fill(300)
    desk.poll(first_runs=20, page_size=20)
    desk.peer.clock_offset = -13 * HOUR
    desk.fill()
    desk.peer.fill(1)
    desk.poll()

    assert desk.missing()
    assert desk.facts("runs", "list", "--cached")["as_of"] < min(
        desk.peer.runs[run_id].born.isoformat() for run_id in desk.missing()
    )


def test_runs_dated_back_are_seen_soon(desk: Desk) -> None:
    """While the service's clock is behind what is held, a poll reads the page of its present as well."""
    desk.peer.fill(600, every=10 * SECOND)
    desk.poll()
    desk.peer.clock_offset = -1 * HOUR
    desk.peer.fill(30, every=SECOND)
    desk.poll(2)

    assert not desk.missing()


@pytest.mark.parametrize("paging", ["key", "offset"])
def test_a_clock_that_goes_on(desk: Desk, paging: Any) -> None:
    """Once the service's time has passed what was held, the claim is up to now again."""
    desk.peer.paging = paging
    desk.peer.fill(900)
    desk.poll()
    desk.peer.clock_offset = -1 * HOUR
    desk.peer.fill(3, every=SECOND)
    desk.poll()
    desk.peer.clock_offset = 5 * SECOND
    desk.peer.fill(150, every=SECOND / 1000)
    since = utc_now().isoformat()
    desk.settle()

    assert not desk.missing()
    assert desk.facts("runs", "list", "--cached")["as_of"] > since


def test_one_run_with_an_old_time(desk: Desk) -> None:
    """No time of creation vouches for it: what is claimed says when the recent past was read again."""
    ended(desk.peer, 300)
    desk.poll(2)
    before = desk.facts("runs", "list", "--cached")
    desk.within(_read_again)
    desk.peer.put("late", created=desk.peer.now - 2 * HOUR)
    between = desk.facts("runs", "list", "--cached", "--all")
    desk.within(_read_again)
    desk.within(_read_again)  # The pass before began before it came.
    after = desk.facts("runs", "list", "--cached", "--all")

    assert before["read_again"] is None
    born = desk.peer.runs["late"].born.isoformat()
    assert between["count"] == 300
    assert between["read_again"]["as_of"] < born
    assert after["count"] == 301
    assert after["read_again"]["as_of"] > born


async def _read_again(engine: Engine) -> None:
    await engine.reread.whole_pass()


@pytest.mark.parametrize(("inserted", "date_filter"), [(35, "ignored"), (150, "created")])
def test_runs_inserted_between_pages_that_count_places(desk: Desk, inserted: int, date_filter: Any) -> None:
    """The same total throughout tells nothing: what slipped or came again is neither missed nor claimed."""
    desk.peer.paging, desk.peer.total_count, desk.peer.date_filter = "offset", 1_000, date_filter
    desk.peer.fill(500, until=desk.peer.now - HOUR)
    for page in range(2, 12, 2):
        desk.peer.before(page, lambda: desk.peer.fill(inserted, every=SECOND / 1000))
    claims = [desk.facts("runs", "list", "--all"), desk.facts("runs", "list", "--cached")]
    desk.fill()
    claims.append(desk.facts("runs", "list", "--cached"))

    assert not any(map(desk.false_claims, claims))
    desk.settle()
    assert not desk.missing()


@pytest.mark.parametrize("date_filter", ["created", "ignored"])
def test_many_runs_of_one_instant_in_any_order(desk: Desk, date_filter: Any) -> None:
    """Shuffled with each request: what no page showed is not claimed, and what is held is not called lost."""
    desk.peer.paging, desk.peer.shuffles_ties, desk.peer.date_filter = "offset", True, date_filter
    at = desk.peer.now - HOUR
    desk.peer.fill(100, until=at - MINUTE)
    for n in range(350):
        desk.peer.put(f"same_{n}", created=at)
    desk.peer.fill(150, until=desk.peer.now - MINUTE, every=SECOND / 10)
    desk.poll()
    claims = [desk.facts("runs", "list", "--cached")]
    desk.fill()
    claims += [desk.facts("runs", "list", "--cached"), desk.facts("runs", "list", "--all")]
    claims.append(desk.facts("runs", "list", "--cached"))
    desk.within(_read_again)

    assert not any(map(desk.false_claims, claims))
    assert len(claims[-1]["complete"]) == 2
    assert {run["observed"]["state"] for run in desk.held().values()} <= {"current", "unconfirmed"}
