"""A new run from the form: preview, sending, refusals and everything that helps to fill it in."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from textual import events
from textual.widgets import Input

from app.actions.screen_writes import NewRunForm
from app.console.app import RunwardenApp
from app.engine.engine import Engine
from tests.console.forms.conftest import Stage
from tests.console.forms.steps import CREATED, FILLED, drafts_of, opened, painted, press, settle, words, write
from tests.lab import Drop, Respond


async def test_what_is_previewed_is_what_is_sent(stage: Any, engine: Engine, post: Any) -> None:
    """Method, address and every byte of the body's meaning; sent once, shown with the id it made."""
    post.next(Respond(201, CREATED))
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s") as pilot:
        preview = painted(app)
        sent_before = len(post.requests)
        await press(pilot, "ctrl+s")
        outcome = painted(app)
        await press(pilot, "escape")

    body = {
        "instructions": "Fix the flaky test.\nThen run it.",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "metadata": {"depth": 3},
    }
    assert f"POST {engine.profile.base_url}/external/runs" in preview
    assert '"instructions": "Fix the flaky test.\\nThen run it.",' in preview
    assert sent_before == 0
    assert [request.json() for request in post.requests] == [body]
    assert "run_01J8" in outcome
    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_01J8")
    assert await engine.cache.detail("run_01J8") is not None
    assert await drafts_of(engine).load("run.start") is None


async def test_a_rejection_leads_back_to_the_fields_with_everything_kept(stage: Any, post: Any) -> None:
    """Message, status and code are shown, or the cure; sent again, it succeeds."""
    post.next(Respond(400, {"message": "Branch is protected.", "error_code": "protected"}), Respond(201, CREATED))
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s", "ctrl+s") as pilot:
        text = painted(app)
        values = app.screen.values
        for status, cure in ((401, "give this profile a new one"), (403, "No. (HTTP 403)"), (429, "wait")):
            post.steps.insert(0, Respond(status, {"message": "No."}))
            await press(pilot, "ctrl+s", "ctrl+s")
            assert cure in words(app)
        await press(pilot, "ctrl+s", "ctrl+s")

        assert app.screen.phase == "outcome"

    assert "Rejected: Branch is protected. (HTTP 400, protected)" in text
    assert values["repository"] == "acme/web"
    assert values["instructions"] == "Fix the flaky test.\nThen run it."
    assert len(post.requests) == 5


async def test_a_service_that_is_down_leaves_it_unsent(stage: Any, engine: Engine, server: Any) -> None:
    """Nothing left this machine, the form is as it was, and the ledger knows."""
    server.close()
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s", "ctrl+s"):
        text = words(app)
        phase = app.screen.phase

    assert "Not sent:" in text
    assert "Nothing left this machine" in text
    assert phase == "editing"
    assert [action.state for action in await engine.ledger.actions()] == ["not_sent"]


async def test_a_lost_answer_is_shown_as_unknown_and_never_sent_again(stage: Any, engine: Engine, post: Any) -> None:
    """The keys that sent it now do nothing; the draft stays and says that it was sent."""
    post.next(Drop())
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s", "ctrl+s") as pilot:
        text = words(app)
        await press(pilot, "ctrl+s", "ctrl+s", "escape")
    again = stage(NewRunForm)
    async with opened(again) as pilot:
        reopened = words(again)

    assert "The outcome is unknown" in text
    assert "runwarden actions resolve act_" in text
    assert len(post.requests) == 1
    assert app.outcome.state == "unknown"
    assert "the outcome is unknown: check before you send it again" in reopened


async def test_keys_pressed_while_sending_neither_send_twice_nor_close(stage: Any, post: Any) -> None:
    """One request, however often the key is pressed."""
    post.next(Respond(201, CREATED), Respond(201, CREATED))
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s") as pilot:
        form = app.screen
        form.action_forward()
        sending = form.phase
        form.action_forward()
        allowed = [form.check_action(name, ()) for name in ("forward", "back", "swap_draft", "edit")]
        await settle(pilot)

    assert sending == "sending"
    assert allowed == [False, False, False, False]
    assert len(post.requests) == 1


async def test_what_a_terminal_would_obey_does_not_get_into_a_field(stage: Any) -> None:
    """A paste loses it, and the field says so; a prefilled value that holds it is left out."""
    hostile = "acme\x1b]52;c;x\x07/we\u202eb"
    app = stage(lambda engine: NewRunForm(engine, hostile))
    async with opened(app) as pilot:
        prefilled = app.screen.values
        app.screen.query_one("#field-repository Input", Input).replace(hostile, 0, 0)
        await settle(pilot)
        text, pasted = painted(app), app.screen.values

    assert set(prefilled.values()) == {""}
    assert pasted["repository"] == "acme]52;c;x/web"
    assert "3 characters that cannot be shown" in text


async def test_a_read_only_profile_previews_and_never_sends(
    settings: Any, profile: Any, clock: Any, post: Any, tmp_path: Path
) -> None:
    """It says so from the start; there is no button to send with."""
    async with await Engine.open(settings, replace(profile, read_only=True), actor="console", clock=clock) as engine:
        app = Stage(lambda: NewRunForm(engine))
        async with opened(app, size=(100, 30)) as pilot:
            text = painted(app)
            await write(pilot, FILLED)
            await press(pilot, "ctrl+s", "ctrl+s", "ctrl+s")
            preview = painted(app)

    assert "read-only" in text
    assert "POST" in preview
    assert "Send" not in preview
    assert post.requests == []


async def test_keys_of_one_burst_each_land_in_their_own_field(console: RunwardenApp) -> None:
    """Tab and enter move on before the next key is read, however quickly they come."""
    async with opened(console, "", "n") as pilot:
        form = console.screen
        assert isinstance(form, NewRunForm)
        burst = [*"acme/web", "tab", *"topic", "enter", *"Go on", "tab", *"a=1"]
        for key in burst:
            name = {" ": "space", "/": "slash", "=": "equals_sign"}.get(key, key)
            console.post_message(events.Key(name, key if len(key) == 1 else None))
        await settle(pilot)

        typed = {"repository": "acme/web", "branch_name": "topic", "instructions": "Go on", "metadata": "a=1"}
        assert {key: value for key, value in form.values.items() if value} == typed
