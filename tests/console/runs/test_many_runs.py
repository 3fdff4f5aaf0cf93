"""What is done with the run under the cursor, and with many at once."""

import csv
import json
import os
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.screen_many import ManyForm
from app.actions.screen_writes import ContinueRunForm, NewRunForm
from app.console.sheets import ExportScreen
from app.runs import screen_actions as run_actions
from app.runs.screen import RunsScreen
from app.runs.screen_export import Export, write
from storage.records import RunFilter, RunSort
from tests.console.conftest import Scene, Staged
from tests.lab import Lab, Received, Step
from tests.waiting import until

READ: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    ".csv": lambda text: list(csv.DictReader(text.splitlines())),
    ".ndjson": lambda text: [json.loads(line) for line in text.splitlines()],
    ".json": lambda text: json.loads(text)["runs"],
}


async def test_a_form_is_shown(staged: Staged) -> None:
    """For the run under the cursor, or for all that are marked; where nothing can be done, it is said at once."""
    async with staged() as scene:
        for keys, form in (
            ("n", NewRunForm),
            ("c", ContinueRunForm),
            (("space", "space", "space", "space", "c"), ManyForm),
        ):
            await scene.press(*keys)
            assert type(scene.app.screen) is form
            await scene.press("escape")
        for query, key, said in (("status:failed", "T", "Nothing to retry"), ("is:active", "c", "Nothing to continue")):
            await scene.press("escape", "escape", "slash", *query, "enter", "asterisk", key)
            assert scene.toasts[-1].startswith(said)
            assert isinstance(scene.app.screen, RunsScreen)


async def test_a_retry_warns_while_the_code_host_is_down(staged: Staged, board: Lab) -> None:
    """Only of the hosts that the retried runs are on."""
    for run_id in board.runs:
        board.turns[run_id] = {"turns": [{"number": 1, "instructions": "Fix it."}]}
    async with staged() as scene:
        for host, is_warned in (("gitlab", False), ("github", True)):
            board.health = {"github": "ok", "gitlab": "ok"} | {host: "unreachable"}
            await scene.sync()
            await scene.press("slash", *"status:failed repo:github:*", "enter", "T")
            await scene.shows("Retry failed runs")
            warning = f"Code host {host} is unreachable: what is retried now may fail again."
            assert (warning in scene.toasts) == is_warned, scene.toasts
            await scene.press("escape", "escape", "escape")


async def test_marked_runs_are_cancelled_and_no_other(staged: Staged, board: Lab) -> None:
    """The dialog names them and says what its two keys do; enter does nothing. One that has ended is counted."""
    async with staged() as scene:
        await scene.press("slash", *"is:active", "enter", "space", "space")
        marked = set(scene.table.marks.ids)
        await scene.press("f")
        for run_id in marked:
            board.turns[run_id] = {"turns": []}
        (ended,) = [run.run_id for run in await scene.engine.cache.runs(RunFilter(statuses=("completed",)), 1)]
        scene.table.mark([ended])
        await scene.press("j", "X")
        assert all(run_id in scene.text for run_id in marked)
        await scene.shows("1 more marked run has ended already.", "ctrl+s Cancel 2 runs", "esc Keep them")
        assert "esc close" not in scene.text
        await scene.press("enter")
        await scene.shows("Press ctrl+s to cancel 2 runs.")
        await scene.press("ctrl+s")
        await until(lambda: isinstance(scene.app.screen, RunsScreen), "the dialog closes")
        actions = await scene.engine.ledger.actions(limit=9)

        assert len(marked) == 2
        assert {action.result_id for action in actions} == marked
        details = await scene.engine.cache.details(tuple(marked))
        assert {each.run.status for each in details.values()} == {"cancelled"}
        assert "2 runs were cancelled." in scene.toasts
        await scene.sync()
        assert [title for title in scene.titles if "ancelled" in title] == [], "who did it knows"


async def test_the_run_is_copied_and_opened_by_the_template(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON is as received; where there is no browser, the address is said."""
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    async with staged(toasts=True) as scene:
        assert scene.table.row is not None
        run_id = scene.table.row.run_id
        await scene.press("y")
        assert scene.app.clipboard == run_id
        await scene.press("run.copy_json")
        assert json.loads(scene.app.clipboard)["run_id"] == run_id
        await scene.press("o")
        assert scene.toasts[-1].startswith("No browser found. The address: https://")


@pytest.mark.parametrize(
    ("within", "takes", "said"),
    [
        ("TMUX", "load-buffer -w -", "copied to tmux and sent to the terminal's clipboard."),
        ("TMUX", "load-buffer -", "copied to tmux."),
        ("TMUX", "nothing", "not copied: tmux did not take it."),
        ("STY", "", "not copied: GNU screen does not pass it on."),
    ],
)
async def test_copying_says_how_far_it_came(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, within: str, takes: str, said: str
) -> None:
    """Tmux does not take a clipboard sequence from a program, and GNU screen swallows it."""
    tmux, taken = tmp_path / "tmux", tmp_path / "taken"
    tmux.write_text(f'#!/bin/sh\n[ "$*" = "{takes}" ] && exec cat > {taken}\nexit 1\n')
    tmux.chmod(0o700)
    monkeypatch.setenv(within, "x")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    async with staged(toasts=True) as scene:
        assert scene.table.row is not None
        run_id = scene.table.row.run_id
        await scene.press("y")

        assert scene.toasts[-1] == f"{run_id} {said}"
        assert not said.startswith("copied") or taken.read_text() == run_id


async def test_what_is_done_with_one_run_is_done_with_the_marked_one(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the one under the cursor; several are copied together, and where only one can be meant, it is said."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    async with staged(toasts=True) as scene:
        await scene.press("space", "space")
        first, second = scene.table.marks.ids
        await scene.press("o", "run.copy_json")
        assert [run["run_id"] for run in json.loads(scene.app.clipboard)] == [first, second]
        assert scene.toasts[-2:] == [
            "2 runs are marked: only one is opened. esc unmarks them.",
            "The JSON of 2 runs sent to the terminal's clipboard.",
        ]
        await scene.press("a")
        assert "2 runs of 2 repositories are marked: name one of these." in scene.toasts
        assert isinstance(scene.app.screen, NewRunForm)
        assert scene.app.screen.values["repository"] == ""
        await scene.press("escape")

        scene.table.mark([second], is_marked=False)
        detail = await scene.engine.cache.detail(first)
        assert detail is not None
        for key, field in (("a", "name"), ("n", "instructions")):
            await scene.press(key)
            assert isinstance(scene.app.screen, NewRunForm)
            assert scene.app.screen.fields[field].has_focus_within
            assert scene.app.screen.values["repository"] == detail.run.repository.label
            await scene.press("escape")
        await scene.press("o", "run.copy_json")
        assert opened == [f"https://runs.example/{first}"]
        assert json.loads(scene.app.clipboard)["run_id"] == first


async def test_a_run_is_opened_where_the_service_shows_it(
    staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a template; a service that names no address says what is missing, and no other kind is opened."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    async with staged(toasts=True) as scene:
        screen, row = scene.app.screen, scene.table.row
        assert isinstance(screen, RunsScreen)
        assert row is not None
        screen.session.settings = replace(
            screen.session.settings, console=replace(screen.session.settings.console, run_url="")
        )
        for url in ("javascript:alert(1)", None, "https://runs.example/runs/1"):
            board.turns[row.run_id] = {"turns": [], "url": url}
            await scene.press("o")

        assert opened == ["https://runs.example/runs/1"]
        assert sum("Nothing says where runs are shown." in toast for toast in scene.toasts) == 2


async def test_a_service_that_is_slow_is_waited_for_in_sight(staged: Staged, board: Lab) -> None:
    """The form opens with the answer, unless another screen is on show by then."""
    release = threading.Event()
    answer = board.answer

    def slowly(request: Received) -> Step:
        if request.path.rpartition("/")[2] in board.runs:
            release.wait()
        return answer(request)

    async with staged(toasts=True) as scene:
        board.otherwise = slowly
        await scene.press("slash", *"status:failed", "enter", "space")
        screen = scene.app.screen
        scene.app.screen.run_worker(scene.pilot.press("c"))
        await until(lambda: any(toast.startswith("Asking the service for the instructions") for toast in scene.toasts))
        assert scene.app.screen is screen
        release.set()
        await until(lambda: isinstance(scene.app.screen, ManyForm), "the form opens")


async def all_that_match_are_marked_and_unmarked(scene: Scene) -> None:
    """Marks of other runs stay; ids are copied a line each, as safe text."""
    scene.table.mark(["run_\x1b[2J"])
    await scene.press("slash", *"status:failed", "enter", "asterisk")
    failed = tuple(row.run_id for row in scene.table.rows_on_show)
    assert scene.table.marks.ids == ("run_\x1b[2J", *failed)

    await scene.press("y")
    assert scene.app.clipboard.splitlines()[1:] == list(failed)
    assert "\x1b" not in scene.app.clipboard
    await scene.press("asterisk")
    assert scene.table.marks.ids == ("run_\x1b[2J",)


async def an_export_is_of_the_marked_runs_or_of_all_that_match(scene: Scene) -> None:
    """The sheet names how many; what it says in the end is said on the screen."""
    for keys, title in (
        (("runs.export",), "Export 60 matching runs"),
        (("space", "runs.export"), "Export 1 marked run"),
    ):
        await scene.press(*keys)
        sheet = scene.app.screen
        assert isinstance(sheet, ExportScreen)
        assert title == sheet.TITLE_TEXT

        sheet.dismiss("4 runs written to x.csv")
        await scene.settle()
        assert scene.toasts[-1] == "4 runs written to x.csv"


async def test_many_are_marked_and_exported(staged: Staged) -> None:
    """All that match, or those that are marked."""
    async with staged(toasts=True) as scene:
        await scene.prove(all_that_match_are_marked_and_unmarked, an_export_is_of_the_marked_runs_or_of_all_that_match)


async def test_more_than_the_cap_are_not_marked(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the cap and what to do."""
    monkeypatch.setattr(run_actions, "MOST_MARKS", 2)
    async with staged(toasts=True) as scene:
        await scene.press("asterisk")
        assert "60 runs match; at most 2 are marked at a time. Narrow the filter first." in scene.toasts


async def test_runs_are_exported_whole(staged: Staged, tmp_path: Path) -> None:
    """All that match; the file is its owner's alone."""
    async with staged() as scene:
        for suffix, read in READ.items():
            path = tmp_path / f"out{suffix}"
            count = await write(Export(scene.engine, RunFilter(statuses=("failed",)), RunSort(), ()), path)
            runs = read(path.read_text())

            assert count == len(runs) > 0
            assert {run["status"] for run in runs} == {"failed"}
            assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["count"] == count
    assert {"first_seen_at", "state", "stuck", "transitions"} <= set(runs[0]["observed"])
