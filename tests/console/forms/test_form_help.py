"""Help for filling in a form: templates, and the conversation so far."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.asked import filled_in
from app.actions.screen_writes import ContinueRunForm, NewRunForm
from app.api.requests import ContinueRun
from app.engine.engine import Engine
from app.profiles import Template
from storage.records import Repository
from tests.console.forms.conftest import CREATED, Opened, a_run
from tests.console.quiet import Driver
from tests.lab import Drop, Respond
from widgets.runs.conversation import Conversation

API = Repository.parse("acme/api")
RUN = a_run(1, "main", repository=API)
AGAIN = Template("again", "{previous_instructions} Again, on {repository} {branch}.")


@pytest.fixture
def templated(engine: Engine) -> Engine:
    engine.settings = replace(engine.settings, templates=(AGAIN,))
    return engine


def test_known_placeholders_are_replaced() -> None:
    """Unknown placeholders stay and are named; other braces are plain text."""
    known = {"repository": "acme/api", "branch": "", "previous_instructions": "Use {branch}."}
    text = "On {repository}, {branch} {other}: {previous_instructions} {branch}"

    assert filled_in(text, known) == ("On acme/api, {branch} {other}: Use {branch}. {branch}", ("branch",))


async def whole_conversation(form: Driver) -> str:
    """The visible part of the conversation at its end and at its beginning."""
    end = form.words
    form.screen.query_one(Conversation).scroll_home(animate=False)
    await form.settle()
    return end + form.words


async def test_messages_sent_from_here_are_shown_with_their_outcome(
    opened: Opened, engine: Engine, templated: Engine, post: Any
) -> None:
    """Each message shows its outcome as it changes; if the service does not list turns, the form says so.

    A template fills in the run's repository, branch and last message, and names what it cannot fill in.
    """
    async with opened(lambda engine: ContinueRunForm(engine, RUN)) as form:
        assert "The conversation is unknown: nothing was sent from this machine." in form.words

    post.next(Respond(201, CREATED | {"run_id": "run_1"}), Drop())
    await engine.actions.submit(ContinueRun("run_1", "Fix \x1b[2J[/b] it.", API))
    lost = await engine.actions.submit(ContinueRun("run_1", "And the docs.", API))
    async with opened(lambda _: ContinueRunForm(templated, RUN), size=(100, 40)) as form:
        shown = await whole_conversation(form)
        for said in ("✓ confirmed", "[2J[/b] it.", "And the docs.", "? unknown", "others are unknown."):
            assert said in shown
        await engine.actions.resolve(lost.action_id, None)
        await form.settle()
        assert "⊘ not created" in form.words
        assert "\x1b" not in form.text

    async with opened(lambda _: NewRunForm(templated), "acme/api", "ctrl+t", "enter") as form:
        assert form.screen.values["instructions"] == "{previous_instructions} Again, on acme/api {branch}."
        assert "please fill in: {previous_instructions}, {branch}" in form.words


async def test_the_services_conversation_names_each_sender(
    opened: Opened, engine: Engine, templated: Engine, post: Any
) -> None:
    """Messages sent from here without an outcome are listed too.

    A template's previous instructions may be a colleague's.
    """
    told = [
        {"number": 1, "instructions": "Fix \x1b[2J it.", "caller": "ann", "state": "failed", "reason": "no tests"},
        {"number": 2, "instructions": "Then the tests.", "caller": "bob", "state": "failed"},
    ]
    post.turns = {"run_1": {"run_id": "run_1", "turns": told}}
    post.next(Drop())
    await engine.actions.submit(ContinueRun("run_1", "And the docs.", API))
    async with opened(lambda _: ContinueRunForm(templated, RUN), size=(100, 40)) as form:
        shown = await whole_conversation(form)
        await form.press("ctrl+t", "enter")
        assert form.screen.values["instructions"] == "Then the tests. Again, on acme/api main."
    for said in ("ann", "Fix ␛[2J it.", "no tests", "bob", "Then the tests.", "And the docs.", "? unknown"):
        assert said in shown
