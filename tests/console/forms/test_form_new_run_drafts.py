"""What was typed into a form is not lost: escape, another form, a killed program."""

import json
from datetime import timedelta
from typing import Any

from app.console.forms import NewRunForm
from app.engine import Engine
from tests.console.forms.steps import CREATED, FILLED, drafts_of, opened, painted, settle, words, write
from tests.fault_server import Respond


async def test_a_draft_survives_escape_and_is_swapped_for_a_fresh_form_and_back(stage: Any, clock: Any) -> None:
    """It says how old it is; ctrl+n puts it aside and brings it back."""
    app = stage(NewRunForm)
    async with opened(app, FILLED, "escape") as pilot:
        pass
    clock.move(timedelta(minutes=7))
    again = stage(lambda engine: NewRunForm(engine, repository="acme/api"))
    async with opened(again) as pilot:
        text, restored = painted(again), again.screen.values
        await pilot.press("ctrl+n")
        await settle(pilot)
        fresh = again.screen.values
        await pilot.press("ctrl+n")
        await settle(pilot)
        back = again.screen.values

    assert app.outcome is None
    assert "Your draft from 7m ago" in text
    assert restored["instructions"] == "Fix the flaky test.\nThen run it."
    assert json.loads(restored["metadata"]) == [["depth", "3"]]
    assert fresh == {"repository": "acme/api", "branch_name": "", "instructions": "", "metadata": ""}
    assert back == restored


async def test_a_draft_survives_a_killed_program(stage: Any, engine: Engine) -> None:
    """It is on the disk while the form is still open."""
    app = stage(NewRunForm)
    async with opened(app, "acme/web") as pilot:
        while (draft := await drafts_of(engine).load("run.start")) is None:
            await pilot.pause(0.05)

    assert draft.values["repository"] == "acme/web"


async def test_drafts_that_cannot_be_kept_are_said_and_hinder_nothing(stage: Any, engine: Engine, post: Any) -> None:
    """The form sends all the same."""
    post.next(Respond(201, CREATED))
    drafts_of(engine).path.write_text(json.dumps({"version": 99, "drafts": {}}))
    app = stage(NewRunForm)
    async with opened(app, size=(100, 30)) as pilot:
        text = words(app)
        await write(pilot, FILLED)
        await pilot.press("ctrl+s", "ctrl+s")
        await settle(pilot)

        assert app.screen.phase == "outcome"

    assert "written by a newer version" in text
