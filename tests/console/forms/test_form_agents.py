"""A new run may use a named agent: the form offers the service's agents and each agent's inputs."""

from typing import Any

import pytest

from app.actions.screen_start import NewRunForm
from tests.console.forms.conftest import EXECUTION, Opened
from tests.lab import Received, Respond, Server

REVIEW = {
    "name": "review",
    "description": "Reviews the branch \x1b[2J and says what it finds.",
    "inputs": {
        "depth": {"type": "text", "choices": ["quick", "full"], "default": "quick", "description": "How deep"},
        "limit": {"type": "integer", "required": True, "description": "Most findings"},
        "title": {"type": "text"},
        "bad\x1b[2J": {"type": "odd"},
        "bad\nname=": {"type": "odd"},
    },
}
AGENTS = {"agents": [REVIEW, {"name": "fixer", "description": "", "inputs": {}}, {"name": "evil\x1b[2J"}]}


@pytest.fixture
def listed(server: Server, post: Any) -> None:
    """A service that lists agents."""
    others = server.otherwise

    def answer(request: Received) -> Any:
        return Respond(200, AGENTS) if request.path.endswith("/agents") else others(request)  # type: ignore[misc]

    server.otherwise = answer
    post.next(Respond(202, EXECUTION), Respond(202, EXECUTION))


async def test_an_agent_is_chosen_and_its_inputs_are_fields(opened: Opened, listed: None, post: Any) -> None:
    """The form describes the agent, reports missing or wrong inputs before sending, and sends texts as texts."""
    async with opened(lambda engine: NewRunForm(engine, "acme/web", focus="name"), "revew", "tab") as form:
        assert "✗ There is no such agent; did you mean review?" in form.words
        await form.press("shift+tab", "backspace")
        assert "↓ review, fixer" in form.words
        assert "evil" not in form.words, "a name that cannot be shown exactly cannot be chosen"
        await form.press("down")
        await form.shows("depth")
        assert "Reviews the branch ␛[2J and says what it finds." in form.words
        assert "How deep · ↓ quick, full · default quick" in form.words
        assert "Most findings · integer · required" in form.words
        assert "bad" not in form.words
        await form.press("ctrl+s")
        assert "✗ It needs a value." in form.words
        await form.fill("many\t3")
        await form.press("shift+tab", "shift+tab", "shift+tab")
        await form.fill("Look at the tests.\tful\t12")
        await form.press("ctrl+s")
        assert "✗ One of quick, full; did you mean full?" in form.words
        await form.press("down", "ctrl+s", "ctrl+s")

    (request,) = post.requests
    assert request.path == "/v1/external/agents/review/runs"
    assert request.json() == {
        "repository": "acme/web",
        "inputs": {"instructions": "Look at the tests.", "depth": "full", "limit": 12, "title": "3"},
    }


async def test_no_field_is_dropped_silently(opened: Opened, listed: None, post: Any) -> None:
    """Runs have metadata and agents have inputs; the form never silently drops one of them."""
    async with opened(lambda engine: NewRunForm(engine, "acme/web"), "Go on.\ta=1") as form:
        fields = form.screen.fields

        def displayed() -> tuple[bool, bool]:
            return fields["inputs"].display, fields["metadata"].display

        assert displayed() == (False, True)
        fields["name"].take_focus()
        await form.fill("fixer")
        await form.settle()
        assert displayed() == (True, True)
        await form.press("ctrl+s")
        assert "A named agent takes inputs: delete the metadata." in form.words
        fields["metadata"].fill("")
        fields["inputs"].fill("b=2")
        await form.settle()
        assert displayed() == (True, False)
        fields["name"].fill("")
        await form.settle()
        await form.press("ctrl+s")

        assert "Name the agent, or delete its inputs." in form.words
        assert post.requests == []
