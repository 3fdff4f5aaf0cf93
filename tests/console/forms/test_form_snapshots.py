from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.config import Profile
from app.console.forms import ContinueRunForm, NewRunForm, OrganizationForm, ResolveForm, StartAgentForm
from app.engine import Engine
from storage.records import ActionError, Repository, Run
from tests.console.conftest import SMALL, WIDE
from tests.console.forms.steps import opened, settle

HOSTILE = "例え/\x1b]52;c;eA==\x07[/nope]\u202e" + "long-" * 40


@pytest.fixture
def profile(profile: Profile) -> Profile:
    """An address that is the same in every run; nothing in here is sent."""
    return replace(profile, base_url="https://api.acme.example/v1")


@pytest.fixture
async def engine(engine: Engine, clock: Any) -> AsyncIterator[Engine]:
    """A few repositories in the cache, and one attempt of each kind in the ledger."""
    labels = ("acme/api", "acme/billing", "acme/web", "acme/web-admin", "gitlab:ops/deploy", "zeta/one")
    runs = [Run(f"run_{label}", "failed", "", Repository.parse(label), clock(), clock(), "{}") for label in labels]
    await engine.cache.store_runs(runs, asked_at=clock())
    now = clock.now
    lost = ActionError("unreachable", "The connection was lost before the answer was complete.")
    refused = ActionError("rejected", "The address is not valid.", 400, "invalid_email")
    for days, email in ((40, "old@globex.example"), (2, "noone@nowhere.example"), (0.1, "carl@hooli.example")):
        clock.now = now - timedelta(days=days)
        await enter(engine, email)
        await engine.ledger.sending(f"act_{email}")
        if email.startswith("old"):
            answer = (
                '{"organization_id": "org_1", "organization_name": "Globex [/b]", "organization_slug": "globex",'
                ' "parent_organization_id": "org_0"}'
            )
            await engine.ledger.confirm(f"act_{email}", result_id="org_1", response_json=answer)
        elif email.startswith("carl"):
            await engine.ledger.unknown(f"act_{email}", lost)
        else:
            await engine.ledger.reject(f"act_{email}", refused)
    clock.now = now
    return engine


async def enter(engine: Engine, email: str) -> None:
    """Prepares an attempt by an author whose name is the same everywhere."""
    await engine.ledger.prepare(
        action_id=f"act_{email}",
        kind="organization.create",
        subject=email,
        key=email,
        path="/external/organizations",
        body_json=f'{{"email": "{email}"}}',
        actor="console:ada",
    )


def still(app: Any) -> str:
    """The picture."""
    return str(app.export_screenshot(title="runwarden"))


RUN = Run(f"run_{HOSTILE}", "failed", HOSTILE, Repository.parse("acme/web"), None, None, "{}")
SCENES: dict[str, tuple[Any, ...]] = {
    "new-run-empty": (NewRunForm, ""),
    "new-run-problems": (NewRunForm, "acme\tfix..x\tFix it.\tdepth\t3\tdepth\t4", "ctrl+s"),
    "new-run-preview": (NewRunForm, "acme/web\tfix/x\tFix the \u202eflaky\ntest. " + "Long. " * 40, "ctrl+s"),
    "continue-hostile": (lambda engine: ContinueRunForm(engine, RUN), "Go on."),
    "agent": (StartAgentForm, "security-review\tacme\tmain\tdepth\tfull\tlimit\t3"),
    "organization-blocked": (OrganizationForm, "carl@hooli.example", "ctrl+s", "ctrl+s"),
    "templates": (NewRunForm, "", "ctrl+t"),
}


@pytest.mark.parametrize("name", SCENES)
async def test_a_form_looks_as_it_was_accepted(stage: Any, picture: Any, name: str) -> None:
    """Empty, wrong, previewed, blocked, hostile."""
    make, *typed = SCENES[name]
    app = stage(make)
    async with opened(app, *typed) as pilot:
        await settle(pilot)
        assert still(app) == picture


async def test_resolving_looks_as_it_was_accepted(stage: Any, engine: Engine, picture: Any) -> None:
    """Sending again asks for the address."""
    action, *_ = await engine.ledger.organizations()
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app, "", "3"):
        assert still(app) == picture


async def test_the_room_looks_as_it_was_accepted(console: Any, picture: Any) -> None:
    """An attempt of each kind, the unknown one under the cursor."""
    async with opened(console, "", "3") as pilot:
        for name, size in (("small", SMALL), ("wide", WIDE)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert still(console) == picture(name=name)
