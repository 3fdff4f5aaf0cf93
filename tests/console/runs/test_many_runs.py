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

from app.actions.screen_many import ManyForm
from app.actions.screen_writes import NewRunForm
from app.runs import screen_actions as run_actions
from app.runs.screen import RunsScreen
from app.runs.screen_export import Export, ExportScreen, write
from storage.records import RunFilter, RunSort
from tests.console.conftest import Scene, Staged
from tests.lab import Lab, Received, Step
from tests.waiting import until

READ: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    ".csv": lambda text: list(csv.DictReader(text.splitlines())),
    ".ndjson": lambda text: [json.loads(line) for line in text.splitlines()],
    ".json": lambda text: json.loads(text)["runs"],
}


def at_cursor(scene: Scene) -> str:
    """The id of the run under the cursor."""
    assert scene.table.row is not None
    return scene.table.row.run_id


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


async def test_more_runs_than_the_cap_are_not_cancelled(staged: Staged, board: Lab) -> None:
    """It is refused before the question, with both ways out."""
    async with staged(send_cap=1) as scene:
        await scene.press("slash", *"is:active", "enter", "space", "space", "X")
        assert isinstance(scene.app.screen, RunsScreen)
        refusal = "Nothing was sent: 2 runs to cancel, more than 1. Mark fewer, or raise send_cap in [console]."
        assert refusal in scene.toasts
        assert board.posts == []


COPYING = (
    ("TMUX", "load-buffer -w -", "copied to tmux and sent to the terminal's clipboard."),
    ("TMUX", "load-buffer -", "copied to tmux."),
    ("TMUX", "nothing", "not copied: tmux did not take it."),
    ("STY", "", "not copied: GNU screen does not pass it on."),
)


async def copying_says_how_far_it_came(scene: Scene, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Tmux does not take a clipboard sequence from a program, and GNU screen swallows it."""
    tmux, taken = folder / "tmux", folder / "taken"
    for within, takes, said in COPYING:
        tmux.write_text(f'#!/bin/sh\n[ "$*" = "{takes}" ] && exec cat > {taken}\nexit 1\n')
        tmux.chmod(0o700)
        taken.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            patch.setenv(within, "x")
            patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
            await scene.press("y")

        assert scene.toasts[-1] == f"{at_cursor(scene)} {said}"
        assert not said.startswith("copied") or taken.read_text() == at_cursor(scene)


async def test_what_is_done_with_one_is_done_with_the_marked_one(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not with the one under the cursor; several are copied together, and where only one can be meant, it is said.

    Where there is no browser, the address is said.
    """
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

        scene.table.mark([first], is_marked=False)
        monkeypatch.setattr(webbrowser, "open", lambda _: False)
        await scene.press("o")
        assert scene.toasts[-1].startswith("No browser found. The address: https://")
        await copying_says_how_far_it_came(scene, monkeypatch, tmp_path)


async def test_a_run_is_opened_where_it_is_shown(staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a template; a service that names no address says what is missing, and no other kind is opened."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    async with staged(run_url="") as scene:
        for url in ("javascript:alert(1)", None, "https://runs.example/runs/1"):
            board.turns[at_cursor(scene)] = {"turns": [], "url": url}
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
        assert scene.table.row is not None
        # Of the run under the cursor all is known by now.
        known = scene.table.row.run_id
        scene.table.mark([one for one, run in board.runs.items() if run["status"] == "failed" and one != known])
        screen = scene.app.screen
        scene.app.screen.run_worker(scene.pilot.press("c"))
        await until(lambda: any(toast.startswith("Asking the service for the instructions") for toast in scene.toasts))
        assert scene.app.screen is screen
        release.set()
        await until(lambda: isinstance(scene.app.screen, ManyForm), "the form opens")


async def test_many_are_marked_and_exported(staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that match, up to a cap, or those that are marked; ids are copied a line each, as safe text.

    Runs are exported whole; the file is its owner's alone.
    """
    async with staged() as scene:
        with monkeypatch.context() as patch:
            patch.setattr(run_actions, "MOST_MARKS", 2)
            await scene.press("asterisk")
            assert "60 runs match; at most 2 are marked at a time. Narrow the filter first." in scene.toasts

        scene.table.mark(["run_\x1b[2J"])
        await scene.press("slash", *"status:failed", "enter", "asterisk")
        failed = tuple(row.run_id for row in scene.table.rows_on_show)
        assert scene.table.marks.ids == ("run_\x1b[2J", *failed)
        await scene.press("y")
        assert scene.app.clipboard.splitlines()[1:] == list(failed)
        assert "\x1b" not in scene.app.clipboard
        await scene.press("asterisk")
        assert scene.table.marks.ids == ("run_\x1b[2J",)

        for title in ("Export 1 marked run", "Export 60 matching runs"):
            await scene.press("runs.export")
            assert isinstance(scene.app.screen, ExportScreen)
            assert title == scene.app.screen.TITLE_TEXT
            scene.app.screen.dismiss("4 runs written to x.csv")
            await scene.to_all_runs()
            assert scene.toasts[-1] == "4 runs written to x.csv"

        for line, key, said in (
            ("status:completed", "T", "Nothing to retry"),
            ("is:active", "c", "Nothing to continue"),
        ):
            await scene.to_all_runs()
            await scene.press("slash", *line, "enter", "asterisk", key)
            assert scene.toasts[-1].startswith(said)
            assert isinstance(scene.app.screen, RunsScreen)

        for suffix, read in READ.items():
            path = tmp_path / f"out{suffix}"
            count = await write(Export(scene.engine, RunFilter(statuses=("failed",)), RunSort(), ()), path)
            runs = read(path.read_text())

            assert count == len(runs) > 0
            assert {run["status"] for run in runs} == {"failed"}
            assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["count"] == count
    assert {"first_seen_at", "state", "stuck", "transitions"} <= set(runs[0]["observed"])
