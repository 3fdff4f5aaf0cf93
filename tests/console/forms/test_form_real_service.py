"""A run from the forms on the real service, over the socket, in its own process."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.config import PollSettings, Profile
from app.console.forms import ContinueRunForm, NewRunForm
from app.engine import Engine
from app.token import EnvToken
from tests.console.forms.steps import opened
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


async def send(stage: Any, make: Any, typed: str) -> Any:
    """Fills, previews, sends and closes; what the form ended with."""
    app = stage(make)
    async with opened(app, typed, "ctrl+s", "ctrl+s", "enter", size=(100, 30)):
        return app.outcome


async def test_a_run_ends_with_a_commit_and_goes_on_from_there(
    stage: Any, engine: Engine, service: RunningService
) -> None:
    """Started and continued from the forms: two commits on the branch that was named."""
    started = await send(stage, NewRunForm, "acme/api\tform/start\tReview it.")
    run_id = started.result_id
    await until_final(engine, run_id)
    detail = await engine.cache.detail(run_id)
    assert detail is not None
    after_first = commits(service, "form/start")
    continued = await send(stage, lambda engine: ContinueRunForm(engine, detail.run), "Review it again.")
    await until_final(engine, run_id)

    assert continued.state == "confirmed"
    assert continued.result_id == run_id
    assert (after_first, commits(service, "form/start")) == (1, 2)


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
