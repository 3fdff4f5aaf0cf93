"""Resolving an unknown outcome: what it may have made is shown and prefilled, and a person decides."""

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from textual.widgets import Input

from app.actions.screen_resolve import ResolveForm
from app.api.requests import CancelRun, ContinueRun, StartRun
from app.engine.engine import Engine
from app.engine.events import CacheChangedElsewhere
from app.runs.screen_actions import cancel_sheet
from storage.records import Action, Repository, Run
from tests.console.forms.steps import CREATED, opened, painted, press, settle, words, write
from tests.lab import Drop, Received, Respond, Server, Step
from widgets.forms.facts import FormChoice
from widgets.forms.inputs import LineInput


def listed(run_id: str, branch: str) -> dict[str, object]:
    """A run as the service lists it."""
    return CREATED | {"run_id": run_id, "branch_name": branch}


async def unknown_start(
    engine: Engine,
    server: Server,
    answer: Step,
    words: dict[str, str | None] | None = None,
    callers: dict[str, str] | None = None,
) -> Action:
    """A start whose answer was lost; the list then answers as told, and the extension tells the words of runs.

    With callers, an earlier start of ours is known to be by `ada`, and the runs without one are by `eve`.
    """
    if callers is not None:
        server.script(Respond(201, listed("run_ours", "fix/y")))
        await engine.actions.submit(StartRun("Before.", Repository.parse("acme/web"), "fix/y"))
        words = {**(words or {}), "run_ours": "Before."}
        callers["run_ours"] = "ada"

    def by(run_id: str) -> str:
        return "ada" if callers is None else callers.get(run_id, "eve")

    def otherwise(request: Received) -> Step:
        run_id = request.path.rpartition("/")[2]
        if request.method == "POST":
            return Drop()
        if words and run_id in words:
            turn = {"number": 1, "state": "working", "instructions": words[run_id], "caller": by(run_id)}
            return Respond(200, {"run_id": run_id, "turns": [turn]})
        return answer

    server.otherwise = otherwise
    return await engine.actions.submit(StartRun("Fix it.", Repository.parse("acme/web"), "fix/x"))


RUNS = Respond(200, {"runs": [listed("run_other", "main"), listed("run_made1", "fix/x")]})


async def test_a_run_that_only_fits_by_place_and_time_is_not_prefilled(
    stage: Any, engine: Engine, server: Server
) -> None:
    """It is no proof: a person picks it, and then says so; enter says nothing."""
    action = await unknown_start(engine, server, RUNS)
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        text = words(app)
        await press(pilot, "y", "ctrl+s")
        refused = words(app)
        await pilot.click("#found", offset=(20, 0))
        app.screen.query_one(Input).focus()
        await press(pilot, "enter")
        is_open, entered = not app.ended, words(app)
        await press(pilot, "ctrl+s")

    assert is_open
    assert "Press ^s to resolve it." in entered
    assert "One run matches in place and time. A colleague may have started it." in text
    assert re.search(r"run_made1 \d+s (after|before) the send queued fix/x", text)
    assert "Enter the id" in refused
    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_made1")


async def test_a_run_that_asks_the_same_is_prefilled_if_no_other_may(
    stage: Any, engine: Engine, server: Server
) -> None:
    """Each says who asked, and what if it was something else; without words of one of them, nothing is prefilled."""
    runs = Respond(200, {"runs": [listed("run_other1", "fix/x"), listed("run_made1", "fix/x")]})
    for other, prefilled in (("Tidy up.", "run_made1"), (None, ""), ("Fix it.", "")):
        action = await unknown_start(engine, server, runs, {"run_made1": "Fix it.", "run_other1": other})
        app = stage(lambda engine, action=action: ResolveForm(engine, action))
        async with opened(app) as pilot:
            text = words(app)
            await press(pilot, "y")
            assert app.screen.query_one(LineInput).value == prefilled
            await press(pilot, "escape")
        assert re.search(r"run_made1 \d+s after the send by ada queued fix/x same words: “Fix it.”", text)
        if other == "Tidy up.":
            assert "by ada queued fix/x other words: “Tidy up.”" in text
            assert text.index("run_made1") < text.index("run_other1")
        await engine.actions.resolve_not_created(action.action_id)


async def test_the_best_of_many_is_prefilled_and_a_digit_picks_another(
    stage: Any, engine: Engine, server: Server
) -> None:
    """Of eight with the same words, one is by our own token; the one with other words is last, and has a number too."""
    ids = [f"run_{n}" for n in range(8)]
    said: dict[str, str | None] = dict.fromkeys(ids, "Fix it.") | {"run_3": "Tidy up."}
    runs = Respond(200, {"runs": [listed(run_id, "fix/x") for run_id in ids]})
    action = await unknown_start(engine, server, runs, said, {"run_5": "ada"})
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        lines = [line for line in painted(app).splitlines() if "run_" in line]
        await press(pilot, "y")
        best = app.screen.query_one(LineInput).value
        await press(pilot, "8", "ctrl+s")
        await settle(pilot)

    assert best == "run_5"
    assert "1 run_5" in lines[0]
    assert app.outcome.result_id == "run_3"


async def test_the_field_with_the_mistake_has_the_focus(stage: Any, engine: Engine, server: Server) -> None:
    """Whatever had it before."""
    action = await unknown_start(engine, server, Respond(200, {"runs": []}))
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        await press(pilot, "tab", "ctrl+s")
        unchosen = app.screen.focused
        await press(pilot, "y", "ctrl+s")

        assert isinstance(unchosen, FormChoice)
        assert isinstance(app.screen.focused, LineInput)


async def test_another_candidate_is_taken_by_a_click(stage: Any, engine: Engine, server: Server) -> None:
    """By mouse alone."""
    runs = [listed("run_later1", "fix/x"), listed("run_made1", "fix/x")]
    action = await unknown_start(engine, server, Respond(200, {"runs": runs}))
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        shown = [line for line in painted(app).splitlines() if "run_" in line]
        await pilot.click("#found", offset=(20, 1))
        await pilot.click("#verb-apply")
        await settle(pilot)

    assert app.outcome.result_id in shown[1]
    assert app.outcome.result_id not in shown[0]


async def test_sending_again_says_what_to_type_beside_candidates(stage: Any, engine: Engine, server: Server) -> None:
    """The ids that fit are offered for what it made, not for the word that confirms a second send."""
    action = await unknown_start(engine, server, RUNS, {"run_made1": "Fix it."})
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        await press(pilot, "y", "a")
        again = painted(app)
        app.screen.query_one(FormChoice).focus()
        await press(pilot, "y")

        assert "Type send again to confirm." in again
        assert app.screen.query_one(LineInput).value == "run_made1"


@pytest.mark.parametrize("how", ["created", "send_again"])
async def test_what_is_settled_elsewhere_is_said_while_the_form_is_open(
    stage: Any, engine: Engine, server: Server, how: str
) -> None:
    """By another console or a command: nothing can be applied, and the form ends with what was decided."""
    action = await unknown_start(engine, server, RUNS)
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        await press(pilot, "y")
        if how == "created":
            await engine.actions.resolve_created(action.action_id, "run_made1")
        elif how == "not_created":
            await engine.actions.resolve_not_created(action.action_id)
        else:
            await engine.actions.send_again(action.action_id)
        engine.doorbell.ring(CacheChangedElsewhere())
        await settle(pilot)
        text = words(app)
        await press(pilot, "ctrl+s")
        is_open = not app.ended
        await press(pilot, "escape")

    made = {"created": "it took effect and created run_made1", "not_created": "it did not take effect"}
    assert f"Already resolved elsewhere: {made.get(how, 'it was sent again as act_')}" in text
    assert "Resolve it" not in text
    assert is_open
    assert app.outcome == await engine.ledger.action(action.action_id)


async def test_an_id_that_does_not_look_right_is_asked_about(stage: Any, engine: Engine, server: Server) -> None:
    """It is recorded by a key of its own, and not by the one that records all others; another id is a new question."""
    action = await unknown_start(engine, server, RUNS)
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app, "", "y", "tab") as pilot:
        for typed, doubt in (
            ("hello", "'hello' does not look like a run's id."),
            ("run_elsewhere9", "The service lists no run run_elsewhere9 from around the time it was sent."),
            ("run_other", "run_other does not fit: it is on the branch main."),
        ):
            await press(pilot, "ctrl+u")
            await write(pilot, typed)
            await press(pilot, "ctrl+y", "ctrl+s", "ctrl+s")
            assert doubt in words(app)
            assert "Record it anyway" in words(app)
            assert await engine.ledger.action(action.action_id) == action
        await press(pilot, "ctrl+y")

    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_other")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Respond(200, {"runs": [listed("run_other", "main")]}), "No run matches: most likely it did not take effect."),
        (Respond(503, {"message": "Down for repairs."}), "The service could not be asked"),
    ],
)
async def test_where_no_run_is_found_the_decision_stays_open(
    stage: Any, engine: Engine, server: Server, answer: Step, said: str
) -> None:
    """Nothing is decided by itself; a person's word counts all the same."""
    action = await unknown_start(engine, server, answer)
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        assert said in words(app)
        assert not app.ended
        await press(pilot, "n", "ctrl+s")

    assert app.outcome.state == "not_created"


async def test_a_cancel_is_resolved_in_words_about_a_cancel(stage: Any, engine: Engine, server: Server) -> None:
    """The run's id is known, and cancelling twice is harmless."""
    server.otherwise = lambda request: Drop() if request.method == "POST" else Respond(404, {"detail": "Not Found"})
    action = await engine.actions.submit(CancelRun("run_1"))
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        text = words(app)
        await press(pilot, "a")
        again = words(app)
        await press(pilot, "y", "ctrl+s")

    assert "/cancel" not in text
    assert "The run was cancelled" in text
    assert "It was not cancelled" in text
    assert "Cancel it again: harmless if it was cancelled" in text
    assert "Type cancel again to confirm." in again
    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_1")


async def test_the_sheet_of_a_cancel_does_not_wait_for_a_service_that_is_silent(
    stage: Any, engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says at once that the outcome is unknown; the background finds it out."""
    server.otherwise = lambda _: Drop()
    monkeypatch.setattr("app.actions.cancelling.look", lambda *_: asyncio.Event().wait())
    monkeypatch.setattr("app.actions.cancelling.LOOK_S", 0.0)
    at = datetime(2026, 5, 1, tzinfo=UTC)
    run = Run("run_1", "working", "main", Repository.parse("acme/api"), at, at, "{}")
    app = stage(lambda engine: cancel_sheet(engine, [run]))
    async with opened(app) as pilot:
        await press(pilot, "ctrl+s")

    assert "Whether the run was cancelled is unknown" in app.outcome
    assert [action.kind for action in await engine.ledger.unresolved()] == ["run.cancel"]


@pytest.mark.parametrize(("key", "kept"), [("ctrl+s", False), ("ctrl+k", True)])
@pytest.mark.parametrize("size", [(50, 12), (100, 40)])
async def test_the_sheet_of_a_cancel_names_what_waits_and_shows_its_keys_at_any_size(
    stage: Any, engine: Engine, server: Server, key: str, kept: bool, size: tuple[int, int]
) -> None:
    """A waiting continuation is dropped with the run, unless the user keeps it."""
    server.otherwise = lambda _: Respond(202, CREATED | {"run_id": "run_1", "status": "failed"})
    at = datetime(2026, 5, 1, tzinfo=UTC)
    run = Run("run_1", "working", "main", Repository.parse("acme/api"), at, at, "{}")
    waiting = await engine.follow_ups.wait(ContinueRun("run_1", "Then add tests.", run.repository))
    app = stage(lambda engine: cancel_sheet(engine, [run], 0, [waiting]))
    async with opened(app, size=size) as pilot:
        text = words(app)
        await press(pilot, key)
        await settle(pilot)

    assert "ctrl+s Cancel the run ctrl+k Cancel the run, send what waits esc Keep it" in text
    assert "Then add tests." in text or size[1] == 12
    assert [each.occurrence.facts.get("kept") for each in await engine.follow_ups.waiting(["run_1"])] == (
        ["yes"] if kept else [None]
    )
