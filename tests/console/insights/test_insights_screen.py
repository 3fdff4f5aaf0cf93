"""The Insights room, over the real cache."""

import csv
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from textual.widgets import Input

from app.insights.screen import SPANS
from storage.records import Repository, Run
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.lab import Lab
from widgets.insights import OutcomesChart, share

STATUSES = ("completed",) * 8 + ("failed",)
NAMES = (
    "acme/api",
    "acme/web",
    "gitlab:acme/tools",
    "acme/a-repository-with-a-very-long-name-indeed",
    "[/b]\x1b[2J/\u202eevil",
)


async def show_a_month(scene: Scene) -> None:
    """The screen over runs of 40 days, at least three a day."""
    runs = []
    for number in range(240):
        created = scene.clock() - timedelta(hours=4.03 * number)
        took = timedelta(minutes=1 + number * 37 % 50)
        name = NAMES[number * 7 % 5]
        platform, _, path = name.rpartition(":")
        owner, _, repo = path.partition("/")
        data: dict[str, object] = {"project_path": path} if platform else {"owner": owner, "repo": repo}
        repository = Repository.of(platform or "github", data)
        status = STATUSES[number % 9]
        runs.append(Run(f"run_{number:05}", status, "main", repository, created, created + took, "{}"))
    await scene.engine.cache.store_runs(runs, asked_at=scene.clock())
    await scene.engine.cache.extend_coverage(runs[-1].created_at, scene.clock())
    await scene.press("4")


@pytest.fixture
def empty_board(board: Lab) -> Lab:
    """A service without runs."""
    board.runs.clear()
    return board


async def test_a_figure_opens_the_runs_it_counts(staged: Staged, empty_board: Lab, tmp_path: Path) -> None:
    """A repository's row and a day's bar open their runs.

    Figures can be exported; a month exceeds the complete period.
    """
    async with staged(WIDE) as scene:
        await show_a_month(scene)
        await exported(scene, tmp_path)
        await scene.press("enter")
        assert "repo:acme/api since:2026-04-25" in scene.text
        assert "9 of 240" in scene.text

        await scene.press("backspace", "left", "left", "left")
        assert "Wed 29 Apr: 6 runs, 1 failed" in scene.text
        await scene.press("enter")
        assert "since:2026-04-29 -since:2026-04-30" in scene.text
        assert "6 of 240" in scene.text

        await scene.press("backspace", "t")
        assert "[30d]" in scene.text
        assert "179 runs since 2 Apr" in scene.text


async def test_incomplete_figures_are_marked(staged: Staged, empty_board: Lab) -> None:
    """The figures cover a month, of which the cache has ten days."""
    async with staged(WIDE, synced=False) as scene:
        created = scene.clock() - timedelta(days=10)
        run = Run("run_1", "failed", "main", Repository.parse("acme/api"), created, created, "{}")
        await scene.engine.cache.store_runs([run], asked_at=scene.clock())
        await scene.engine.cache.extend_coverage(created, scene.clock())
        await scene.press("4", "t")

        assert "complete since 21 Apr 22:00, older is partial" in scene.text
        region = scene.app.screen.query_one(OutcomesChart).region
        drawn = [line[region.x : region.right] for line in scene.lines[region.y : region.bottom]]
        assert "".join(drawn).count("·") == 19 * 3, "three cells each"


async def exported(scene: Scene, folder: Path) -> None:
    """The shown numbers are written to the named file, in the format of its extension."""
    table, document = folder / "figures.csv", folder / "figures.json"
    for path in (table, document):
        await scene.press("x")
        scene.app.screen.query_one(Input).value = str(path)
        await scene.press("enter")
        assert f"Written: {path}" in str(scene.toasts)

    figures = json.loads(document.read_text("utf-8"))
    assert figures["complete"] is True
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    assert len(rows) == figures["count"]
    for each in (rows, figures["figures"]):
        failed = [int(row["value"]) for row in each if (row["figure"], row["measure"]) == ("outcomes by day", "failed")]
        assert sum(failed) == 4
        assert {row["repository"] for row in each} >= {"acme/api", "gitlab:acme/tools"}
    assert "\x1b" not in table.read_text("utf-8")


async def test_export_replaces_a_file_only_when_confirmed(staged: Staged, tmp_path: Path) -> None:
    """The existing file stays until the second confirmation."""
    path = tmp_path / "old.json"
    path.write_text("precious")
    async with staged(SMALL) as scene:
        await scene.press("4")
        await scene.press("x")
        field = scene.app.screen.query_one(Input)
        field.value = str(path)
        await scene.press("enter")
        await scene.press("enter")
        await scene.shows("The file exists: ctrl+s replaces it, esc keeps it.")
        kept = path.read_text()
        await scene.press("ctrl+s")

    assert kept == "precious"
    assert json.loads(path.read_text())["figures"]


WEEK = SPANS[1]


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sets a time zone whose clock changes twice a year."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_days_begin_at_local_midnight_across_clock_changes(berlin: None) -> None:
    """29 March 2026 has 23 hours in Berlin."""
    edges = WEEK.edges(datetime(2026, 3, 31, 10, tzinfo=UTC))

    lengths = [end - start for start, end in pairwise(edges)]
    assert len(lengths) == 7
    assert lengths[4] == timedelta(hours=23)
    assert {length for index, length in enumerate(lengths) if index != 4} == {timedelta(hours=24)}
    assert all(edge.astimezone().hour == 0 for edge in edges)


@pytest.mark.parametrize(
    ("part", "said"), [(None, "-"), (0.0, "0%"), (0.001, "1%"), (0.5, "50%"), (0.9999, "99%"), (1.0, "100%")]
)
def test_a_share_below_all_is_never_shown_as_100(part: float | None, said: str) -> None:
    """One failure in ten thousand is not shown as 100%."""
    assert share(part) == said
