"""Actions on the run under the cursor, and on many runs at once."""

import json
import webbrowser
from pathlib import Path

import pytest

from app.actions.screen_writes import NewRunForm
from app.runs.screen import RunsScreen
from app.runs.screen_export import write
from storage.records import RunFilter, RunSort
from tests.console.conftest import Scene, Staged
from tests.lab import Lab
from tests.waiting import until


def at_cursor(scene: Scene) -> str:
    """The id of the run under the cursor."""
    assert scene.table.row is not None
    return scene.table.row.run_id


async def test_only_marked_runs_are_cancelled(staged: Staged, board: Lab) -> None:
    """The dialog lists the runs and explains its two keys; enter does nothing. An ended run is only counted."""
    async with staged() as scene:
        await scene.press("slash", *"is:active", "enter", "space", "space")
        marked = set(scene.table.marks)
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
    """The request is refused before the question, with two ways out."""
    async with staged(send_cap=1) as scene:
        await scene.press("slash", *"is:active", "enter", "space", "space", "X")
        assert isinstance(scene.app.screen, RunsScreen)
        refusal = "Nothing was sent: 2 runs to cancel, more than 1. Mark fewer, or raise send_cap in [console]."
        assert refusal in scene.toasts
        assert board.posts == []


async def test_a_single_marked_run_is_used_instead_of_the_cursor(staged: Staged) -> None:
    """The marked run is used, not the one under the cursor; with several marked, a key for one run explains that."""
    async with staged() as scene:
        await scene.press("space", "space")
        first, second = tuple(scene.table.marks)
        await scene.press("a")
        assert "2 runs of 2 repositories are marked: name one of these." in scene.toasts
        assert isinstance(scene.app.screen, NewRunForm)
        assert scene.app.screen.values["repository"] == ""
        await scene.press("escape")

        scene.table.mark([second], is_marked=False)
        detail = await scene.engine.cache.detail(first)
        assert detail is not None
        await scene.press("n")
        assert isinstance(scene.app.screen, NewRunForm)
        assert scene.app.screen.values["repository"] == detail.run.repository.label


async def test_a_run_is_opened_in_the_browser(staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a template or an address from the service, a message says what is missing.

    Only web addresses are opened.
    """
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    async with staged(run_url="") as scene:
        for url in ("javascript:alert(1)", None, "https://runs.example/runs/1"):
            board.turns[at_cursor(scene)] = {"turns": [], "url": url}
            await scene.press("o")
        assert opened == ["https://runs.example/runs/1"]
        assert sum("Nothing says where runs are shown." in toast for toast in scene.toasts) == 2


async def test_matching_runs_are_marked_and_exported(staged: Staged, tmp_path: Path) -> None:
    """Only matching runs are marked; ids are copied as safe text, and the exported file is private."""
    async with staged() as scene:
        scene.table.mark(["run_\x1b[2J"])
        await scene.press("slash", *"status:failed", "enter", "asterisk")
        failed = tuple(row.run_id for row in scene.table.rows_on_show)
        assert tuple(scene.table.marks) == ("run_\x1b[2J", *failed)
        await scene.press("y")
        assert scene.app.clipboard.splitlines()[1:] == list(failed)
        assert "\x1b" not in scene.app.clipboard
        for line, key, said in (
            ("status:completed", "T", "Nothing to retry"),
            ("is:active", "c", "Nothing to continue"),
        ):
            await scene.to_all_runs()
            await scene.press("slash", *line, "enter", "asterisk", key)
            assert scene.toasts[-1].startswith(said)
            assert isinstance(scene.app.screen, RunsScreen)

        path = tmp_path / "out.json"
        count = await write(scene.engine.cache, RunFilter(statuses=("failed",)), RunSort(), (), path)
        document = json.loads(path.read_text())

        assert count == document["count"] == len(document["runs"]) > 0
        assert {run["status"] for run in document["runs"]} == {"failed"}
        assert path.stat().st_mode & 0o777 == 0o600
