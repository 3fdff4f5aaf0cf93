"""Finding runs: the line, its offers, the pickers that write into it, and views."""

import asyncio

import pytest

from app.console.app import RunwardenApp
from storage.records import RunFilter, RunSort
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.scenes import app_on
from tests.lab import Lab
from widgets.runs.filter import SearchInput


def line(scene: Scene) -> str:
    return scene.app.screen.query_one(SearchInput).value


async def a_mistake_is_said_with_its_cure_and_the_rest_counts(scene: Scene) -> None:
    """At 80 columns as well."""
    await scene.press("slash", *"stauts:failed dark")
    assert "There is no stauts:. Did you mean status:?" in scene.text
    assert "10 of 60" in scene.text

    await scene.press("escape")
    assert line(scene) == ""
    for typed, said in (("status:exploded", "There are: cancelled"), ("status:faild", "Did you mean failed?")):
        await scene.press("slash", *typed)
        assert "No run that was" not in scene.text  # It may still become one.
        await scene.press("enter")
        await scene.shows(said)
        await scene.press("escape")


async def a_repository_is_found_by_a_few_letters_and_a_stretch_of_time_by_preset_or_by_hand(scene: Scene) -> None:
    """Enter takes the best match, or a pattern with a star; tab marks several, and once more excludes.

    The line keeps what was written; what is not a valid time stays to be corrected.
    """
    await scene.press("runs.repositories")
    await scene.shows("□ acme/api")
    await scene.press("p", "s", "enter")
    assert line(scene) == "repo:acme/payment-service"
    assert "12 of 60" in scene.text

    await scene.press("runs.repositories", "ctrl+x")
    await scene.press("runs.repositories", *"tools", "tab", "tab", "enter")
    assert line(scene) == "-repo:gitlab:acme/tools"
    assert "48 of 60" in scene.text

    await scene.press("escape", "b", *"agent/", "asterisk", "enter")
    assert line(scene) == "branch:agent/*"
    assert "30 of 60" in scene.text

    await scene.press("escape", "t", "j", "enter")
    assert line(scene) == "since:1h"
    assert 0 < len(scene.rows) < 10

    await scene.press("t")
    await scene.press("tab", "tab", *"2026-05-01", "enter")
    assert line(scene) == "since:1h until:2026-05-01"

    await scene.press("t", "tab", "x", "enter")
    assert "is not a valid time" in scene.text


async def a_name_that_is_taken_is_not_taken_again(scene: Scene) -> None:
    """Built-in views keep theirs, and cannot be forgotten."""
    await scene.press("runs.save_view", *"active", "enter")
    assert "built in has this name" in scene.text

    await scene.press("escape", "runs.views", "delete")
    assert "All is built in." in scene.toasts

    await scene.press("runs.views", "j", "enter")
    assert "[Active " in scene.text


async def test_runs_are_found_at_80_columns(staged: Staged) -> None:
    """By what is typed, by the pickers, and in views."""
    async with staged(SMALL) as scene:
        await scene.prove(
            a_mistake_is_said_with_its_cure_and_the_rest_counts,
            a_repository_is_found_by_a_few_letters_and_a_stretch_of_time_by_preset_or_by_hand,
            a_name_that_is_taken_is_not_taken_again,
        )


async def every_count_leads_to_its_list(scene: Scene) -> None:
    """Tabs and the first line count; a click shows those runs, from any tab."""
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


async def what_is_typed_is_completed_from_the_cache(scene: Scene) -> None:
    """Offers stand below the line; down chooses, tab takes, and a click does both."""
    await scene.press("slash", *"repo:a")
    assert "▸ acme/api" in scene.text

    await scene.press("down", "tab")
    assert line(scene).startswith("repo:acme/")
    assert line(scene) != "repo:acme/api "

    await scene.press(*"st")
    await scene.pilot.click("SuggestionList", offset=(5, 0))
    await scene.settle()
    assert line(scene).endswith(" status:")

    await scene.press("escape")
    assert "▸ " not in scene.lines[5]


async def test_runs_are_found_by_counts_and_offers(staged: Staged) -> None:
    """By the mouse as by keys."""
    async with staged() as scene:
        await scene.prove(every_count_leads_to_its_list, what_is_typed_is_completed_from_the_cache)


async def test_what_is_shown_becomes_a_view_and_is_there_next_time(staged: Staged, board: Lab) -> None:
    """With its order; the last view and order open the next console, before the service is asked."""
    async with staged() as scene:
        await scene.press("slash", *"branch:agent/* -status:completed")
        await scene.press("enter", "runs.order", "enter")
        await scene.press("runs.save_view", *"Agents", "enter")
        assert "[Agents" in scene.text
        remembered = scene.rows

        app = app_on(scene.app.settings, scene.clock, scene.engine)
        async with app.run_test(size=(140, 40)) as pilot:
            again = Scene(pilot, scene.engine, scene.clock)
            assert isinstance(pilot.app, RunwardenApp)
            assert pilot.app.session.first is not None
            assert pilot.app.session.first.total == len(remembered)
            await again.settle()
            assert "[Agents" in again.text
            assert again.rows == remembered
            assert "started ↑" in again.text

            await again.press("runs.views", "delete")
            assert "Deleted the view Agents. Press u to undo." in again.toasts[-1]
            assert "Agents" not in again.lines[3]
            await again.press("u")
            assert "[Agents" in again.lines[3]
            await again.press("runs.views", "delete", "]", "u")
            assert "Agents" not in again.lines[3], "something else was changed since"


async def test_a_search_is_given_up_for_the_next_letter(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading that is under way is cancelled; only the last one's rows come."""
    async with staged() as scene:
        query = scene.app.screen
        given_up: list[RunFilter] = []
        arrived = asyncio.Event()
        cache, rows = scene.engine.cache, scene.engine.cache.rows

        async def slow(condition: RunFilter, sort: RunSort, *, offset: int, limit: int) -> object:
            try:
                if condition.search == "dark":
                    arrived.set()
                    await asyncio.Event().wait()
                return await rows(condition, sort, offset=offset, limit=limit)
            except asyncio.CancelledError:
                given_up.append(condition)
                raise

        monkeypatch.setattr(cache, "rows", slow)
        query.set_line("dark")
        await arrived.wait()
        query.set_line("flaky")
        await scene.settle()

        assert [condition.search for condition in given_up] == ["dark"]
        assert all("flaky-retry" in row for row in scene.rows)
