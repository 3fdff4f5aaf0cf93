"""No answer claims a completeness that the cache does not have, and what is missing is fetched."""

from datetime import timedelta

import pytest

from tests.sync.conftest import Desk
from tests.sync.peer import SECOND, TICK, Archive, Peer, rate_limited

HOUR = timedelta(hours=1)


def new_since(desk: Desk, count: int) -> None:
    """200 runs of yesterday were polled; since then so many came, every 10 s."""
    _yesterday(desk.peer, 200)
    desk.poll()
    desk.peer.fill(count, every=10 * SECOND)


def _yesterday(peer: Peer, count: int) -> None:
    """So many runs, every 10 s, the newest one a day old."""
    peer.fill(count, until=peer.now - 24 * HOUR, every=10 * SECOND)


def test_a_filtered_list_does_not_vouch_for_the_rest(desk: Desk) -> None:
    """500 new runs since the last walk: a list of the failed ones does not make the history complete."""
    new_since(desk, 500)
    document = desk.facts("runs", "list", "--status", "failed")

    assert desk.missing()
    assert document["complete_since"] is None
    assert document["missing"]
    assert not desk.false_claims(document)


def test_a_walk_cut_short_vouches_for_what_it_walked_only_and_goes_on(desk: Desk) -> None:
    """429 in the middle of many new pages: the cache's list does not claim the rest, which comes later."""
    new_since(desk, 600)
    desk.peer.before(16, lambda: rate_limited(desk.peer, 3_600))
    desk.poll(page_size=20)
    document = desk.facts("runs", "list", "--cached")

    assert desk.missing()
    assert not desk.false_claims(document)
    desk.settle()
    assert not desk.missing()
    assert desk.facts("runs", "list", "--cached")["complete_since"]


@pytest.mark.parametrize("hours", [-2, -1 / 60, 3])
def test_a_service_whose_clock_is_off(desk: Desk, hours: float) -> None:
    """Our own clock is no part of what is complete: the first runs of an empty service are all found."""
    desk.peer.clock_offset = hours * HOUR
    desk.poll()
    desk.peer.fill(400, every=timedelta(milliseconds=50))
    claims = [desk.facts("runs", "list", "--limit", "1")]
    desk.settle()
    claims.append(desk.facts("runs", "list", "--cached"))

    assert not desk.missing()
    assert not any(map(desk.false_claims, claims))


@pytest.mark.parametrize("paging", ["key", "offset"])
def test_runs_that_arrive_while_all_are_listed(desk: Desk, paging: str) -> None:
    """The first page is the newest that is known; what came after it is missing, and fetched later."""
    desk.peer.paging = paging
    desk.peer.fill(1_000, until=desk.peer.now - HOUR)
    for page in range(2, 12):
        desk.peer.before(page, lambda: desk.peer.fill(35, every=TICK))
    claims = [desk.facts("runs", "list", "--all"), desk.facts("runs", "list", "--cached")]

    assert desk.missing()
    assert not any(map(desk.false_claims, claims))
    desk.settle()
    assert not desk.missing()


def test_a_run_dated_in_the_future(desk: Desk) -> None:
    """One run of 2076 does not make everything before it complete."""
    _yesterday(desk.peer, 200)
    desk.peer.put("run_2076", created=desk.peer.now + timedelta(days=50 * 365))
    desk.poll()
    desk.peer.fill(700, every=SECOND)
    desk.poll()
    claim = desk.facts("runs", "list", "--cached")

    assert not desk.false_claims(claim)
    desk.settle()
    assert not desk.missing()


def test_an_old_creation_on_the_first_page(desk: Desk) -> None:
    """One run that is shown as years old among the newest does not make the years before them complete."""
    _yesterday(desk.peer, 200)
    desk.poll()
    desk.peer.fill(700, every=SECOND)
    newest = desk.peer.now + SECOND
    desk.peer.put("run_odd", created=newest, created_at="2019-03-01T00:00:00Z")
    desk.poll()
    claim = desk.facts("runs", "list", "--cached")

    assert not desk.false_claims(claim)
    desk.settle()
    assert not desk.missing()


@pytest.mark.parametrize("listed", [True, False], ids=["list", "poll"])
def test_neither_a_first_list_nor_a_first_poll_is_the_end_of_history(desk: Desk, *, listed: bool) -> None:
    """50 rows asked for before it, or the first thousand runs, leave the rest to be fetched."""
    desk.peer.fill(700 if listed else 1_200)
    if listed:
        desk.run("runs", "list")
    desk.settle()

    assert not desk.missing()
    assert desk.facts("runs", "list", "--cached")["complete_since"]


def test_a_gap_larger_than_the_limit_closes(desk: Desk) -> None:
    """12 requests at a time bring 35 pages in the end, and the active run is current all the while."""
    _yesterday(desk.peer, 200)
    desk.peer.put("run_old", "working", created=desk.peer.now - 30 * HOUR)
    desk.poll()
    desk.peer.fill(700, every=SECOND)
    desk.peer.move("run_old", "completed")
    desk.peer.limit = (12, 3_600.0)
    desk.poll(2, page_size=20)
    assert desk.missing()
    is_current = desk.held()["run_old"]["status"] == "completed"
    for _ in range(8):
        desk.peer.log.clear()  # The wait is over.
        desk.fill(page_size=20)

    assert is_current
    assert not desk.missing()


def test_unread_ids_do_not_matter_to_a_whole_history(desk: Desk) -> None:
    """A list that ended is whole, and stays so while single runs are added."""
    desk.peer.archive = Archive(range(150), newest=desk.peer.now - HOUR)
    desk.poll()
    desk.peer.put("new")
    desk.poll()
    document = desk.facts("runs", "list", "--cached", "--all")

    assert len(document["runs"]) == 151
    assert document["complete"][0]["from"] is None


@pytest.mark.parametrize("days", [0, 3], ids=["of the same days", "of older days"])
def test_another_history_at_the_same_address(desk: Desk, days: int) -> None:
    """Other runs where every run was held, as of another organization: nothing of the old claim is left."""
    desk.peer.fill(600)
    desk.poll()
    desk.peer.runs.clear()
    for n in range(500):
        desk.peer.put(f"other_{n}", created=desk.peer.now - timedelta(days=days, minutes=n, seconds=13))
    claims = [desk.facts("runs", "list", "--limit", "50"), desk.facts("runs", "list", "--cached")]

    assert desk.missing()
    assert not any(map(desk.false_claims, claims))
    desk.settle()
    assert not desk.missing()


def test_deletions_between_the_pages_of_a_list(desk: Desk) -> None:
    """Where tokens count places, runs slip past the list that reads all of them; it does not vouch for them."""
    desk.peer.paging = "offset"
    desk.peer.fill(1_000, until=desk.peer.now - HOUR)
    desk.peer.before(4, lambda: [desk.peer.runs.pop(f"run_{n:05}") for n in range(900, 920)])
    claims = [desk.facts("runs", "list", "--all"), desk.facts("runs", "list", "--cached")]

    assert desk.missing()
    assert not any(map(desk.false_claims, claims))
    desk.settle()
    assert not desk.missing()
