"""Resolving an unknown outcome: candidates are shown and prefilled, and the user decides."""

import asyncio
import re

import pytest
from textual.widgets import Input

from app.actions.screen_many import cancel_sheet
from app.actions.screen_resolve import ResolveForm
from app.api.requests import ContinueRun, StartRun
from app.engine.engine import Engine
from app.engine.events import FilesChangedElsewhere
from storage.errors import WrongStateError
from storage.records import Action
from tests.console.forms.conftest import CREATED, WEB, Opened, a_run
from tests.lab import Drop, Received, Respond, Server, Step
from widgets.forms.facts import FormChoice
from widgets.forms.inputs import LineInput


def listed(*runs: tuple[str, str]) -> Respond:
    """Runs with their branches, as the service lists them."""
    return Respond(200, {"runs": [CREATED | {"run_id": run_id, "branch_name": branch} for run_id, branch in runs]})


async def unknown_start(
    engine: Engine,
    server: Server,
    answer: Step,
    words: dict[str, str | None] | None = None,
    callers: dict[str, str] | None = None,
) -> Action:
    """A start whose answer was lost, a scripted list, and the words of runs from the extension.

    With `callers`, `ada` owns the token, and runs without a caller are by `eve`.
    """
    if callers is not None:
        server.script(Respond(201, CREATED | {"run_id": "run_ours", "branch_name": "fix/y"}))
        await engine.actions.submit(StartRun("Before.", WEB, "fix/y"))
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
    return await engine.actions.submit(StartRun("Fix it.", WEB, "fix/x"))


RUNS = listed(("run_other", "main"), ("run_made1", "fix/x"))


async def test_a_match_by_place_and_time_is_not_prefilled(opened: Opened, engine: Engine, server: Server) -> None:
    """A match by place and time is no proof, so the user must pick it, and enter alone decides nothing.

    A wrong value gets the focus.
    """
    action = await unknown_start(engine, server, RUNS)
    async with opened(lambda engine: ResolveForm(engine, action)) as form:
        assert "One run matches in place and time. A colleague may have started it." in form.words
        assert re.search(r"run_made1 \d+s (after|before) the send queued fix/x", form.words)
        await form.press("tab", "ctrl+s")
        assert "Choose one of the three." in form.words
        assert isinstance(form.screen.focused, FormChoice)
        await form.press("y", "ctrl+s")
        assert "Enter the id" in form.words
        assert isinstance(form.screen.focused, LineInput)
        assert await engine.ledger.action(action.action_id) == action
        await form.pilot.click("#found", offset=(20, 0))
        form.screen.query_one(Input).focus()
        await form.press("enter")
        assert "Press ^s to resolve it." in form.words
        assert not form.app.ended
        await form.press("ctrl+s")

    assert (form.app.outcome.state, form.app.outcome.result_id) == ("confirmed", "run_made1")


async def test_a_single_run_with_the_same_words_is_prefilled(opened: Opened, engine: Engine, server: Server) -> None:
    """Each candidate shows its caller, and its words if they differ; nothing is prefilled if one has no words.

    Ids are suggested for the link, but not for the confirmation of a second send.
    """
    runs = listed(("run_other1", "fix/x"), ("run_made1", "fix/x"))
    for other, prefilled in (("Tidy up.", "run_made1"), (None, ""), ("Fix it.", "")):
        action = await unknown_start(engine, server, runs, {"run_made1": "Fix it.", "run_other1": other})
        async with opened(lambda engine, action=action: ResolveForm(engine, action)) as form:
            text = form.words
            await form.press("y")
            assert form.screen.query_one(LineInput).value == prefilled
            if prefilled:
                await form.press("a")
                assert "Type send again to confirm." in form.text
                assert form.screen.query_one(LineInput).value == ""
            await form.press("escape")
        assert re.search(r"run_made1 \d+s after the send by ada queued fix/x same words: “Fix it.”", text)
        if prefilled:
            assert "by ada queued fix/x other words: “Tidy up.”" in text
            assert text.index("run_made1") < text.index("run_other1")
        await engine.actions.resolve(action.action_id, None)


async def test_the_best_candidate_is_prefilled_and_digits_pick_others(
    opened: Opened, engine: Engine, server: Server
) -> None:
    """Of eight runs with the same words, one is by our own token; the one with other words comes last with a number."""
    ids = [f"run_{n}" for n in range(8)]
    said: dict[str, str | None] = dict.fromkeys(ids, "Fix it.") | {"run_3": "Tidy up."}
    runs = listed(*((run_id, "fix/x") for run_id in ids))
    action = await unknown_start(engine, server, runs, said, {"run_5": "ada"})
    async with opened(lambda engine: ResolveForm(engine, action)) as form:
        assert "1 run_5" in next(line for line in form.text.splitlines() if "run_" in line)
        await form.press("y")
        assert form.screen.query_one(LineInput).value == "run_5"
        await form.press("8", "ctrl+s")

    assert form.app.outcome.result_id == "run_3"


async def test_a_decision_made_elsewhere_is_reported(opened: Opened, engine: Engine, server: Server) -> None:
    """Nothing can be applied any more, and the form closes with the first decision, which stays."""
    action = await unknown_start(engine, server, RUNS)
    async with opened(lambda engine: ResolveForm(engine, action), "", "y") as form:
        await engine.actions.resolve(action.action_id, "run_made1")
        engine.events.publish(FilesChangedElsewhere())
        await form.settle()
        assert "Already resolved elsewhere: it took effect and created run_made1" in form.words
        assert "Resolve it" not in form.words
        await form.press("ctrl+s")
        assert not form.app.ended
        await form.press("escape")
    decided = await engine.ledger.action(action.action_id)
    assert form.app.outcome == decided

    async with opened(lambda engine: ResolveForm(engine, action), "", "n", "ctrl+s") as form:
        assert "not possible from there" in form.words
        assert not form.app.ended
    assert await engine.ledger.action(action.action_id) == decided


async def test_recording_an_odd_id_needs_a_confirmation(opened: Opened, engine: Engine, server: Server) -> None:
    """Recording an odd id needs its own key, not the usual one; another odd id asks again."""
    action = await unknown_start(engine, server, RUNS)
    async with opened(lambda engine: ResolveForm(engine, action), "", "y", "tab") as form:
        for typed, doubt in (
            ("hello", "'hello' does not look like a run's id."),
            ("run_elsewhere9", "The service lists no run run_elsewhere9 from around the time it was sent."),
            ("run_other", "run_other does not fit: it is on the branch main."),
        ):
            await form.press("ctrl+u")
            await form.fill(typed)
            await form.press("ctrl+y", "ctrl+s", "ctrl+s")
            assert doubt in form.words
            assert "Record it anyway" in form.words
            assert await engine.ledger.action(action.action_id) == action
        await form.press("ctrl+y")

    assert (form.app.outcome.state, form.app.outcome.result_id) == ("confirmed", "run_other")


async def test_without_candidates_nothing_is_decided(opened: Opened, engine: Engine, server: Server) -> None:
    """Without candidates nothing is decided automatically, and the user may still enter an id."""
    for answer, said in (
        (listed(("run_other", "main")), "No run matches: most likely it did not take effect."),
        (Respond(503, {"message": "Down for repairs."}), "The service could not be asked"),
    ):
        action = await unknown_start(engine, server, answer)
        async with opened(lambda engine, action=action: ResolveForm(engine, action)) as form:
            assert said in form.words
            assert not form.app.ended
            await form.press("n", "ctrl+s")

        assert form.app.outcome.state == "not_created"


async def test_cancelling_does_not_wait_for_a_silent_service(
    opened: Opened, engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sheet reports at once that the outcome is unknown; the background check resolves it."""
    server.otherwise = lambda _: Drop()
    monkeypatch.setattr("app.actions.reconciliation.settle_from_turns", lambda *_: asyncio.Event().wait())
    monkeypatch.setattr("app.actions.screen_many.LOOK_S", 0.0)
    async with opened(lambda engine: cancel_sheet(engine, [a_run(1, "main", "working")]), "", "ctrl+s") as form:
        pass

    assert "Whether the run was cancelled is unknown" in form.app.outcome
    assert [action.kind for action in await engine.ledger.unresolved()] == ["run.cancel"]


async def test_a_refused_cancellation_does_not_stop_the_others(
    opened: Opened, engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cancellation is refused and another process records one outcome first; the report lists every run."""

    def answer(request: Received) -> Step:
        match request.path.split("/")[-2]:
            case "run_1":
                return Drop()
            case "run_2":
                return Respond(409, {"message": "It has ended.", "error_code": "run_not_active"})
            case run_id:
                return Respond(202, CREATED | {"run_id": run_id, "status": "failed"})

    async def look_too_late(_: object, action: Action) -> Action:
        if action.state == "unknown":
            await engine.ledger.resolve(action.action_id, "run_1")
            raise WrongStateError(action, "resolve_created")
        return action

    server.otherwise = answer
    monkeypatch.setattr("app.actions.reconciliation.settle_from_turns", look_too_late)
    async with opened(
        lambda engine: cancel_sheet(engine, [a_run(number, "main", "working") for number in (1, 2, 3)]), "", "ctrl+s"
    ) as form:
        pass

    assert form.app.outcome.startswith("2 of 3 runs were cancelled. run_2: It has ended.")


async def test_cancelling_many_stops_at_a_fault_all_would_have(opened: Opened, engine: Engine, server: Server) -> None:
    """After a first unknown outcome of three, the others are not sent, and the report counts them."""
    server.otherwise = lambda request: Drop() if request.method == "POST" else Respond(404)
    async with opened(
        lambda engine: cancel_sheet(engine, [a_run(number, "main", "working") for number in (1, 2, 3)]), "", "ctrl+s"
    ) as form:
        pass

    assert "Whether run_1 was cancelled is unknown" in form.app.outcome
    assert form.app.outcome.endswith("2 runs were not tried.")
    assert len(server.posts) == 1


async def test_a_cancel_names_the_waiting_continuation(opened: Opened, engine: Engine, server: Server) -> None:
    """A waiting continuation is dropped with the run: the sheet says so."""
    server.otherwise = lambda _: Respond(202, CREATED | {"run_id": "run_1", "status": "failed"})
    waiting = await engine.follow_ups.wait(ContinueRun("run_1", "Then add tests.", WEB))
    async with opened(
        lambda engine: cancel_sheet(engine, [a_run(1, "main", "working")], 0, [waiting]), size=(100, 40)
    ) as form:
        assert "ctrl+s Cancel the run esc Keep it" in form.words
        assert "A continuation waits for its end: “Then add tests.”. It is dropped, too." in form.words
