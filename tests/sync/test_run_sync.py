"""Keeping the cached runs correct at the cost of active and new ones; `test_model` proves that no claim is false."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from app.api.errors import ApiError, RateLimitedError
from app.api.requests import RunQuery
from app.engine.engine import Engine
from app.engine.events import Event, LinkChanged, RunsChanged
from storage.records import LinkState, RunFilter
from storage.records.activity import BudgetState
from storage.values import utc_now
from tests.lab import OMITTED, Respond, Step
from tests.sync.conftest import MINUTE, Desk
from tests.waiting import until

HOUR = timedelta(hours=1)
ODD: Final[dict[str, dict[str, Any]]] = {
    "status null": {"status": None},
    "status a number": {"status": 3},
    "status missing": {"status": OMITTED},
    "repository null": {"repository": None},
    "repository missing": {"repository": OMITTED},
    "repository a string": {"repository": "acme/api"},
    "repository a list": {"repository": ["acme", "api"]},
    "platform a number": {"repository": {"platform": 7, "data": {"owner": "acme"}}},
    "data a string": {"repository": {"platform": "github", "data": "acme/api"}},
    "branch an object": {"branch_name": {"name": "main"}},
    "branch a number": {"branch_name": 12},
    "times as objects": {"created_at": {"seconds": 1}, "updated_at": [1]},
    "numeric run_id": {"run_id": 4711},
}
"""Fields of a run that can be stored, and are shown as received."""
UNIDENTIFIED: Final[dict[str, dict[str, Any]]] = {
    "run_id null": {"run_id": None},
    "run_id missing": {"run_id": OMITTED},
    "run_id empty": {"run_id": ""},
    "run_id an object": {"run_id": {"id": 1}},
}
"""Fields that make a run unusable, so that it is only counted."""
HOSTS: Final = ({"status": "healthy", "group": 7}, {}, {"status": None}, {"status": 1}, "healthy", [], {"host": {}})
"""Values in place of a known code host."""


def milliseconds(at: datetime) -> str:
    """A time to the millisecond."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def eastern(at: datetime) -> str:
    """A local time without an offset."""
    return (at + timedelta(hours=5, minutes=30)).replace(tzinfo=None).isoformat()


def held(desk: Desk) -> dict[str, Any]:
    """Every cached run, by id, with its observations."""
    lines = desk.run("runs", "list", "--cached", "--all", "--output", "ndjson").out.splitlines()
    return {run["run_id"]: run for run in map(json.loads, lines)}


def settle(desk: Desk) -> None:
    """Poll until nothing changes any more, and fetch missing history."""
    desk.poll(3)
    desk.within(lambda engine: engine.backfill.run())


@pytest.mark.parametrize(("peer", "status"), [({}, None), ({"show_time": eastern}, "completed")], indirect=["peer"])
async def test_stored_runs_do_not_end_a_walk(desk: Desk, status: str | None) -> None:
    """A stored page or filtered list that a killed process did not record leaves no hole below its runs."""
    desk.peer.fill(30, until=desk.peer.now - 100 * MINUTE)
    async with desk.engine(page_size=5, first_runs=10) as engine:
        await engine.runs.refresh()
        await engine.backfill.run()
        desk.peer.fill(40, until=desk.peer.now)
        await engine.runs.reader.page(RunQuery(status=status))
        await engine.runs.refresh()
        await engine.backfill.run()
        held = await engine.cache.count(RunFilter())

    assert held == len(desk.peer.runs)


async def test_a_continued_old_run_is_noticed(desk: Desk) -> None:
    """A continued run keeps its creation date far down the list; the sweep by status finds it."""
    desk.peer.fill(30)
    events: list[Event] = []
    async with desk.engine(page_size=5, first_runs=10) as engine:
        engine.events.subscribe(events.append)
        await engine.runs.refresh()
        desk.peer.put("odd", "thinking very hard")
        await engine.runs.refresh()
        for number in range(10):
            desk.peer.put(f"later_{number}")
        await engine.runs.refresh()
        desk.peer.move("run_00025", "working")
        desk.peer.move("odd", "working")
        await engine.runs.refresh()

    changes = [event.changes for event in events if isinstance(event, RunsChanged)]
    assert {(t.run_id, t.old, t.new) for each in changes for t in each.transitions} == {
        ("run_00025", "completed", "working"),
        ("odd", "thinking very hard", "working"),
    }


async def test_every_run_after_an_empty_list_is_news(desk: Desk) -> None:
    """News include a run that the list shows late; runs of the first list are history."""
    async with desk.engine() as engine:
        await engine.runs.refresh()
        desk.peer.put("late", "failed", created=desk.peer.now - MINUTE)
        await engine.runs.refresh()
        shown = await engine.cache.events("", 9, holds_failures=False)

    assert shown is not None
    assert [(event.run_id, event.new) for event in shown.events] == [("late", "failed")]


async def test_a_cancelled_run_is_never_shown_as_failed(desk: Desk) -> None:
    """Every change shows it as cancelled; while the service cannot be asked, it is failed."""
    told: Step = Respond(200, {"questions": [], "cancelled": ["run_b", "run_a"]})
    desk.peer.otherwise = lambda asked: told if asked.path.endswith("questions") else desk.peer.answer(asked)
    for run_id in ("run_a", "run_b", "run_c"):
        desk.peer.put(run_id, "working")
    moves: list[tuple[str, str | None, str]] = []

    async def refreshed(engine: Engine, *run_ids: str) -> dict[str, int]:
        for run_id in run_ids:
            desk.peer.move(run_id, "failed")
        await engine.runs.refresh()
        return await engine.cache.status_counts(RunFilter())

    def note(event: Event) -> None:
        if isinstance(event, RunsChanged):
            moves.extend((each.run_id, each.old, each.new) for each in event.changes.transitions)

    async with desk.begun() as engine:
        engine.events.subscribe(note)
        at_once = await refreshed(engine, "run_a", "run_c")
        told = Respond(503)
        unasked = await refreshed(engine, "run_b")
        told = Respond(200, {"questions": [], "cancelled": ["run_b", "run_a"]})
        asked = await refreshed(engine)
        touched = await refreshed(engine, "run_a")

    assert touched == asked
    assert sorted(moves) == [
        ("run_a", "working", "cancelled"),
        ("run_b", "working", "failed"),
        ("run_c", "working", "failed"),
    ]
    assert at_once == {"cancelled": 1, "failed": 1, "working": 1}
    assert unasked == {"cancelled": 1, "failed": 2}
    assert asked == {"cancelled": 2, "failed": 1}


async def test_a_failed_refresh_keeps_its_runs(desk: Desk) -> None:
    """A 429 half-way loses nothing that was read before, and claims no gap; then the link recovers."""
    desk.peer.put("run_a", "working")
    desk.peer.fill(30)
    heard: list[Event] = []
    async with desk.engine(page_size=5, first_runs=40) as engine:
        engine.events.subscribe(heard.append)
        desk.peer.before(3, lambda: desk.peer.rate_limited(3_600))
        with pytest.raises(RateLimitedError):
            await engine.runs.refresh()
        held = await engine.cache.runs(RunFilter(), limit=None)
        link = [event.state for event in heard if isinstance(event, LinkChanged)][-1]
        assert (len(held), link.is_failing, link.error_kind) == (10, True, "rate_limited")
        assert len((await engine.cache.coverage()).gaps) == 1
        await engine.client.budget.settle()
        await engine.cache.change_budget(lambda _: BudgetState())
        await engine.runs.refresh()
        link = [event.state for event in heard if isinstance(event, LinkChanged)][-1]
        assert (link.is_failing, link.failures) == (False, 0)


@pytest.mark.parametrize("peer", [{}, {"order": "updated_at"}], indirect=True, ids=["created", "updated"])
def test_runs_missing_from_sweeps_are_looked_up(desk: Desk) -> None:
    """Sweeps no longer show them: a lookup finds how one ended, and only the neighbours of the other."""
    for n, run_id in enumerate(("run_ended", "run_gone")):
        desk.peer.put(run_id, "working", created=desk.peer.now - (8 + n) * HOUR)
    desk.peer.fill(300)
    desk.poll()
    desk.peer.move("run_ended", "completed")
    desk.peer.runs.pop("run_gone")
    desk.poll()
    missing = held(desk)["run_gone"]["observed"]["state"]
    desk.poll(clock=lambda: utc_now() + MINUTE)
    shown = held(desk)
    ended, gone = shown["run_ended"], shown["run_gone"]

    assert missing == "unconfirmed", "nothing is lost that was shown in the last minute"
    assert (ended["status"], ended["observed"]["state"]) == ("completed", "current")
    assert (gone["status"], gone["observed"]["state"]) == ("working", "lost")


def test_a_filtered_list_completes_nothing(desk: Desk) -> None:
    """With 500 new runs since the last walk, a list of the failed ones does not complete the history."""
    desk.peer.fill(200, until=desk.peer.now - 24 * HOUR, every_s=10)
    desk.poll()
    desk.peer.fill(500, every_s=10)
    document = desk.facts("runs", "list", "--status", "failed")

    assert desk.missing()
    assert document["complete_since"] is None
    assert document["missing"]
    settle(desk)
    assert not desk.missing()
    assert desk.facts("runs", "list", "--cached")["complete_since"]


@pytest.mark.parametrize("days", [0, 3], ids=["of the same days", "of older days"])
def test_another_history_replaces_the_old_coverage(desk: Desk, days: int) -> None:
    """If the address now has other runs, for example another organization's, the old claim is dropped."""
    desk.peer.fill(300)
    desk.poll()
    desk.peer.runs.clear()
    for n in range(250):
        desk.peer.put(f"other_{n}", created=desk.peer.now - timedelta(days=days, minutes=n, seconds=13))
    claims = [desk.facts("runs", "list", "--limit", "50"), desk.facts("runs", "list", "--cached")]

    assert desk.missing()
    assert not any(map(desk.false_claims, claims))
    settle(desk)
    assert not desk.missing()


def test_odd_runs_are_shown_and_unusable_ones_counted(desk: Desk) -> None:
    """Each field is as received, live and cached; unusable entries are reported until a poll has none."""
    desk.peer.fill(5)
    desk.peer.total_count = "many"
    for number, fields in enumerate({**ODD, **UNIDENTIFIED}.values()):
        desk.peer.put(f"run_odd_{number}")
        desk.peer.runs[f"run_odd_{number}"].update(fields)
    kept = [run for run in desk.peer.runs.values() if isinstance(run["run_id"], int) or str(run["run_id"])[:3] == "run"]
    expected = sorted((desk.peer.document(run) for run in kept), key=str)

    assert desk.poll() == [None]
    for source in ([], ["--cached"]):
        document = desk.facts("runs", "list", *source)
        shown = [{name: value for name, value in run.items() if name != "observed"} for run in document["runs"]]
        assert sorted(shown, key=str) == expected
        assert document["dropped"] == len(UNIDENTIFIED)
    assert str(len(UNIDENTIFIED)) in desk.run("runs", "list").err
    for number in range(len(ODD), len(ODD) + len(UNIDENTIFIED)):
        del desk.peer.runs[f"run_odd_{number}"]
    desk.poll()
    assert "dropped" not in desk.facts("runs", "list", "--cached")


@pytest.mark.parametrize(
    ("peer", "status", "cost"),
    [
        ({}, "completed", 4),
        ({}, "archived", 5),
    ],
    indirect=["peer"],
    ids=["plain", "a status of very many"],
)
def test_an_idle_polls_cost_does_not_grow_with_history(desk: Desk, status: str, cost: int) -> None:
    """With 20 active runs it requests the newest page, one sweep each for queued and working, and health."""
    desk.peer.fill(400, status, until=desk.peer.now - 3 * HOUR, every_s=1)
    desk.peer.fill(20, "working", until=desk.peer.now - 2 * HOUR)

    assert desk.poll(4) == [None] * 4
    desk.asked()
    desk.within(Engine.refresh)
    assert desk.asked() <= cost


# the cost


# whose link it is


@pytest.mark.parametrize(("status", "kind"), [(401, "not_authorized")])
def test_a_refused_refresh_does_not_change_anothers_link(desk: Desk, status: int, kind: str) -> None:
    """A process with an expired token reports that itself, and does not change the others' link.

    If it is the only process, it is the link's state.
    """
    desk.peer.refused["expired"] = status
    desk.peer.fill(5)
    told: list[Event] = []

    async def links() -> tuple[LinkState, ...]:
        async with desk.engine(token="good") as poller, desk.engine(token="expired") as other:
            poller.start_polling()
            await until(
                lambda: sum(request.status == 200 for request in desk.peer.requests) >= 4, "the poller has polled"
            )
            other.events.subscribe(told.append)
            for refresh in (other.runs.refresh, other.health.refresh):
                with pytest.raises(ApiError):
                    await refresh()
            return await poller.cache.links()

    assert [link.error_kind for link in asyncio.run(links())] == [None, None]
    failures = [event.own_failure for event in told if isinstance(event, LinkChanged) and event.own_failure]
    assert [failure.http_status for failure in failures] == [status] * 2
    desk.poll(token="expired")
    assert desk.within(lambda engine: engine.cache.links())[0].error_kind == kind
