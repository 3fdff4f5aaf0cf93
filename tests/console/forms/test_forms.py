"""Forms: the preview, sending, refusals, and the requests that arrive."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input

from app.actions.screen_batch import continued
from app.actions.screen_many import ManyForm
from app.actions.screen_writes import ContinueRunForm, NewRunForm, OrganizationForm
from app.engine.engine import Engine
from storage.records import FINAL_STATUSES
from tests.console.forms.conftest import (
    CREATED,
    EXECUTION,
    FILLED,
    Stage,
    a_run,
    draft_of,
    opened,
    painted,
    press,
    settle,
    words,
    write,
)
from tests.console.scenes import engine_on, settings_for
from tests.lab import Drop, Respond
from widgets.kit import SecondPress


async def test_what_is_previewed_is_what_is_sent(stage: Any, engine: Engine, post: Any) -> None:
    """Method, address and body match the preview, the request is sent once, and its new id is shown.

    Keys pressed meanwhile neither send it twice nor close the form.
    """
    post.next(Respond(201, CREATED), Respond(201, CREATED))
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s") as pilot:
        assert f"POST {engine.profile.base_url}/external/runs" in painted(app)
        assert '"instructions": "Fix the flaky test.\\nThen run it.",' in painted(app)
        assert post.requests == []
        form = app.screen
        form.action_forward()
        assert form.phase == "sending"
        form.action_forward()
        assert not any(form.check_action(name, ()) for name in ("forward", "back", "swap_draft", "edit"))
        await settle(pilot)
        assert "run_01J8" in painted(app)
        await press(pilot, "escape")

    body = {
        "instructions": "Fix the flaky test.\nThen run it.",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "metadata": {"depth": 3},
    }
    assert [request.json() for request in post.requests] == [body]
    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_01J8")
    assert await engine.cache.detail("run_01J8") is not None
    assert await draft_of(engine, "run.start") is None


async def test_a_rejection_leads_back_to_the_fields_with_everything_kept(stage: Any, post: Any) -> None:
    """The form shows the message, status and code, or the fix; sent again, it succeeds."""
    post.next(Respond(400, {"message": "Branch is protected.", "error_code": "protected"}), Respond(201, CREATED))
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s", "ctrl+s") as pilot:
        assert "Rejected: Branch is protected. (HTTP 400, protected)" in painted(app)
        assert app.screen.values["instructions"] == "Fix the flaky test.\nThen run it."
        for status, fix in ((401, "give this profile a new one"), (403, "No. (HTTP 403)"), (429, "wait")):
            post.steps.insert(0, Respond(status, {"message": "No."}))
            await press(pilot, "ctrl+s", "ctrl+s")
            assert fix in words(app)
        await press(pilot, "ctrl+s", "ctrl+s")

        assert app.screen.phase == "outcome"

    assert len(post.requests) == 5


async def test_a_service_that_is_down_leaves_it_unsent(stage: Any, engine: Engine, server: Any) -> None:
    """Nothing was sent, the form is unchanged, and the ledger records it as not sent."""
    server.close()
    app = stage(NewRunForm)
    async with opened(app, FILLED, "ctrl+s", "ctrl+s"):
        assert "Not sent:" in words(app)
        assert "Nothing left this machine" in words(app)
        assert app.screen.phase == "editing"

    assert [action.state for action in await engine.ledger.actions()] == ["not_sent"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda engine: NewRunForm(engine, "acme/web"), id="one"),
        pytest.param(lambda engine: ManyForm(engine, continued([FLAKY], {}, FINAL_STATUSES), cap=2), id="many"),
    ],
)
async def test_a_ledger_that_loses_the_action_leaves_no_form_sending(
    stage: Any, engine: Engine, post: Any, make: Any
) -> None:
    """The form reports the error, and one step back are the fields with all values."""
    loses = "CREATE TRIGGER loses AFTER INSERT ON actions BEGIN DELETE FROM actions; END"
    await engine.ledger.writer.run(lambda held: held.execute(loses))
    app = stage(make)
    async with opened(app, "Fix the flaky test.", "ctrl+s", "ctrl+s") as pilot:
        assert "There is no action act_" in words(app)
        assert app.screen.phase == "refused"
        await press(pilot, "escape")
        assert (app.screen.phase, app.screen.values["instructions"]) == ("editing", "Fix the flaky test.")

    assert post.requests == []


async def test_what_a_terminal_would_obey_does_not_get_into_a_field(stage: Any) -> None:
    """A paste loses its control characters and the field says so; a prefilled value with some is left out."""
    hostile = "acme\x1b]52;c;x\x07/we\u202eb"
    app = stage(lambda engine: NewRunForm(engine, hostile))
    async with opened(app) as pilot:
        assert set(app.screen.values.values()) == {""}
        app.screen.query_one("#field-repository Input", Input).replace(hostile, 0, 0)
        await settle(pilot)
        assert app.screen.values["repository"] == "acme]52;c;x/web"
        assert "3 characters that cannot be shown" in painted(app)


async def test_a_read_only_profile_never_sends(server: Any, clock: Any, post: Any, tmp_path: Path) -> None:
    """The form says so from the start, and has no send button."""
    async with engine_on(settings_for(server.base_url, tmp_path, read_only=True), clock) as engine:
        app = Stage(lambda: NewRunForm(engine))
        async with opened(app, size=(100, 30)) as pilot:
            assert "read-only" in painted(app)
            await write(pilot, FILLED)
            await press(pilot, "ctrl+s", "ctrl+s", "ctrl+s")
            assert "POST" in painted(app)
            assert "Send" not in painted(app)

    assert post.requests == []


ORGANIZATION_9 = {
    "organization_id": "org_9",
    "organization_name": "Globex",
    "organization_slug": "globex",
    "parent_organization_id": "org_1",
}
CONTINUED = Respond(201, CREATED | {"run_id": "run_1", "branch_name": "agent/flaky"})
FLAKY = a_run(1, "agent/flaky")


async def test_an_agents_inputs_are_sent_as_they_were_read(stage: Any, post: Any) -> None:
    """Each field shows how its value is interpreted while typing."""
    post.next(Respond(202, EXECUTION))
    app = stage(lambda engine: NewRunForm(engine, "gitlab:acme/web", focus="name"))
    async with opened(app, "security-review\t\tmain\t\tdepth=full\nlimit=3\nonly=[1, null]\ndry=true") as pilot:
        assert "depth: text, limit: number, only: list, dry: yes/no" in painted(app)
        await press(pilot, "ctrl+s", "ctrl+s")
        assert "exec_7" in words(app)
        assert "The API does not show executions" in words(app)

    (request,) = post.requests
    assert request.path == "/v1/external/agents/security-review/runs"
    assert request.json() == {
        "repository": "acme/web",
        "branch_name": "main",
        "inputs": {"depth": "full", "limit": 3, "only": [1, None], "dry": True},
    }


async def test_a_continuation_names_run_and_branch(stage: Any, engine: Engine, post: Any, monkeypatch: Any) -> None:
    """The run is shown, not typed. A key pressed too early sends nothing, and its hint says that it sends."""
    monkeypatch.setattr(SecondPress, "PAUSE_S", 3600)
    post.next(CONTINUED)
    app = stage(lambda engine: ContinueRunForm(engine, FLAKY))
    async with opened(app, "And now the docs.") as pilot:
        assert "✗ failed  run_1" in painted(app)
        await press(pilot, "ctrl+s", "ctrl+s", "ctrl+s")
        assert "Check it, then press ^s again to send." in painted(app)
        assert post.requests == []
        monkeypatch.setattr(SecondPress, "PAUSE_S", 0)
        await press(pilot, "ctrl+s", "enter")

    (request,) = post.requests
    assert request.json() == {
        "instructions": "And now the docs.",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "branch_name": "agent/flaky",
        "run_id": "run_1",
    }
    assert [action.subject for action in await engine.ledger.for_run("run_1")] == ["run_1"]


async def test_a_continuation_waits_while_an_earlier_one_is_unknown(stage: Any, post: Any) -> None:
    """The form shows the earlier attempt; once it is resolved on the spot, the form returns with its text and sends."""
    post.next(Drop(), CONTINUED)
    for text in ("first", "second"):
        app = stage(lambda engine: ContinueRunForm(engine, FLAKY))
        async with opened(app, "", "ctrl+n") as pilot:
            await write(pilot, text)
            await press(pilot, "ctrl+s", "ctrl+s")
            blocked = words(app)
            if text == "second":
                await press(pilot, "v", "n", "ctrl+s")
                assert app.screen.values == {"instructions": "second"}
                await press(pilot, "ctrl+s", "ctrl+s")
                assert "The run was continued" in words(app)

    assert "Not sent: an earlier attempt is still open" in blocked
    assert "run_1" in blocked
    assert [request.json()["instructions"] for request in post.requests] == ["first", "second"]


async def test_a_message_becomes_a_continuation_if_its_run_ends_meanwhile(stage: Any, post: Any) -> None:
    """After the service's refusal, the form becomes a continuation with the same text.

    The next send continues the run.
    """
    ended = {"run_id": "run_1", "turns": [{"number": 1, "state": "completed"}]}
    post.turns["run_1"] = {"run_id": "run_1", "turns": [{"number": 1, "state": "working"}]}
    post.next(Respond(409, {"message": "It has ended.", "error_code": "run_not_active"}), CONTINUED)
    app = stage(lambda engine: ContinueRunForm(engine, replace(FLAKY, status="working")))
    async with opened(app, "And the docs.", "ctrl+s") as pilot:
        assert "Reaches the agent of run_1 at work" in words(app)
        post.turns["run_1"] = ended
        await press(pilot, "ctrl+s")
        assert "The run has ended: this continues it." in words(app)
        await press(pilot, "ctrl+s")
        assert "Continues run_1 with its context." in words(app)
        await press(pilot, "ctrl+s")

    said, continued = post.requests
    assert said.path.endswith("/external/runs/run_1/messages")
    assert continued.path.endswith("/external/runs")
    assert continued.json()["instructions"] == said.json()["text"] == "And the docs."


async def test_a_hostile_run_is_shown_harmlessly(stage: Any, post: Any) -> None:
    """A branch that git would refuse is not sent; the run's id is sent unchanged."""
    hostile = a_run("[@click=app.quit]\x1b[2J", "x\x1b]52;c;eA==\x07[/nope]\u202e")
    post.next(CONTINUED)
    app = stage(lambda engine: ContinueRunForm(engine, hostile))
    async with opened(app, "Go on.") as pilot:
        text = painted(app)
        await press(pilot, "ctrl+s")
        assert not {"\x1b", "\x07", "\u202e"} & set(text + painted(app))
        await press(pilot, "ctrl+s")

    assert "[/nope]" in text
    (request,) = post.requests
    assert request.json()["run_id"] == hostile.run_id
    assert "branch_name" not in request.json()


def test_a_held_key_never_counts_as_a_second_press() -> None:
    """A press before the preview is visible does not count either; one after a pause counts, once."""
    now = [0.0]
    press = SecondPress(lambda: now[0])
    press.PAUSE_S = 0.8  # type: ignore[misc]  # the staged console has none

    def at(moment: float) -> bool:
        now[0] = moment
        return press.press()

    assert not at(5.0)
    press.painted()
    assert [at(moment) for moment in (5.3, 5.9, 6.5, 7.1, 7.9, 8.0)] == [False, False, False, False, True, False]
    press.forget()
    assert not at(20.0)


async def test_an_address_that_has_an_organization_is_pointed_out(stage: Any, post: Any, clock: Any) -> None:
    """The form warns while typing and in the preview, and asks for the address again, which no draft stores.

    After success it offers a fresh form with the same offer code and no address.
    """
    post.next(*(Respond(201, ORGANIZATION_9 | {"organization_id": f"org_{number}"}) for number in (9, 10, 11)))
    async with opened(stage(OrganizationForm), "ada@globex.example\tPARTNER", "ctrl+s") as pilot:
        assert "Creates one organization and invites ada@globex.example" in words(pilot.app)
        await press(pilot, "ctrl+s")
        assert "until 2026-06-03" in words(pilot.app)
        assert "Create another n" in words(pilot.app)
        await press(pilot, "n")
        await write(pilot, "bea@initech.example")
        await press(pilot, "ctrl+s", "ctrl+s")
        assert "org_10" in words(pilot.app)
    clock.move(days=2)
    app = stage(OrganizationForm)
    async with opened(app, "ADA@globex.example") as pilot:
        assert "Has one already (2d ago); this adds another." in words(app)
        await press(pilot, "ctrl+s", "ctrl+s")
        assert "Type ADA@globex.example again to create one more." in words(app)
        assert app.screen.phase == "editing"
        await write(pilot, "ada@globex.example")
        await press(pilot, "ctrl+s")
        assert "It has 1 from here already; this creates one more." in words(app)
        assert "again" not in app.screen.form_draft.current.values
        await press(pilot, "ctrl+s")
        assert "org_11" in words(app)

    sent = [(request.json()["email"], request.json().get("offer_code")) for request in post.requests]
    assert sent[:2] == [("ada@globex.example", "PARTNER"), ("bea@initech.example", "PARTNER")]
    assert len(sent) == 3


async def test_a_preview_looks_as_it_was_accepted(stage: Any, engine: Engine, clock: Any, picture: Any) -> None:
    """The preview uses an address that is the same in every test run."""
    await engine.cache.note_no_results(clock())
    engine.profile = replace(engine.profile, base_url="https://api.acme.example/v1")
    filled = "acme/web\tfix/x\tFix the \u202eflaky\ntest. " + "Long. " * 40
    async with opened(stage(lambda _: NewRunForm(engine)), filled, "ctrl+s") as pilot:
        assert pilot.app.export_screenshot(title="runwarden") == picture
