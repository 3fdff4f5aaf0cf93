"""What helps to fill a form in: branches and repositories that were seen, templates, and what was said before."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.screen_instructions import filled_in
from app.actions.screen_writes import ContinueRunForm, NewRunForm
from app.api.requests import ContinueRun
from app.engine.engine import Engine
from app.profiles import Template
from storage.records import Repository, Run
from tests.console.forms.steps import CREATED, opened, painted, press, settle, words, write
from tests.lab import Drop, Hang, Respond
from tests.waiting import until
from widgets.runs.conversation import Conversation

API, TOOLS = Repository.parse("acme/api"), Repository.parse("gitlab:acme/tools")


def a_run(clock: Any, number: int, branch: str, repository: Repository = API) -> Run:
    return Run(f"run_{number}", "failed", branch, repository, clock(), clock(), "{}")


@pytest.fixture
async def seen(engine: Engine, clock: Any) -> None:
    """Runs on two repositories."""
    runs = [a_run(clock, 1, "main"), a_run(clock, 2, "fix/login"), a_run(clock, 3, "only/tools", TOOLS)]
    await engine.cache.store_runs([*runs, a_run(clock, 4, "evil\x1b[2J")], asked_at=clock())


async def test_branches_of_the_repository_are_offered(stage: Any, seen: None) -> None:
    """As soon as it is named; what cannot be shown is not offered, and down takes one."""
    app = stage(lambda engine: NewRunForm(engine, focus="name"))
    async with opened(app, "\tacme/api") as pilot:
        assert "↓ fix/login, main" in painted(app)
        assert "only/tools" not in painted(app)
        await press(pilot, "tab", "down")
        assert app.screen.values["branch_name"] == "fix/login"


async def test_what_is_missing_is_a_hint_while_typing_and_a_mistake_once_left(stage: Any, seen: None) -> None:
    """What matches is named; where nothing does, it is said what to write; no red before the field is left."""
    app = stage(NewRunForm)
    async with opened(app, "acme") as pilot:
        assert "↓ acme/api, gitlab:acme/tools match" in painted(app)
        await write(pilot, "x")
        await settle(pilot)
        typing = painted(app)
        assert "Write owner/repo, or gitlab:group/project." in typing
        await press(pilot, "tab")
        left = painted(app)

    assert "✗" not in typing
    assert "✗ Write owner/repo, or gitlab:group/project." in left


def test_placeholders_are_filled_in_where_something_is_known() -> None:
    """The rest stays and is named; other braces are text."""
    known = {"repository": "acme/api", "branch": "", "previous_instructions": "Use {branch}."}
    text = "On {repository}, {branch} {other}: {previous_instructions} {branch}"

    assert filled_in(text, known) == ("On acme/api, {branch} {other}: Use {branch}. {branch}", ("branch",))


async def test_a_template_says_what_it_does_not_know(stage: Any, engine: Engine, clock: Any, post: Any) -> None:
    """Continuing, it has the run's repository and branch, and what was said to it last."""
    post.next(Respond(201, CREATED | {"run_id": "run_1"}))
    await engine.actions.submit(ContinueRun("run_1", "First try.", API, "main"))
    again = Template("again", "{previous_instructions} Again, on {repository} {branch}.")
    changed = replace(engine, settings=replace(engine.settings, templates=(again,)))
    app = stage(lambda _: ContinueRunForm(changed, a_run(clock, 1, "main")))
    async with opened(app, "", "ctrl+t", "enter"):
        assert app.screen.values["instructions"] == "First try. Again, on acme/api main."

    app = stage(lambda _: NewRunForm(changed))
    async with opened(app, "acme/api", "ctrl+t", "enter"):
        assert app.screen.values["instructions"] == "{previous_instructions} Again, on acme/api {branch}."
        assert "please fill in: {previous_instructions}, {branch}" in words(app)


async def test_the_conversation_so_far_is_above_what_comes_next(
    stage: Any, engine: Engine, clock: Any, post: Any
) -> None:
    """Each message with its outcome, as it changes; where the service does not tell the turns, it says so."""
    run = a_run(clock, 1, "main")
    app = stage(lambda engine: ContinueRunForm(engine, run))
    async with opened(app):
        assert "The conversation is unknown: nothing was sent from this machine." in words(app)

    post.next(Respond(201, CREATED | {"run_id": "run_1"}), Drop())
    await engine.actions.submit(ContinueRun("run_1", "Fix \x1b[2J[/b] it.", API))
    lost = await engine.actions.submit(ContinueRun("run_1", "And the docs.", API))
    app = stage(lambda engine: ContinueRunForm(engine, run))
    async with opened(app, size=(100, 40)) as pilot:
        end = words(app)
        app.screen.query_one(Conversation).scroll_home(animate=False)
        await settle(pilot)
        for shown in ("✓ confirmed", "[2J[/b] it.", "And the docs.", "? unknown", "others are unknown."):
            assert shown in end + words(app)
        await engine.actions.resolve_not_created(lost.action_id)
        await settle(pilot)

        assert "⊘ not created" in words(app)
        assert "\x1b" not in painted(app)


async def test_the_conversation_is_the_services_with_whose_words_they_are(
    stage: Any, engine: Engine, clock: Any, post: Any
) -> None:
    """And what was sent from here without an outcome; a template's previous instructions are a colleague's."""
    again = Template("again", "{previous_instructions} Again.")
    changed = replace(engine, settings=replace(engine.settings, templates=(again,)))
    told = [
        {"number": 1, "instructions": "Fix \x1b[2J it.", "caller": "ann", "state": "failed", "reason": "no tests"},
        {"number": 2, "instructions": "Then the tests.", "caller": "bob", "state": "failed"},
    ]
    post.turns = {"run_1": {"run_id": "run_1", "turns": told}}
    post.next(Drop())
    await engine.actions.submit(ContinueRun("run_1", "And the docs.", API))
    app = stage(lambda _: ContinueRunForm(changed, a_run(clock, 1, "main")))
    async with opened(app, size=(100, 40)) as pilot:
        end = words(app)
        app.screen.query_one(Conversation).scroll_home(animate=False)
        await settle(pilot)
        shown = end + words(app)
        await press(pilot, "ctrl+t", "enter")

        assert app.screen.values["instructions"] == "Then the tests. Again."
    for said in ("ann", "Fix ␛[2J it.", "no tests", "bob", "Then the tests.", "And the docs.", "? unknown"):
        assert said in shown


async def test_a_service_that_does_not_answer_is_waited_for_in_sight(
    stage: Any, engine: Engine, clock: Any, post: Any
) -> None:
    """What is typed meanwhile stays."""
    post.turns = {"run_1": Hang()}
    app = stage(lambda engine: ContinueRunForm(engine, a_run(clock, 1, "main")))
    async with app.run_test() as pilot:
        await until(
            lambda: "Asking the service for the conversation…" in words(app),
            "it says that it asks",
            saw=lambda: words(app),
        )
        await write(pilot, "Go on.")
        await until(lambda: app.screen.values["instructions"] == "Go on.", "the typed words are in the field")
