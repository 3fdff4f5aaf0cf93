"""The Insights room, over the real cache."""

import csv
import json
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.widgets import Input

from app.api.errors import UnreachableError
from storage.records import Repository, Run
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.insights.month import show
from tests.run_board import Board
from widgets.insights.charts import Chart


async def test_charts_say_what_they_show_by_more_than_colour(staged: Staged, empty_board: Board) -> None:
    """Each series has its glyph, its word and its number."""
    async with staged(WIDE) as scene:
        await show(scene)
        text = scene.text

    assert "xx 4 failed" in text
    assert "██ 38 completed" in text
    assert "42 runs since 25 Apr · complete" in text
    assert "Success and duration by repository" in text
    assert "● p50" in text
    assert "▲ p95" in text


async def test_keys_choose_the_stretch_of_time(staged: Staged, empty_board: Board) -> None:
    """A day by the hour, a month by the day; the month is longer than what is complete."""
    async with staged(WIDE) as scene:
        await show(scene, "d")
        day = scene.text
        await scene.press("m")
        month = scene.text

    assert "Outcomes by hour" in day
    assert "[24h]" in day
    assert "since 23:00 yesterday" in day
    assert "[30d]" in month
    assert "179 runs since 2 Apr" in month


async def test_what_is_not_known_completely_is_said(staged: Staged, empty_board: Board) -> None:
    """A month of which ten days are held."""
    async with staged(WIDE, synced=False) as scene:
        created = scene.clock() - timedelta(days=10)
        run = Run("run_1", "failed", "main", Repository.parse("acme/api"), created, created, "{}")
        await scene.engine.cache.store_runs([run], seen_at=scene.clock())
        await scene.engine.cache.extend_coverage(created, scene.clock())
        await scene.press("4", "m")

        assert "complete since 21 Apr 22:00, older is partial" in scene.text
        assert sum(line.count("·") for line in scene.lines[8:21]) == 19
        await scene.press("t", "G")
        assert "(partial)" in scene.text


async def test_the_same_numbers_stand_in_tables(staged: Staged, empty_board: Board) -> None:
    """Under t; t again brings the charts back."""
    async with staged(SMALL) as scene:
        await show(scene, "t")
        tables = scene.text
        await scene.press("pagedown")
        further = scene.text
        await scene.press("t")
        charts = scene.text

    assert "Outcomes of the last 7 days, by the day of creation" in tables
    assert "Fri 1 May" in tables
    assert "acme/api" in tables + further
    assert "Outcomes by day" in charts


async def test_by_mouse(staged: Staged, empty_board: Board) -> None:
    """A click on a stretch of time, on a key's hint; the wheel scrolls."""
    async with staged(SMALL) as scene:
        await show(scene)
        await scene.pilot.click("#insight-spans", offset=(15, 0))
        await scene.settle()
        text = scene.text
        scroller = scene.app.screen._scroller
        scroller.scroll_down(animate=False)
        await scene.settle()

        assert "[30d]" in text
        assert scroller.scroll_y > 0


async def test_nothing_foreign_reaches_the_terminal(staged: Staged, empty_board: Board) -> None:
    """A repository's name is anyone's."""
    async with staged(WIDE) as scene:
        await show(scene)
        charts = scene.text
        await scene.press("t", "pagedown")

        for text in (charts, scene.text):
            assert not {"\x1b", "\u202e"} & set(text)
        assert "[/b]" in charts


async def test_no_runs_in_a_stretch_says_where_to_look(staged: Staged, board: Board) -> None:
    """And nothing can be exported."""
    async with staged(SMALL) as scene:
        scene.clock.move(days=5)
        await scene.sync()
        await scene.press("4", "d")
        day = scene.text

        assert "No run was created in the last 24 hours" in day
        assert "w looks at the last 7 days." in day
        assert scene.app.screen.check_action("export", ()) is None

        await scene.press("w")
        assert "60 runs" in scene.text


async def test_nothing_known_yet_is_not_called_nothing(staged: Staged, empty_board: Board) -> None:
    """Before the first answer the service is being asked; where it fails, nobody knows; then there is nothing."""
    async with staged(SMALL, synced=False) as scene:
        await scene.press("4")
        assert "Asking the service for its runs" in scene.text

        await scene.engine.runs.record(UnreachableError("gone"))
        await scene.settle()
        await scene.tick(seconds=1)
        assert scene.text.count("The service cannot be reached") == 1
        assert "No poll has succeeded yet" in scene.text

        await scene.sync()
        await scene.tick(seconds=1)
        assert "No run was created in the last 7 days" in scene.text


async def test_new_runs_are_counted_while_somebody_looks_but_not_at_every_ring(
    staged: Staged, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures are made again after a while, once for all that came."""
    async with staged(WIDE) as scene:
        await scene.press("4")
        readings = 0
        read = scene.app.screen._reader.ask

        def ask() -> None:
            nonlocal readings
            readings += 1
            read()

        monkeypatch.setattr(scene.app.screen._reader, "ask", ask)
        for number in range(3):
            board.put(f"run_new{number}", "failed", created=599.0, updated=599.5)
            await scene.sync()
        at_once = readings
        await scene.tick(seconds=6)

        assert (at_once, readings) == (0, 1)
        assert "63 runs" in scene.text


@pytest.mark.parametrize("suffix", ["csv", "json"])
async def test_export_writes_the_numbers_on_show(
    staged: Staged, empty_board: Board, tmp_path: Path, suffix: str
) -> None:
    """To the file that is shown, as its name says."""
    path = tmp_path / f"figures.{suffix}"
    async with staged(WIDE) as scene:
        await show(scene, "e")
        suggested = scene.app.screen.query_one(Input).value
        scene.app.screen.query_one(Input).value = str(path)
        await scene.press("enter")
        said = str(scene.toasts)

    assert suggested.endswith("runwarden-acme-prod-7d-2026-05-01.csv")
    assert f"Written: {path}" in said
    if suffix == "json":
        document = json.loads(path.read_text("utf-8"))
        assert sum(each["failed"] for each in document["outcomes"]) == 4
        assert {each["repository"] for each in document["repositories"]} >= {"acme/api", "gitlab:acme/tools"}
        assert document["complete"] is True
    else:
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        failed = [int(row["value"]) for row in rows if (row["figure"], row["measure"]) == ("outcomes", "failed")]
        assert sum(failed) == 4
        assert "\x1b" not in path.read_text("utf-8")


async def test_export_replaces_a_file_only_when_told_twice(staged: Staged, board: Board, tmp_path: Path) -> None:
    """And refuses what it cannot write, with the cure."""
    path = tmp_path / "old.json"
    path.write_text("precious")
    async with staged(SMALL) as scene:
        await scene.press("4")
        await scene.press("e")
        field = scene.app.screen.query_one(Input)
        for name, said in (("old.txt", "End the name in .csv or .json"), ("no/such.csv", "There is no folder")):
            field.value = str(tmp_path / name)
            await scene.press("enter")
            assert said in scene.text
        field.value = str(path)
        await scene.press("enter")
        assert "Enter again replaces it" in scene.text
        kept = path.read_text()
        await scene.press("enter")

    assert kept == "precious"
    assert json.loads(path.read_text())["outcomes"]


async def test_a_cache_that_cannot_be_read_is_said(staged: Staged, board: Board) -> None:
    """In the banner; the figures stay."""
    async with staged(WIDE) as scene:
        await scene.press("4")
        await scene.engine.cache.close()
        await scene.press("d")

        # The path before it is as long as the machine likes.
        assert "was closed" in " ".join(scene.text.split())
        assert scene.app.screen.query_one("#insight-outcomes-chart", Chart).view is not None


async def test_the_days_below_a_chart_are_named_at_even_distances(staged: Staged) -> None:
    """None is left out between two that are named; the first one only where the edge would push it."""
    async with staged(WIDE) as scene:
        await scene.press("4")
        (days,) = [line for line in scene.lines if line.count("28 Apr") == 2]

        outcomes, concurrency = days[3:70].rstrip(" │"), days[70:].strip(" │")
        assert " ".join(outcomes.split()) == "25 Apr 26 Apr 27 Apr 28 Apr 29 Apr 30 Apr 1 May"
        assert " ".join(concurrency.split()) == "26 Apr 27 Apr 28 Apr 29 Apr 30 Apr 1 May"

        for size, key, least in ((WIDE, "d", 4), (WIDE, "m", 5), (SMALL, "d", 6), (SMALL, "m", 10)):
            await scene.pilot.resize_terminal(*size)
            await scene.press(key)
            chart = scene.app.screen.query_one("#insight-outcomes-chart", Chart)
            names = named_below(scene, chart.region)
            assert len(names) >= least
            assert len({after - before for before, after in pairwise(names)}) <= 2


def named_below(scene: Scene, region: Region) -> list[int]:
    """Where the names below a chart end."""
    line = scene.lines[region.bottom - 1][region.x : region.right]
    return [match.end() for match in re.finditer(r"\S+( [A-Z]\w+)?", line)]
