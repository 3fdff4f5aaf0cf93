"""Forms: the preview, sending, refusals, and the requests that arrive."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input

from app.actions.screen_batch import continue_batch
from app.actions.screen_many import ManyForm
from app.actions.screen_writes import ContinueRunForm, NewRunForm, OrganizationForm
from app.engine.engine import Engine
from storage.records import FINAL_STATUSES
from tests.console.forms.conftest import CREATED, EXECUTION, FILLED, Opened, a_run, draft_of
from tests.console.scenes import engine_on, settings_for
from tests.lab import Drop, Respond
from widgets.kit import SecondPress


async def test_what_is_previewed_is_what_is_sent(opened: Opened, engine: Engine, post: Any) -> None:
    """Method, address and body match the preview, the request is sent once, and its new id is shown.

    Keys pressed meanwhile neither send it twice nor close the form.
    """
    post.next(Respond(201, CREATED), Respond(201, CREATED))
    async with opened(NewRunForm, FILLED, "ctrl+s") as form:
        assert f"POST {engine.profile.base_url}/external/runs" in form.text
        assert '"instructions": "Fix the flaky test.\\nThen run it.",' in form.text
        assert post.requests == []
        form.screen.action_forward()
        assert form.screen.phase == "sending"
        form.screen.action_forward()
        assert not any(form.screen.check_action(name, ()) for name in ("forward", "back", "swap_draft", "edit"))
        await form.settle()
        assert "run_01J8" in form.text
        await form.press("escape")

    body = {
        "instructions": "Fix the flaky test.\nThen run it.",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "metadata": {"depth": 3},
    }
    assert [request.json() for request in post.requests] == [body]
    assert (form.app.outcome.state, form.app.outcome.result_id) == ("confirmed", "run_01J8")
    assert await engine.cache.detail("run_01J8") is not None
    assert await draft_of(engine, "run.start") is None


async def test_a_rejection_leads_back_to_the_fields_with_everything_kept(opened: Opened, post: Any) -> None:
    """The form shows the message, status and code, or the fix; sent again, it succeeds."""
    post.next(Respond(400, {"message": "Branch is protected.", "error_code": "protected"}), Respond(201, CREATED))
    async with opened(NewRunForm, FILLED, "ctrl+s", "ctrl+s") as form:
        assert "Rejected: Branch is protected. (HTTP 400, protected)" in form.text
        assert form.screen.values["instructions"] == "Fix the flaky test.\nThen run it."
        for status, fix in ((401, "give this profile a new one"), (403, "No. (HTTP 403)"), (429, "wait")):
            post.steps.insert(0, Respond(status, {"message": "No."}))
            await form.press("ctrl+s", "ctrl+s")
            assert fix in form.words
        await form.press("ctrl+s", "ctrl+s")

        assert form.screen.phase == "outcome"

    assert len(post.requests) == 5


async def test_a_service_that_is_down_leaves_it_unsent(opened: Opened, engine: Engine, server: Any) -> None:
    """Nothing was sent, the form is unchanged, and the ledger records it as not sent."""
    server.close()
    async with opened(NewRunForm, FILLED, "ctrl+s", "ctrl+s") as form:
        assert "Not sent:" in form.words
        assert "Nothing left this machine" in form.words
        assert form.screen.phase == "editing"

    assert [action.state for action in await engine.ledger.actions()] == ["not_sent"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda engine: NewRunForm(engine, "acme/web"), id="one"),
        pytest.param(lambda engine: ManyForm(engine, continue_batch([FLAKY], {}, FINAL_STATUSES), cap=2), id="many"),
    ],
)
async def test_a_ledger_that_loses_the_action_leaves_no_form_sending(
    opened: Opened, engine: Engine, post: Any, make: Any
) -> None:
    """The form reports the error, and one step back are the fields with all values."""
    loses = "CREATE TRIGGER loses AFTER INSERT ON actions BEGIN DELETE FROM actions; END"
    await engine.ledger.writer.run(lambda held: held.execute(loses))
    async with opened(make, "Fix the flaky test.", "ctrl+s", "ctrl+s") as form:
        assert "There is no action act_" in form.words
        assert form.screen.phase == "refused"
        await form.press("escape")
        assert (form.screen.phase, form.screen.values["instructions"]) == ("editing", "Fix the flaky test.")

    assert post.requests == []


async def test_what_a_terminal_would_obey_does_not_get_into_a_field(opened: Opened) -> None:
    """A paste loses its control characters and the field says so; a prefilled value with some is left out."""
    hostile = "acme\x1b]52;c;x\x07/we\u202eb"
    async with opened(lambda engine: NewRunForm(engine, hostile)) as form:
        assert set(form.screen.values.values()) == {""}
        form.screen.query_one("#field-repository Input", Input).replace(hostile, 0, 0)
        await form.settle()
        assert form.screen.values["repository"] == "acme]52;c;x/web"
        assert "3 characters that cannot be shown" in form.text


async def test_a_read_only_profile_never_sends(
    opened: Opened, server: Any, clock: Any, post: Any, tmp_path: Path
) -> None:
    """The form says so from the start, and has no send button."""
    async with (
        engine_on(settings_for(server.base_url, tmp_path, read_only=True), clock) as engine,
        opened(lambda _: NewRunForm(engine), size=(100, 30)) as form,
    ):
        assert "read-only" in form.text
        await form.fill(FILLED)
        await form.press("ctrl+s", "ctrl+s", "ctrl+s")
        assert "POST" in form.text
        assert "Send" not in form.text

    assert post.requests == []


ORGANIZATION_9 = {
    "organization_id": "org_9",
    "organization_name": "Globex",
    "organization_slug": "globex",
    "parent_organization_id": "org_1",
}
CONTINUED = Respond(201, CREATED | {"run_id": "run_1", "branch_name": "agent/flaky"})
FLAKY = a_run(1, "agent/flaky")


async def test_an_agents_inputs_are_sent_as_interpreted(opened: Opened, post: Any) -> None:
    """A value that is JSON is sent as JSON, any other as text."""
    post.next(Respond(202, EXECUTION))
    async with opened(
        lambda engine: NewRunForm(engine, "gitlab:acme/web", focus="name"),
        "security-review\t\tmain\t\tdepth=full\nlimit=3\nonly=[1, null]\ndry=true",
    ) as form:
        await form.press("ctrl+s", "ctrl+s")
        assert "exec_7" in form.words
        assert "The API does not show executions" in form.words

    (request,) = post.requests
    assert request.path == "/v1/external/agents/security-review/runs"
    assert request.json() == {
        "repository": "acme/web",
        "branch_name": "main",
        "inputs": {"depth": "full", "limit": 3, "only": [1, None], "dry": True},
    }


async def test_a_continuation_shows_its_run_and_branch(
    opened: Opened, engine: Engine, post: Any, monkeypatch: Any
) -> None:
    """The run is shown, not typed. A key pressed too early sends nothing, and its hint says that it sends."""
    monkeypatch.setattr(SecondPress, "PAUSE_S", 3600)
    post.next(CONTINUED)
    async with opened(lambda engine: ContinueRunForm(engine, FLAKY), "And now the docs.") as form:
        assert "✗ failed  run_1" in form.text
        await form.press("ctrl+s", "ctrl+s", "ctrl+s")
        assert "Check it, then press ^s again to send." in form.text
        assert post.requests == []
        monkeypatch.setattr(SecondPress, "PAUSE_S", 0)
        await form.press("ctrl+s", "enter")

    (request,) = post.requests
    assert request.json() == {
        "instructions": "And now the docs.",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "branch_name": "agent/flaky",
        "run_id": "run_1",
    }
    assert [action.subject for action in await engine.ledger.for_run("run_1")] == ["run_1"]


async def test_a_continuation_waits_while_an_earlier_one_is_unknown(opened: Opened, post: Any) -> None:
    """The form shows the earlier attempt; once it is resolved on the spot, the form returns with its text and sends."""
    post.next(Drop(), CONTINUED)
    for text in ("first", "second"):
        async with opened(lambda engine: ContinueRunForm(engine, FLAKY), "", "ctrl+n") as form:
            await form.fill(text)
            await form.press("ctrl+s", "ctrl+s")
            blocked = form.words
            if text == "second":
                await form.press("v", "n", "ctrl+s")
                assert form.screen.values == {"instructions": "second"}
                await form.press("ctrl+s", "ctrl+s")
                assert "The run was continued" in form.words

    assert "Not sent: an earlier attempt is still open" in blocked
    assert "run_1" in blocked
    assert [request.json()["instructions"] for request in post.requests] == ["first", "second"]


async def test_a_message_becomes_a_continuation_if_its_run_ends_meanwhile(opened: Opened, post: Any) -> None:
    """After the service's refusal, the form becomes a continuation with the same text.

    The next send continues the run.
    """
    ended = {"run_id": "run_1", "turns": [{"number": 1, "state": "completed"}]}
    post.turns["run_1"] = {"run_id": "run_1", "turns": [{"number": 1, "state": "working"}]}
    post.next(Respond(409, {"message": "It has ended.", "error_code": "run_not_active"}), CONTINUED)
    async with opened(
        lambda engine: ContinueRunForm(engine, replace(FLAKY, status="working")), "And the docs.", "ctrl+s"
    ) as form:
        assert "Reaches the agent of run_1 at work" in form.words
        post.turns["run_1"] = ended
        await form.press("ctrl+s")
        assert "The run has ended: this continues it." in form.words
        await form.press("ctrl+s")
        assert "Continues run_1 with its context." in form.words
        await form.press("ctrl+s")

    said, continued = post.requests
    assert said.path.endswith("/external/runs/run_1/messages")
    assert continued.path.endswith("/external/runs")
    assert continued.json()["instructions"] == said.json()["text"] == "And the docs."


async def test_a_hostile_run_is_displayed_safely(opened: Opened, post: Any) -> None:
    """A branch that git would refuse is not sent; the run's id is sent unchanged."""
    hostile = a_run("[@click=app.quit]\x1b[2J", "x\x1b]52;c;eA==\x07[/nope]\u202e")
    post.next(CONTINUED)
    async with opened(lambda engine: ContinueRunForm(engine, hostile), "Go on.") as form:
        text = form.text
        await form.press("ctrl+s")
        assert not {"\x1b", "\x07", "\u202e"} & set(text + form.text)
        await form.press("ctrl+s")

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
    press.start_pause()
    assert [at(moment) for moment in (5.3, 5.9, 6.5, 7.1, 7.9, 8.0)] == [False, False, False, False, True, False]
    press.forget()
    assert not at(20.0)


async def test_an_email_with_an_organization_gives_a_warning(opened: Opened, post: Any, clock: Any) -> None:
    """The form warns while typing and in the preview, and asks for the address again, which no draft stores.

    After success it offers a fresh form with the same offer code and no address.
    """
    post.next(*(Respond(201, ORGANIZATION_9 | {"organization_id": f"org_{number}"}) for number in (9, 10, 11)))
    async with opened(OrganizationForm, "ada@globex.example\tPARTNER", "ctrl+s") as form:
        assert "Creates one organization and invites ada@globex.example" in form.words
        await form.press("ctrl+s")
        assert "until 2026-06-03" in form.words
        assert "Create another n" in form.words
        await form.press("n")
        await form.fill("bea@initech.example")
        await form.press("ctrl+s", "ctrl+s")
        assert "org_10" in form.words
    clock.move(days=2)
    async with opened(OrganizationForm, "ADA@globex.example") as form:
        assert "Has one already (2d ago); this adds another." in form.words
        await form.press("ctrl+s", "ctrl+s")
        assert "Type ADA@globex.example again to create one more." in form.words
        assert form.screen.phase == "editing"
        await form.fill("ada@globex.example")
        await form.press("ctrl+s")
        assert "It has 1 from here already; this creates one more." in form.words
        assert "again" not in form.screen.form_draft.current.values
        await form.press("ctrl+s")
        assert "org_11" in form.words

    sent = [(request.json()["email"], request.json().get("offer_code")) for request in post.requests]
    assert sent[:2] == [("ada@globex.example", "PARTNER"), ("bea@initech.example", "PARTNER")]
    assert len(sent) == 3


async def test_the_preview_matches_its_picture(opened: Opened, engine: Engine, clock: Any, picture: Any) -> None:
    """The preview uses an address that is the same in every test run."""
    await engine.cache.note_no_results(clock())
    engine.profile = replace(engine.profile, base_url="https://api.acme.example/v1")
    filled = "acme/web\tfix/x\tFix the \u202eflaky\ntest. " + "Long. " * 40
    async with opened(NewRunForm, filled, "ctrl+s") as form:
        assert form.app.export_screenshot(title="runwarden") == picture
