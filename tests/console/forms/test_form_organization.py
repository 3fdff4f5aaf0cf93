from typing import Any

from app.actions.screen_resolve import ResolveForm
from app.actions.screen_writes import OrganizationForm
from app.api.requests import CreateOrganization
from app.engine.engine import Engine
from storage.records import Action
from tests.console.forms.steps import opened, press, settle, words, write
from tests.lab import Drop, Respond

CREATED = {
    "organization_id": "org_9",
    "organization_name": "Globex",
    "organization_slug": "globex",
    "parent_organization_id": "org_1",
}


async def test_an_address_that_has_an_organization_is_pointed_out(stage: Any, post: Any, clock: Any) -> None:
    """While typing and again in the preview; another one takes the address typed again, which no draft holds."""
    post.next(Respond(201, CREATED), Respond(201, CREATED | {"organization_id": "org_10"}))
    async with opened(stage(OrganizationForm), "ada@globex.example", "ctrl+s") as pilot:
        assert "Creates one organization and invites ada@globex.example" in words(pilot.app)
        await press(pilot, "ctrl+s")
        assert "until 2026-06-03" in words(pilot.app)
    clock.move(days=2)
    app = stage(OrganizationForm)
    async with opened(app, "ADA@globex.example") as pilot:
        typed = words(app)
        await press(pilot, "ctrl+s", "ctrl+s")
        refused, phase = words(app), app.screen.phase
        await write(pilot, "ada@globex.example")
        await press(pilot, "ctrl+s")
        preview = words(app)
        drafted = app.screen.form_draft.current
        await press(pilot, "ctrl+s")
        assert "org_10" in words(app)

    assert "Type ADA@globex.example again to create one more." in refused
    assert phase == "editing"
    assert drafted is not None
    assert "again" not in drafted.values
    assert len(post.requests) == 2
    assert "Has one already (2d ago); this adds another." in typed
    assert "It has 1 from here already; this creates one more." in preview


async def test_after_one_organization_another_is_offered(stage: Any, post: Any) -> None:
    """In a fresh form, with the same offer code and no address."""
    post.next(Respond(201, CREATED), Respond(201, CREATED | {"organization_id": "org_10"}))
    app = stage(OrganizationForm)
    async with opened(app, "ada@globex.example") as pilot:
        await press(pilot, "tab")
        await write(pilot, "PARTNER")
        await press(pilot, "ctrl+s", "ctrl+s")
        assert "Create another n" in words(app)
        await press(pilot, "n")
        await write(pilot, "bea@initech.example")
        await press(pilot, "ctrl+s", "ctrl+s")

        assert "org_10" in words(app)
    sent = [(request.json()["email"], request.json()["offer_code"]) for request in post.requests]
    assert sent == [("ada@globex.example", "PARTNER"), ("bea@initech.example", "PARTNER")]


async def ledger_action(engine: Engine, action_id: str) -> Action:
    """The action as the ledger has it now."""
    action = await engine.ledger.action(action_id)
    assert action is not None
    return action


async def unknown_attempt(engine: Engine, post: Any) -> Action:
    """An attempt whose answer was lost."""
    post.next(Drop())
    return await engine.actions.submit(CreateOrganization("ada@globex.example"))


async def resolve(stage: Any, action: Action, *keys: str, typed: str = "") -> tuple[Any, str]:
    """Decides, and applies the decision; the app and the screen before it closed, or as it stayed."""
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app, "", *keys) as pilot:
        if typed:
            await pilot.press("tab")
            await write(pilot, typed)
        await settle(pilot)
        await press(pilot, "ctrl+s")
        text = words(app)
    return app, text


async def test_a_person_links_what_was_created(stage: Any, engine: Engine, post: Any) -> None:
    """Nothing is chosen beforehand, and the id is asked for: until both are there nothing changes."""
    action = await unknown_attempt(engine, post)
    unchosen, what = await resolve(stage, action)
    _, which = await resolve(stage, action, "y")
    assert (await ledger_action(engine, action.action_id)).state == "unknown"
    app, _ = await resolve(stage, action, "y", typed="org_found")

    assert "Choose one of the three." in what
    assert not unchosen.ended
    assert "Enter the id" in which
    assert (app.outcome.state, app.outcome.result_id, app.outcome.resolution) == ("confirmed", "org_found", "created")


async def test_sending_again_has_to_be_confirmed_by_typing_the_address(stage: Any, engine: Engine, post: Any) -> None:
    """Anything else sends nothing; afterwards the old attempt points to the new one."""
    action = await unknown_attempt(engine, post)
    post.next(Respond(201, CREATED))
    _, refused = await resolve(stage, action, "a", typed="ada@globex.exampl")
    before = len(post.requests)
    app, _ = await resolve(stage, action, "a", typed="ada@globex.example")

    assert "Type ada@globex.example to confirm." in refused
    assert before == 1
    assert len(post.requests) == 2
    assert app.outcome.result_id == "org_9"
    old = await ledger_action(engine, action.action_id)
    assert (old.resolution, old.superseded_by) == ("sent_again", app.outcome.action_id)


async def test_an_attempt_resolved_elsewhere_is_reported(stage: Any, engine: Engine, post: Any) -> None:
    """The first word stands."""
    action = await unknown_attempt(engine, post)
    await engine.actions.resolve_not_created(action.action_id)
    app, text = await resolve(stage, action, "y", typed="org_found")

    assert "not possible from there" in text
    assert not app.ended
    assert (await ledger_action(engine, action.action_id)).state == "not_created"
