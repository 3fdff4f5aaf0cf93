"""The forms against the real service, over the socket, in its own process."""

import email
from collections.abc import Iterator
from typing import Any

import pytest

from app.config import PollSettings, Profile
from app.console.forms import ContinueRunForm, NewRunForm, OrganizationForm, StartAgentForm
from app.engine import Engine
from app.token import EnvToken
from tests.console.forms.steps import opened, settle, words
from tests.service_process import RunningService, git, start_service

TOKEN = "TOKEN_OF_THE_SERVICE"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service for all of these."""
    service = start_service(tmp_path_factory.mktemp("service"))
    yield service
    service.stop()


@pytest.fixture
def profile(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """An administrator's profile there."""
    monkeypatch.setenv(TOKEN, service.admin_token)
    return Profile("acme", service.base_url, EnvToken(TOKEN), poll=PollSettings(deadline_s=60.0))


async def send(stage: Any, make: Any, typed: str) -> tuple[Any, str]:
    """Fills, previews, sends and closes; the app and what the outcome said."""
    app = stage(make)
    async with opened(app, typed, "ctrl+s", size=(100, 30)) as pilot:
        await pilot.press("ctrl+s")
        await settle(pilot)
        text = words(app)
        await pilot.press("enter")
        await settle(pilot)
    return app, text


async def test_a_created_organization_gets_its_invitation(stage: Any, service: RunningService) -> None:
    """A mail lies in the outbox, for the organization whose id the form showed."""
    app, text = await send(stage, OrganizationForm, "ada@globex.example\tPARTNER")

    assert app.outcome.state == "confirmed"
    assert app.outcome.result_id in text
    (mail,) = service.outbox.glob(f"*{app.outcome.result_id}*.eml")
    assert email.message_from_string(mail.read_text())["To"] == "ada@globex.example"


async def test_an_offer_nobody_knows_is_rejected_with_the_services_own_words(stage: Any) -> None:
    """Nothing was created, and the form is still there to be corrected."""
    app, text = await send(stage, OrganizationForm, "bob@globex.example\tNOBODY")

    assert app.outcome is None
    assert "HTTP 400, invalid_offer_code" in text


async def test_a_run_ends_with_a_commit_and_goes_on_from_there(
    stage: Any, engine: Engine, service: RunningService
) -> None:
    """Started and continued from the forms: two commits on the branch that was named."""
    app, _ = await send(stage, NewRunForm, "acme/api\tform/start\tReview it.")
    run_id = app.outcome.result_id
    await until_final(engine, run_id)
    detail = await engine.cache.detail(run_id)
    assert detail is not None
    after_first = commits(service, "form/start")
    continued, _ = await send(stage, lambda engine: ContinueRunForm(engine, detail.run), "Review it again.")
    await until_final(engine, run_id)

    assert continued.outcome.state == "confirmed"
    assert continued.outcome.result_id == run_id
    assert (after_first, commits(service, "form/start")) == (1, 2)


async def test_a_named_agent_is_accepted_with_its_inputs(stage: Any) -> None:
    """The execution's id is shown."""
    app, text = await send(stage, StartAgentForm, "scribe\tacme/web\t\tinstructions\tnothing")

    assert app.outcome.state == "confirmed"
    assert app.outcome.result_id in text


def commits(service: RunningService, branch: str) -> int:
    """How many the branch has that main has not."""
    return int(git("rev-list", "--count", f"main..{branch}", cwd=service.repositories["acme/api"]))


async def until_final(engine: Engine, run_id: str) -> None:
    """Polls until the run has ended; the test's own time-out is the deadline."""
    while True:
        await engine.runs.refresh()
        detail = await engine.cache.detail(run_id)
        if detail is not None and detail.run.is_final:
            assert detail.run.status == "completed"
            return
