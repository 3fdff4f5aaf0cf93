"""The full-screen run: each part shows its results, or says why there are none."""

from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.screen_writes import ContinueRunForm
from app.runs.screen_run import ReplyBox
from storage.errors import DiskFullError
from storage.records.results import (
    Artifact,
    ModelUsage,
    PostingStatus,
    RunTurns,
    Unavailable,
)
from tests.console.conftest import SMALL
from tests.console.run.conftest import NOTHING, OnShow, ScriptedResults, change_of, two_turns
from tests.lab import Lab, Respond
from tests.waiting import until
from widgets.forms.inputs import LineInput
from widgets.results.diff import DiffView
from widgets.results.review import ReviewView

PARTS = ("C", "r", "d", "l")


async def test_the_conversation_shows_each_turns_result(run_on_show: OnShow) -> None:
    """Each turn shows its words, caller, times, failure, change and cost, and how long such runs usually take."""
    first, second = two_turns()
    used = replace(second, usage=ModelUsage(3, 1000, 200, 3, 1.5))
    posted = (
        PostingStatus("pull_request", "posted", "https://github.example/acme/web/pull/7"),
        PostingStatus("status", "posted"),
    )
    async with run_on_show(ScriptedResults(RunTurns("run", (first, used), postings=posted))) as scene:
        for words in (
            *("Mend the flaky sign-in test.", "nightly", "idle 58m", "exit code 3", "ada", "4m43s"),
            *("commit c0ffee0000", "+6 -2  1,203 tokens  $1.50", "% succeed, p50", "all 2 turns"),
            "pull request: https://github.example/acme/web/pull/7",
        ):
            assert words in scene.text


async def test_artifacts_are_saved(run_on_show: OnShow, tmp_path: Path) -> None:
    """`O` lists the artifacts of all turns as text; files are never replaced, and a deleted artifact is reported."""
    first, second = two_turns()
    named = (Artifact("report.md", 6), Artifact("charts/\x1b[2Ja.png", 1_234_567), Artifact("gone", 1))
    results = ScriptedResults(RunTurns("run", (first, replace(second, artifacts=named))))
    results.left = {"report.md": b"# Done"}
    async with run_on_show(results) as scene:

        async def choose(digit: str) -> None:
            await scene.press("O", digit)
            scene.app.screen.query_one(LineInput).value = str(tmp_path / "saved")
            await scene.press("enter")

        await scene.press("O")
        await scene.shows("charts/␛[2Ja.png turn 2 1,234,567 bytes")
        await scene.press("escape")
        await choose("1")
        await until(lambda: f"Saved {tmp_path}/saved/report.md." in scene.toasts, "it is saved")
        for digit, words in (("1", "exists."), ("3", "pruned.")):
            await choose(digit)
            await scene.shows(words)
            await scene.press("escape")

        assert (tmp_path / "saved/report.md").read_bytes() == b"# Done"


async def test_each_empty_part_gives_its_reason(run_on_show: OnShow) -> None:
    """Each part gives the reason, and none is empty."""
    missing = Unavailable(NOTHING)
    async with run_on_show(ScriptedResults(missing, missing, missing, missing)) as scene:
        for key in PARTS:
            await scene.press(key)
            await scene.shows("add it under [repositories]")
            offered = {each.binding.action for each in scene.app.screen.active_bindings.values() if each.enabled}
            assert not {action for action in offered if action.startswith(("file(", "hunk(", "error"))}


async def test_a_reply_is_sent_as_a_continuation(
    run_on_show: OnShow, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`c` focuses the reply, ctrl+s previews it, and the text stays until the service has accepted it.

    An empty reply is refused with a note. Once sent, the form closes and a toast reports it.
    """
    async with run_on_show(ScriptedResults()) as scene:
        await scene.press("d", "c")
        assert isinstance(scene.app.focused, ReplyBox)
        await scene.press("ctrl+s")
        assert "type what it should do next" in " ".join(scene.toasts)
        await scene.press(*"Now", "ctrl+s")

        assert isinstance(scene.app.screen, ContinueRunForm)
        assert scene.app.screen.phase == "preview"
        assert '"instructions": "Now"' in scene.text
        await scene.press("escape", "escape")
        assert scene.app.screen.query_one(ReplyBox).text == "Now"
        with monkeypatch.context() as patch:
            patch.setattr(
                board, "otherwise", lambda asked: Respond(500) if asked.method == "POST" else board.answer(asked)
            )
            await scene.press("ctrl+s", "ctrl+s")
            await scene.shows("The outcome is unknown")
            await scene.press("escape")
        page = scene.app.screen
        assert page.query_one(ReplyBox).text == "Now"

        (unknown,) = await scene.engine.ledger.unresolved()
        await scene.engine.actions.resolve(unknown.action_id, None)
        await scene.press("ctrl+s", "ctrl+s")
        assert scene.app.screen is page
        assert scene.toasts[-1].startswith("Sent.")
        assert page.query_one(ReplyBox).text == ""


async def test_parts_and_turns_are_linked(run_on_show: OnShow) -> None:
    """A finding opens its line and returns; `>` and `<` switch to a turn's own results."""
    results = ScriptedResults()
    async with run_on_show(results) as scene:
        await scene.press("r")
        await scene.shows("2 findings · from git")
        await scene.press("enter")
        view = scene.app.screen.query_one(DiffView)

        def under_cursor() -> list[bytes]:
            return [*view.texts(view.cursor)] if view.total else []

        changed = b"    return hashlib.sha256(password).hexdigest() == stored(name)"
        await until(lambda: under_cursor() == [changed], "the finding's line has the cursor", saw=under_cursor)
        assert "since merge base with main" in scene.text
        page = scene.app.screen
        await scene.press("escape")
        assert scene.app.screen is page
        assert scene.app.focused is page.query_one(ReviewView), "it leads back to the findings"
        await scene.press("enter")

        await scene.press("greater_than_sign")
        await scene.shows("turn 1 of 2")
        assert results.asked[-1] == ("change", 1)
        await scene.press("l")
        assert results.asked[-1][:2] == ("log", 1)
        await scene.press("d", "less_than_sign")
        assert results.asked[-1] == ("change", None)


async def test_a_run_is_cancelled_once_it_is_confirmed(run_on_show: OnShow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter alone does not cancel; an ended run can be neither cancelled nor followed.

    If our files prevent the cancellation, the sheet says so and offers to try again or to leave.
    """
    async with run_on_show(ScriptedResults()) as scene:
        offered = {each.binding.action for each in scene.app.screen.active_bindings.values() if each.enabled}
        assert not {"run('cancel')", "run('follow')"} & offered
        await scene.press("X", "escape", "g", "enter")
        assert "follow" in scene.lines[-1]
        await scene.press("X")
        assert "Its agent stops and nothing of this turn is pushed." in " ".join(scene.text.split())
        with monkeypatch.context() as patch:
            full = DiskFullError("The disk is full.", path=Path("x"))
            patch.setattr(Actions, "submit", AsyncMock(side_effect=full))
            await scene.press("enter")
            await scene.shows("Press ctrl+s to cancel the run.", "esc Keep it")
            await scene.press("ctrl+s")
            await scene.shows("The disk is full.")
            assert "Working…" not in scene.text
        assert not await scene.engine.ledger.actions(limit=1)
        await scene.pilot.click(next(iter(scene.app.screen.query(".keys"))), offset=(3, 0))
        found = await until(lambda: scene.engine.ledger.actions(limit=9), "the ledger has the cancellation")

        assert [action.kind for action in found] == ["run.cancel"]


async def test_hostile_text_in_a_part_is_escaped(run_on_show: OnShow) -> None:
    """Control characters are replaced, and no line is too long."""
    hostile = b"\x1b[2J\x1b]52;c;eA==\x07 [/nope]\n" + b"B" * 100_000
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-" + hostile.replace(b"\n", b"\n+") + b"\n"
    turns = RunTurns("run", (two_turns()[0],), "git", "by \x1b[2J time")
    results = ScriptedResults(turns_=turns, change_=change_of(patch, base_name="a\x1b[2J\nb"), log_=hostile)
    async with run_on_show(results, SMALL) as scene:
        for key in PARTS:
            await scene.press(key)
            assert "".join(scene.lines).isprintable(), key
            assert all(len(line) <= SMALL[0] for line in scene.lines)
