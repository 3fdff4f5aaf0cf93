from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.screen_resolve import ResolveForm
from app.actions.screen_writes import ContinueRunForm, NewRunForm, OrganizationForm
from app.engine.engine import Engine
from app.profiles import Profile
from storage.records import ActionFailure, Repository, Run
from tests.console.forms.steps import opened, settle

HOSTILE = "例え/\x1b]52;c;eA==\x07[/nope]\u202e" + "long-" * 40


@pytest.fixture
def profile(profile: Profile) -> Profile:
    """An address that is the same in every run; nothing in here is sent."""
    return replace(profile, base_url="https://api.acme.example/v1")


@pytest.fixture
async def engine(engine: Engine, clock: Any) -> AsyncIterator[Engine]:
    """A few repositories in the cache, and one attempt of unknown outcome, by an author of the same name everywhere."""
    labels = ("acme/api", "acme/billing", "acme/web", "acme/web-admin", "gitlab:ops/deploy", "zeta/one")
    runs = [Run(f"run_{label}", "failed", "", Repository.parse(label), clock(), clock(), "{}") for label in labels]
    await engine.cache.store_runs(runs, asked_at=clock())
    await engine.cache.note_no_results(clock())
    email, now = "carl@hooli.example", clock.now
    clock.now = now - timedelta(days=0.1)
    await engine.ledger.prepare(
        action_id=f"act_{email}",
        kind="organization.create",
        subject=email,
        key=email,
        path="/external/organizations",
        body_json=f'{{"email": "{email}"}}',
        actor="console:ada",
    )
    await engine.ledger.sending(f"act_{email}")
    lost = ActionFailure("unreachable", "The connection was lost before the answer was complete.")
    await engine.ledger.unknown(f"act_{email}", lost)
    clock.now = now
    return engine


def still(app: Any) -> str:
    """The picture."""
    return str(app.export_screenshot(title="runwarden"))


RUN = Run(f"run_{HOSTILE}", "failed", HOSTILE, Repository.parse("acme/web"), None, None, "{}")
SCENES: dict[str, tuple[Any, ...]] = {
    "new-run-problems": (NewRunForm, "acme\tfix..x\tFix it.\tdepth=3\ndepth=4", "ctrl+s"),
    "new-run-preview": (NewRunForm, "acme/web\tfix/x\tFix the \u202eflaky\ntest. " + "Long. " * 40, "ctrl+s"),
    "continue-hostile": (lambda engine: ContinueRunForm(engine, RUN), "Go on."),
    "agent": (lambda engine: NewRunForm(engine, focus="name"), "security-review\tacme\tmain\t\tdepth=full\nlimit=3"),
    "organization-blocked": (OrganizationForm, "carl@hooli.example", "ctrl+s", "ctrl+s"),
}


@pytest.mark.parametrize("name", SCENES)
async def test_a_form_looks_as_it_was_accepted(stage: Any, picture: Any, name: str) -> None:
    """Wrong, previewed, blocked, hostile."""
    make, *typed = SCENES[name]
    app = stage(make)
    async with opened(app, *typed) as pilot:
        await settle(pilot)
        assert still(app) == picture


async def test_resolving_looks_as_it_was_accepted(stage: Any, engine: Engine, picture: Any) -> None:
    """Sending again asks for the address."""
    action, *_ = await engine.ledger.organizations()
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app, "", "a"):
        assert still(app) == picture
