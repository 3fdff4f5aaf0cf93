"""The query of the runs: typing, counts and errors."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

import pytest

from app.runs.query import parse
from app.runs.screen import RunsScreen
from app.runs.screen_pickers import limits_of
from app.runs.screen_views import TableQuery
from tests.console.conftest import Scene, Staged
from tests.waiting import present
from widgets.runs.filter import SearchInput


@pytest.fixture
async def scene(staged: Staged) -> AsyncIterator[Scene]:
    """A console that shows all runs of the service."""
    async with staged() as scene:
        await scene.to_all_runs()
        yield scene


def runs(scene: Scene) -> RunsScreen:
    """The Runs screen, which must be on top."""
    assert isinstance(scene.app.screen, RunsScreen)
    return scene.app.screen


async def test_a_query_matches_parts_while_typed_and_exactly_when_kept(scene: Scene) -> None:
    """While typing, `repo:acme/p` matches parts of names; enter keeps the line, which then matches exactly."""
    await scene.press("slash", *"repo:acme/payment")
    assert {row.repository for row in scene.table.rows_on_show} == {"acme/payment-service"}
    await scene.press("enter")
    assert runs(scene).table_query == TableQuery(line="repo:acme/payment")
    assert not scene.table.window.runs

    await scene.press("escape", "slash", *"repo:acme/payment-service", "enter")
    assert {row.repository for row in scene.table.rows_on_show} == {"acme/payment-service"}


async def test_an_invalid_query_cannot_be_saved_as_a_view(scene: Scene) -> None:
    """An invalid line cannot be saved as a view, even while typing; the notice says why."""
    mistakes = {"status:exploded": "the status 'exploded'", "status:": "lacks its value", "result:fixed": "no result:"}
    for line, refusal in mistakes.items():
        await scene.press("slash", *line, "runs.save_view")
        assert isinstance(scene.app.screen, RunsScreen)
        assert any(refusal in said for said in scene.toasts), line
        await scene.press("escape", "escape")


@pytest.mark.parametrize(
    ("zone", "limits"),
    [
        ("UTC", ("2026-04-28", "2026-04-28")),
        ("America/St_Johns", ("2026-04-28T00:00-02:30", "2026-04-28T23:59:59.999999-02:30")),
    ],
)
def test_a_day_is_a_local_day(zone: str, limits: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A day includes all its seconds and none of the next day's."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    assert limits_of(date(2026, 4, 28)) == limits

    found = parse(f"since:{limits[0]} until:{limits[1]}", datetime(2026, 5, 1, tzinfo=UTC))
    since, until = present(found.filter.since), present(found.filter.until)
    assert not found.problems
    assert timedelta(days=1) - (until - since) <= timedelta(microseconds=1)
    assert since.astimezone().isoformat(timespec="minutes").startswith("2026-04-28T00:00")


def line(scene: Scene) -> str:
    return scene.app.screen.query_one(SearchInput).value


async def test_a_mistake_shows_its_fix_and_the_rest_applies(scene: Scene) -> None:
    """The line explains the error and its fix, and the valid rest applies."""
    await scene.press("slash", *"stauts:failed dark")
    assert "There is no stauts:. Did you mean status:?" in scene.text
    assert "10 of 60" in scene.text

    await scene.press("escape")
    assert line(scene) == ""
    await scene.press("slash", *"status:exploded", "enter")
    await scene.shows("There are: cancelled")


async def test_clicking_a_count_shows_its_runs(scene: Scene) -> None:
    """Clicking a count in a tab or the header shows its runs, from any tab."""
    assert "[All 60] · Active 4 · Failed 24h 4 · Stuck 1 [+]" in scene.lines[3]
    assert " of 60" not in scene.text

    await scene.press("slash", *"dark-mode")
    await scene.press("enter")
    assert "[All• 60]" in scene.lines[3]
    assert "10 of 60" in scene.lines[3]

    await scene.pilot.click(offset=(scene.lines[0].index("○ 1 queued"), 0))
    await scene.settle()
    assert line(scene) == "status:queued"
    assert len(scene.rows) == 1

    await scene.press("2")
    await scene.pilot.click(offset=(scene.lines[0].index("failed 24h"), 0))
    await scene.settle()
    assert "[Failed 24h 4]" in scene.lines[3]
    assert len(scene.rows) == 4


async def test_a_status_is_chosen_by_letters_marks_or_a_double_click(scene: Scene) -> None:
    """In the sheet of statuses, letters find a status, tab marks or excludes it, and a double click chooses it.

    What matches no status cannot be chosen.
    """
    await scene.press("s", *"fai")
    await scene.press("enter")
    assert line(scene) == "status:failed"

    await scene.press("s", "tab", "enter")
    assert line(scene) == "-status:failed"
    await scene.press("s", *"exploded", "tab", "ctrl+x")
    assert line(scene) == ""

    await scene.press("s")
    at = next((row.index("queued"), y) for y, row in enumerate(scene.lines) if "○ queued" in row and "□" in row)
    await scene.pilot.click(offset=at, times=2)
    await scene.settle()
    assert line(scene) == "status:queued"

    await scene.press("s", "ctrl+x", "s", *"zzz", "enter")
    assert line(scene) == ""
