"""`runs list` and `runs export` print runs as they arrive, and every printed claim is true, however they end."""

import csv
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest

from app.engine.engine import Engine
from app.engine.times import rfc3339
from app.sync.listing import FilterIgnoredError
from storage.records import RunFilter
from tests.lab import Respond
from tests.sync.conftest import Desk, seconds

HOUR = timedelta(hours=1)
ALL, FAILED = RunFilter(), RunFilter(statuses=("failed",))
BROKEN = Respond(500, {"message": "Out of order."})


@pytest.mark.parametrize("form", ["json", "csv"])
def test_an_error_is_printed_after_the_rows(desk: Desk, form: str) -> None:
    """A JSON document ends with the error and claims nothing; CSV reports it on stderr and by exit code."""
    desk.peer.fill(250)
    desk.peer.before(3, lambda: BROKEN)
    result = desk.run("runs", "list", "--all", "-o", form)

    *rows, last = result.out.splitlines()
    assert result.code == 8
    if form == "json":
        document = result.json()
        assert (len(document["runs"]), document["count"]) == (200, 200)
        assert document["error"]["kind"] == "server_failed"
        assert set(document) == {"runs", "count", "error"}
    else:
        assert (len(rows), "run_00050" in last) == (200, True)
        assert "Out of order." in result.err
    # An export is written completely or not at all, although its rows arrived one by one.
    desk.peer.before(3, lambda: BROKEN)
    assert desk.run("runs", "export", "--out", str(desk.folder / "runs.x")).code == 8
    assert not list(desk.folder.glob("*runs.x*"))


def test_no_run_is_printed_twice(desk: Desk) -> None:
    """New runs move runs of one page to the next."""
    desk.peer.paging = "offset"
    desk.peer.fill(250, until=desk.peer.now - timedelta(hours=1))
    desk.peer.before(2, lambda: desk.peer.fill(30))
    document = desk.facts("runs", "list", "--all")

    ids = [run["run_id"] for run in document["runs"]]
    assert (len(ids), len(set(ids))) == (250, 250)
    assert not desk.false_claims(document)


def test_the_cache_prints_the_same_as_the_service(desk: Desk) -> None:
    """The number of parts and equal times make no difference."""
    desk.peer.fill(1_050)
    desk.peer.put("run_odd", created_at="yesterday")
    outs = (desk.run("runs", "list", "--all", *more, "-o", "csv").out for more in ((), ("--cached",)))
    live, cached = (sorted(csv.reader(StringIO(out))) for out in outs)

    assert len(live) == 1_052
    assert live == cached


# the field that the service filters by


def _dated(desk: Desk) -> str:
    """30 runs, one a minute, of which the older 20 changed just now.

    Returns the creation of the 10th newest as shown.
    """
    desk.peer.fill(30, until=desk.peer.now - HOUR)
    for run_id in sorted(desk.peer.runs)[:20]:
        desk.peer.move(run_id, "failed", updated=desk.peer.now)
    for run_id in sorted(desk.peer.runs)[20:]:
        desk.peer.move(run_id, "failed", updated=desk.peer.created(run_id) + timedelta(seconds=20))
    return str(desk.peer.show_time(desk.peer.created("run_00020")))


@pytest.mark.parametrize("date_filter", ["updated_at", ""])
def test_dates_filter_by_creation(desk: Desk, date_filter: Any) -> None:
    """The service may filter by another field, and times may have whole seconds."""
    desk.peer.date_filter, desk.peer.show_time = date_filter, seconds
    moment = _dated(desk)
    since = desk.facts("runs", "list", "--from", moment, "--all")
    until = desk.facts("runs", "list", "--to", moment, "--all")

    assert {run["run_id"] for run in since["runs"]} == set(sorted(desk.peer.runs)[20:])
    assert {run["run_id"] for run in until["runs"]} == set(sorted(desk.peer.runs)[:21])


def older(desk: Desk, condition: RunFilter) -> Any:
    """How many matching runs each request below the first gap returns."""

    async def counts(engine: Engine) -> list[int]:
        before = (await engine.cache.coverage()).gaps[0].before
        return [count async for count in engine.listing.older(condition, before) if count]

    return desk.within(counts)


@pytest.mark.parametrize("peer", [{"date_filter": "updated_at"}, {"paging": "offset"}], indirect=True)
def test_older_runs_are_requested_with_their_filter(desk: Desk) -> None:
    """Two failed runs of hundreds, far below the cached ones, cost a few pages, and complete nothing."""
    desk.peer.fill(500, until=desk.peer.now - HOUR, every_s=30)
    for name, hours in (("run_a", 2.5), ("run_b", 3)):
        desk.peer.put(name, "failed", created=desk.peer.now - timedelta(hours=hours))
    desk.poll(first_runs=100)
    desk.asked()
    before = desk.within(lambda engine: engine.cache.coverage())

    assert older(desk, FAILED) == [2]
    assert desk.asked() < 10
    assert {"run_a", "run_b"}.isdisjoint(desk.missing())
    assert desk.within(lambda engine: engine.cache.coverage()) == before


@pytest.mark.parametrize("condition", [FAILED, RunFilter(search="x")])
def test_an_ignored_filter_is_noticed(desk: Desk, condition: RunFilter) -> None:
    """Only the whole list can then provide the missing runs."""
    desk.peer.ignore_status = True
    desk.peer.fill(500, until=desk.peer.now - HOUR)
    desk.poll(first_runs=100)
    desk.asked()

    with pytest.raises(FilterIgnoredError):
        older(desk, condition)
    assert desk.asked() <= 1


def test_the_last_hours_use_the_services_clock(desk: Desk) -> None:
    """The service's clock is five hours ahead of ours."""
    desk.peer.clock_offset = 5 * HOUR
    desk.peer.fill(20, until=desk.peer.now - 3 * HOUR)
    desk.peer.fill(5)
    desk.poll(3)
    for asked in (("--from", "-2h"), ("--search", "since:2h"), ("--search", "since:2h", "--cached")):
        document = desk.facts("runs", "list", *asked)

        assert [run["run_id"] for run in document["runs"]] == [f"run_{number:05}" for number in range(24, 19, -1)]


# claims about the cache


def test_a_cached_list_has_its_oldest_confirmations_age(desk: Desk) -> None:
    """Rows that were confirmed days ago do not appear to be as new as the last poll."""
    desk.peer.fill(250, until=desk.peer.now - HOUR)
    past = desk.peer.now - timedelta(days=9)
    desk.within(listed, clock=lambda: past)
    desk.poll()
    document = desk.facts("runs", "list", "--all", "--cached")
    told = desk.run("runs", "list", "--all", "--cached").err

    assert document["confirmed_since"] == rfc3339(past)
    assert document["as_of"] > document["confirmed_since"]
    assert f"150 of them were last confirmed more than 7 days ago, the oldest on {past:%Y-%m-%d}" in told
    assert "last confirmed" not in desk.run("runs", "list", "--cached").err


async def listed(engine: Engine, condition: RunFilter = ALL, limit: int | None = None) -> None:
    """The command lists everything."""
    async for _ in engine.listing.pages(condition, limit=limit):
        pass


# one run by its id


def _with_history(desk: Desk, count: int = 400) -> str:
    """A run older than the first poll reads; returns its id."""
    desk.peer.put("run_ancient", created=desk.peer.now - 20 * HOUR, updated=desk.peer.now - 19 * HOUR)
    desk.peer.fill(count, until=desk.peer.now - HOUR, every_s=10)
    desk.poll(first_runs=200)
    assert "run_ancient" in desk.missing()
    return "run_ancient"


@pytest.mark.parametrize("peer", [{}, {"date_filter": ""}], indirect=True, ids=["plain", "ignored"])
def test_an_unknown_run_is_fetched_once(desk: Desk) -> None:
    """The id or its beginning finds it; an unknown id reads the history once."""
    run_id = _with_history(desk)
    desk.asked()
    cached = desk.run("runs", "show", run_id, "--cached", "--json")
    assert (cached.code, desk.asked()) == (7, 0)
    assert "Leave out --cached" in cached.json()["error"]["message"]

    shown = desk.facts("runs", "show", "run_anc")
    assert (shown["run"]["run_id"], shown["source"]) == (run_id, "live")

    assert desk.run("runs", "wait", "run_of_nowhere", "--json").code == 7
    desk.asked()
    second = desk.run("runs", "wait", "run_of_nowhere", "--json")
    assert "The service has no run run_of_nowhere" in second.json()["error"]["message"]
    assert (second.code, desk.asked() <= 2, desk.missing()) == (7, True, set())


def test_runs_read_before_a_failure_are_kept(desk: Desk) -> None:
    """The next command continues from there."""
    run_id = _with_history(desk, 1_500)
    before = desk.missing()
    desk.peer.before(6, lambda: BROKEN)
    assert desk.run("runs", "show", run_id, "--json").code == 8
    assert desk.missing() < before

    assert desk.facts("runs", "show", run_id)["run"]["run_id"] == run_id


def test_an_unconfirmed_run_is_not_shown_as_live(desk: Desk) -> None:
    """A run that no answer confirmed is not shown as live."""
    desk.peer.fill(300, until=desk.peer.now - 2 * HOUR)
    desk.peer.put("run_old", "working", created=desk.peer.now - 9 * HOUR, created_at="yesterday")
    desk.run("runs", "list", "--all")
    del desk.peer.runs["run_old"]
    shown = desk.facts("runs", "show", "run_old")
    told = desk.run("runs", "show", "run_old").err

    assert (shown["run"]["observed"]["state"], shown["source"]) != ("current", "live")
    assert shown["as_of"] == shown["run"]["observed"]["last_seen_at"]
    assert shown["source"] == "live" or "shown as last seen" in told


def test_a_larger_total_prevents_completeness(desk: Desk) -> None:
    """If the service reports more runs than its list showed, nothing is called complete.

    The same holds for a cached part of the history without a time.
    """
    desk.peer.fill(5)
    desk.peer.total_count = 6

    assert (desk.facts("runs", "sync")["whole"], desk.facts("runs", "list", "--all")["complete"]) == (False, [])
    desk.within(lambda engine: engine.cache.extend_coverage(desk.peer.now - 3 * HOUR, desk.peer.now - HOUR))
    synced = desk.facts("runs", "sync")
    assert (synced["as_of"], synced["complete_since"], synced["whole"]) == (None, None, False)

    desk.peer.total_count = None
    assert desk.facts("runs", "sync")["whole"]
