from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.screen_writes import NewRunForm
from app.engine.engine import Engine
from app.profiles import Profile
from storage.records import Repository
from tests.console.forms.steps import a_run, opened

LABELS = ("acme/api", "acme/billing", "acme/web", "acme/web-admin", "gitlab:ops/deploy", "zeta/one")
SCENES: dict[str, tuple[Any, ...]] = {
    "new-run-problems": (NewRunForm, "acme\tfix..x\tFix it.\tdepth=3\ndepth=4", "ctrl+s"),
    "new-run-preview": (NewRunForm, "acme/web\tfix/x\tFix the \u202eflaky\ntest. " + "Long. " * 40, "ctrl+s"),
}


@pytest.fixture
def profile(profile: Profile) -> Profile:
    """An address that is the same in every run; nothing in here is sent."""
    return replace(profile, base_url="https://api.acme.example/v1")


@pytest.mark.parametrize("name", SCENES)
async def test_a_form_looks_as_it_was_accepted(stage: Any, engine: Engine, clock: Any, picture: Any, name: str) -> None:
    """Wrong, and previewed."""
    runs = [replace(a_run(label, "", repository=Repository.parse(label)), created_at=clock()) for label in LABELS]
    await engine.cache.store_runs(runs, asked_at=clock())
    await engine.cache.note_no_results(clock())
    make, *typed = SCENES[name]
    async with opened(stage(make), *typed) as pilot:
        assert pilot.app.export_screenshot(title="runwarden") == picture
