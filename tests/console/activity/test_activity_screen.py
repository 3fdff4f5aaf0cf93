"""The Activity tab, over the real ledger and the real poll log."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from app.actions.screen_writes import ContinueRunForm
from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, StartAgent, StartRun, WriteRequest
from app.engine.files import login
from app.engine.times import stamp
from app.runs.screen_run import RunScreen
from storage.records import ActionFailure, ActionState, PollOutcome, Repository, RunFilter, RunSort
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.scenes import enter
from tests.lab import Lab
from tests.waiting import until
from widgets.actions import ActivityEntry
from widgets.kit.line_table import LineTable

HOSTILE = "Now also \x1b[2J\u202e fix [/b] the \x9bdocs"
API = Repository.parse("acme/api")
NO_ADDRESS = ActionFailure("rejected", "Not an address.", 400, "invalid_email")
REFUSED = ActionFailure("unreachable", "Connection refused.")


async def past(scene: Scene, request: WriteRequest, state: ActionState, ago_m: float, **how: Any) -> None:
    """A write that was sent this many minutes ago."""
    now = scene.clock.now
    scene.clock.now = now - timedelta(minutes=ago_m)
    await enter(scene.engine.ledger, request, state, key=f"{request.kind} {ago_m}", **how)
    scene.clock.now = now


async def a_history(scene: Scene, polls_m: int) -> None:
    """Writes of every kind and outcome, and polls of this many minutes with a lost connection and a refusal."""
    (row,) = await scene.engine.cache.rows(RunFilter(), RunSort(), offset=3, limit=1)
    await past(scene, CreateOrganization("old@globex.example"), "confirmed", 400)
    await past(scene, StartAgent("nightly", "acme/api"), "confirmed", 300, actor="bot:nightly", made="exe_1")
    await past(scene, StartRun("Fix the flaky\nretry test.", API), "confirmed", 200, made=row.run_id)
    await past(scene, CreateOrganization("noone@nowhere"), "rejected", 120, error=NO_ADDRESS)
    await past(scene, ContinueRun(row.run_id, HOSTILE, API), "unknown", 60)
    await past(scene, OnboardProject("acme/tools"), "not_sent", 30, error=REFUSED)
    for minutes in range(polls_m, 0, -5):
        runs = health = PollOutcome("runs", scene.clock.now - timedelta(minutes=minutes))
        if 20 < minutes < 45:
            runs = replace(runs, error_kind="unreachable", error_message="Connection refused: [/b] \x1b[31m")
        if minutes > 50:
            health = replace(health, error_kind="forbidden", error_message="May not.", http_status=403)
        await scene.engine.cache.record_poll(runs)
        await scene.engine.cache.record_poll(replace(health, subject="health"))


@asynccontextmanager
async def room(staged: Staged, size: tuple[int, int] = WIDE, polls_m: int = 5) -> AsyncIterator[Scene]:
    """The screen with a history; the scene's one poll is older than it."""
    async with staged(size, synced=False) as scene:
        scene.clock.move(hours=-10.5)
        await scene.engine.refresh()
        scene.clock.move(hours=10.5)
        await a_history(scene, polls_m)
        # The history was written past the engine, which reports writes to the header and the inbox.
        await scene.ring()
        await scene.press("6")
        yield scene


def table(scene: Scene) -> LineTable[ActivityEntry]:
    return scene.app.screen.query_one(LineTable)


def lines(scene: Scene) -> list[str]:
    """The table's lines that have an entry."""
    region = table(scene).region
    return [
        text
        for line in scene.lines[region.y + 1 : region.bottom]
        if (text := line[region.x : region.right - 1].strip())
    ]


async def test_writes_are_listed_newest_first_below_unknown_outcomes(staged: Staged) -> None:
    """Unknown outcomes come first, however old they are and however few rows are read.

    Polls are listed under Health.
    """
    async with room(staged, (200, 40), polls_m=60) as scene:
        # It was recorded last, although its time is the oldest: the clock was set back before.
        await past(scene, OnboardProject("acme/late"), "not_sent", 250, error=REFUSED)
        await scene.ring()
        await scene.shows("acme/late")
        found = lines(scene)

        # Equal polls share one line with their result, under Health alone.
        await scene.pilot.resize_terminal(200, 80)
        await scene.press("2")
        await scene.shows("service unreachable", "4 times in 15m", "Connection refused")
        shown = scene.text
        assert "\x1b" not in shown
        assert "✗ failed" in shown
        assert "✓ answered" in shown

    assert [line[14:34].strip() for line in found] == [
        *("continue run", "onboard project", "onboard project", "create organization"),
        *("start run", "start agent", "create organization"),
    ]
    assert "? unknown" in found[0]
    assert "◌ not sent" in found[1]
    assert "acme/late" in found[1]
    assert "bot:nightly" in found[5]


FILTERS = (
    ("slash a d d r e s s enter", 1, "1 of"),
    ("s tab enter", 3, "outcome confirmed"),
)


async def test_filters_narrow_and_enter_opens_the_subject(staged: Staged) -> None:
    """Entries are filtered by words and outcomes.

    Enter opens the run's page, escape returns to the same line, and the facts follow the cursor. A resolved outcome
    moves to its place in time, until that is undone.
    """
    async with room(staged) as scene:
        before = len(lines(scene))
        for keys, count, chip in FILTERS:
            await scene.press(*keys.split())
            await scene.shows(chip)
            assert len(lines(scene)) == count, scene.text

            await scene.press("escape")
            await until(lambda: len(lines(scene)) == before, "all writes are shown", saw=lambda: scene.text)
        await scene.press("home", *["j"] * 3)
        entry = table(scene).item
        assert entry is not None
        assert entry.source.kind == "run.start"
        await scene.press("enter")
        assert isinstance(scene.app.screen, RunScreen)
        await scene.press("escape")
        assert table(scene).item == entry

        await scene.press("j", "enter")
        assert scene.app.current_mode == "activity"
        assert "No listed run has the id exe_1" in str(scene.toasts)

        await scene.press("home")
        for fact in ("No answer within 20 s.", "press v.", '"instructions": "Now also'):
            assert fact in scene.text

        scene.clock.move(minutes=8)
        await scene.press("v", "n", "ctrl+s")

        assert "◌ not sent" in lines(scene)[0]
        assert "⊘ not created" in lines(scene)[1]
        found = " ".join(scene.text.replace("│", " ").split())
        assert f"resolved {stamp(scene.clock.now)} by {login()}@" in found
        assert f"unknown {stamp(scene.clock.now)}" not in found
        assert not scene.app.screen.check_action("resolve", ())
        assert scene.app.screen.check_action("edit", ())

        await scene.press("u")
        assert "? unknown" in lines(scene)[0]
        assert "Its outcome is unknown again" in str(scene.toasts)
        assert scene.app.screen.check_action("undo", ()) is False


async def test_a_message_reaches_an_active_run_at_once(staged: Staged, board: Lab) -> None:
    """A message reaches the working agent, or the turn is stopped for it.

    The preview shows the request, which is sent once. The form reports a message that is too long; a continuation may
    be longer.
    """
    async with staged(SMALL) as scene:
        await scene.press("slash", *"is:active", "enter")
        assert scene.table.row is not None
        board.turns[scene.table.row.run_id] = {"turns": []}
        sent = []
        for keys, when in (("", "now"), ("xwn", "now"), ("x", "stop")):
            await scene.press("c", *"Use the new API.", "ctrl+s")
            await scene.shows("Later w", "Stop x", '"when": "now"', "Reaches the agent of run_")
            await scene.press(*keys)
            await scene.shows('"text": "Use the new API."', f'"when": "{when}"')
            assert [json.loads(body) for body in board.posts] == sent
            sent.append({"text": "Use the new API.", "when": when})
            await scene.press("ctrl+s")
            await scene.shows("The service has the message")
            await scene.press("ctrl+s", "escape")
            assert [json.loads(body) for body in board.posts] == sent

        await scene.press("c")
        form = scene.app.screen
        assert isinstance(form, ContinueRunForm)
        form.fields["instructions"].fill("x" * 20_001)
        await scene.press("ctrl+s")

        await scene.shows("A message has at most 20,000 characters.")


async def test_a_continuation_replaces_a_message_if_none_are_offered(staged: Staged, board: Lab) -> None:
    """The continuation is sent at once, which the service may refuse, or when the run ends."""
    async with staged(SMALL) as scene:
        await scene.press("slash", *"is:active", "enter", "c", *"Go on.", "ctrl+s")
        await scene.shows('"instructions": "Go on."', "Later w", "the service may refuse")
        assert "Stop x" not in scene.text
        await scene.press("w")
        await scene.shows("Kept on this machine", '"instructions": "Go on."')
        await scene.press("ctrl+s")

        assert scene.toasts[-1] == "Will be sent when the run finishes. Activity lists and cancels it."
        assert board.posts == []


async def test_a_continuation_of_an_active_run_waits_for_its_end(staged: Staged, board: Lab) -> None:
    """Activity lists the waiting continuation after the unknown outcomes, and can cancel it without losing its words.

    Once its run has ended it is sent, a toast reports it, and Activity has the write.
    """
    async with staged(SMALL) as scene:
        await scene.press("slash", *"is:active", "enter")
        assert scene.table.row is not None
        run_id = scene.table.row.run_id
        await scene.press("c", *"Then the docs.", "ctrl+s")
        await scene.shows("Later w", "Send ^s")
        await scene.press("w", "ctrl+s")
        assert scene.toasts[-1] == "Will be sent when the run finishes. Activity lists and cancels it."
        assert not any(toast.startswith("Sent.") for toast in scene.toasts)
        await past(scene, CreateOrganization("noone@nowhere"), "unknown", 1)
        await scene.press("6")
        first, second = table(scene).items[:2]
        assert (first.unknown is not None, second.waits is not None) == (True, True)
        await scene.press("j")
        await scene.shows("◌ waiting", "waits for")
        await scene.press("X")
        await scene.shows("◌ not sent")
        assert "Cancelled: it is not sent. Press E to send it anyway." in scene.toasts
        await scene.press("X", "E")

        assert isinstance(scene.app.screen, ContinueRunForm)
        assert scene.app.screen.values["instructions"] == "Then the docs."
        assert board.posts == []
        await scene.press("ctrl+s", "w", "ctrl+s")
        await scene.shows("◌ waiting")
        board.runs[run_id]["status"] = "completed"
        await scene.sync()
        await scene.engine.follow_ups.work()
        await scene.shows("✓ confirmed")
        title = "The run has ended, and the waiting continuation was sent"
        await until(lambda: title in scene.titles, "a toast says that it was sent", saw=lambda: scene.titles)

        await until(lambda: "◌ waiting" not in scene.text, "nothing waits", saw=lambda: scene.text)
        assert [json.loads(body)["instructions"] for body in board.posts] == ["Then the docs."]
