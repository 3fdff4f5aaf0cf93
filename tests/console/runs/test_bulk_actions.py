"""What can be done with many runs at once."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.console.runs import bulk_actions
from app.console.runs.bulk_actions import BulkActions
from app.console.runs.export import Export, write
from app.console.runs.many_form import ManyForm
from app.console.runs.preferences import PreferencesFile, PreferencesWriter
from app.console.runs.query_controller import QueryController
from app.console.sheets.export import ExportScreen
from storage.records import RunFilter, RunSort
from tests.console.runs.conftest import Desk
from widgets.runs.table import RunTable

READ: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    ".csv": lambda text: list(csv.DictReader(text.splitlines())),
    ".ndjson": lambda text: [json.loads(line) for line in text.splitlines()],
    ".json": lambda text: json.loads(text)["runs"],
}


class Held:
    """The actions over a table of which nothing is on show."""

    def __init__(self, desk: Desk) -> None:
        file = PreferencesFile.of(desk.settings, desk.settings.profile())
        preferences = PreferencesWriter(file, desk.started.append, desk.said.append)
        self.desk = desk
        self.query = QueryController(desk.context, preferences, row=lambda: None, changed=lambda _: None)
        self.table = RunTable(desk.clock)
        self.actions = BulkActions(desk.context, self.query, self.table)

    @property
    def marks(self) -> tuple[str, ...]:
        return self.table.marks.ids


@pytest.fixture
async def held(desk: Desk) -> Held:
    return Held(desk)


async def test_all_that_match_are_marked_and_unmarked(held: Held) -> None:
    """In the order of the table; marks of other runs stay."""
    held.table.mark_all(["run_4"])
    held.query.set_line("branch:main")
    held.actions.do("mark_all")
    await held.desk.work()
    assert held.marks == ("run_4", "run_1", "run_2")

    held.actions.do("mark_all")
    await held.desk.work()
    assert held.marks == ("run_4",)


async def test_a_range_is_marked_in_either_direction(held: Held) -> None:
    """A filter that hides one end leaves the other; one that hides both leaves nothing."""
    held.actions.mark_range("run_3", "run_1")
    await held.desk.work()
    assert held.marks == ("run_1", "run_2", "run_3")

    held.table.unmark()
    held.query.set_line("branch:main")
    held.actions.mark_range("run_3", "run_2")
    held.actions.mark_range("run_3", "run_4")
    await held.desk.work()
    assert held.marks == ("run_2",)


async def test_more_than_the_cap_are_not_marked(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the cap and what to do."""
    monkeypatch.setattr(bulk_actions, "MOST_MARKS", 2)
    held.actions.do("mark_all")
    held.actions.mark_range("run_1", "run_3")
    await held.desk.work()

    assert held.marks == ()
    assert held.desk.said == [
        "4 runs match; at most 2 are marked at a time. Narrow the filter first.",
        "That would mark 3 runs; at most 2 are marked at a time.",
    ]


async def test_the_marked_runs_are_continued_and_those_sent_to_unmarked(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that were left out stay marked; the service is asked for the others."""
    held.table.mark_all(["run_1", "run_2"])
    held.actions.do("continue")
    await held.desk.work()
    form, _ = held.desk.screens[-1]
    assert isinstance(form, ManyForm)

    monkeypatch.setattr(type(form), "confirmed", ("run_1",))
    held.desk.answer(None)
    assert held.marks == ("run_2",)
    assert held.desk.polled == ["now"]


@pytest.mark.parametrize(
    ("action", "marks", "said"),
    [
        ("retry", ("run_1", "run_2", "run_4"), "Nothing to retry: 2 did not fail, 1 not started from this machine."),
        ("retry", (), "Nothing to retry: no run is marked."),
        ("continue", ("run_4",), "Nothing to continue: 1 still active, and a turn has to end first."),
    ],
)
async def test_where_nothing_can_be_done_it_is_said_at_once(
    held: Held, action: str, marks: tuple[str, ...], said: str
) -> None:
    """And why; no form opens."""
    held.table.mark_all(marks)
    held.actions.do(action)
    await held.desk.work()

    assert held.desk.said == [said]
    assert held.desk.screens == []


def test_ids_are_copied_a_line_each(held: Held) -> None:
    """As safe text, in the order of the marks."""
    held.table.mark_all(["run_2", "run_\x1b[2J"])
    held.actions.do("copy_id")

    assert held.desk.copied[0].splitlines()[0] == "run_2"
    assert "\x1b" not in held.desk.copied[0]
    assert held.desk.said == ["Copied 2 run ids"]


@pytest.mark.parametrize(("marks", "title"), [((), "Export 4 matching runs"), (("run_1",), "Export 1 marked run")])
async def test_an_export_is_of_the_marked_runs_or_of_all_that_match(
    held: Held, marks: tuple[str, ...], title: str
) -> None:
    """The sheet names how many; what it says in the end is said on the screen."""
    held.table.mark_all(marks)
    held.actions.do("export")
    await held.desk.work()
    sheet, _ = held.desk.screens[-1]
    assert isinstance(sheet, ExportScreen)
    assert title == sheet.TITLE_TEXT

    held.desk.answer("4 runs written to x.csv")
    assert held.desk.said == ["4 runs written to x.csv"]


@pytest.mark.parametrize("suffix", READ)
async def test_runs_are_exported_whole(desk: Desk, tmp_path: Path, suffix: str) -> None:
    """All that match; the file is its owner's alone."""
    path = tmp_path / f"out{suffix}"
    count = await write(Export(desk.engine, RunFilter(branches=("main",)), RunSort(), ()), path)
    runs = READ[suffix](path.read_text())

    assert count == 2
    assert [(run["run_id"], run["status"]) for run in runs] == [("run_1", "failed"), ("run_2", "completed")]
    assert path.stat().st_mode & 0o777 == 0o600
    if suffix == ".json":
        assert json.loads(path.read_text())["count"] == 2
        assert {"first_seen_at", "state", "stuck", "transitions"} <= set(runs[0]["observed"])


def test_the_summary_names_the_keys_where_there_is_room(held: Held) -> None:
    """Otherwise the count alone."""
    held.table.mark_all(["run_1"])

    assert held.actions.summary(is_wide=False) == "■ 1 marked"
    assert held.actions.summary(is_wide=True).startswith("■ 1 marked · c continues")
