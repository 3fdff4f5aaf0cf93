"""What a person does with a form, key by key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual import events
from textual.app import App
from textual.pilot import Pilot

from app.actions.drafts import Draft, read_drafts
from app.engine.engine import Engine
from app.profiles import data_folder
from storage.records import Repository, Run
from tests.console.quiet import key_event, lines, quiet

CREATED = {
    "run_id": "run_01J8",
    "status": "queued",
    "branch_name": "agent/x",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
    "created_at": "2026-05-04T12:00:00Z",
    "updated_at": "2026-05-04T12:00:00Z",
}
EXECUTION = {
    "agent_name": "security-review",
    "execution_id": "exec_7",
    "repository": "acme/web",
    "status": "queued",
    "created_at": "2026-05-04T12:00:00Z",
}
FILLED = "acme/web\t\tFix the flaky test.\nThen run it.\tdepth=3"
WEB = Repository.parse("acme/web")


def a_run(number: int | str, branch: str, status: str = "failed", repository: Repository = WEB) -> Run:
    """A run as the cache would have it."""
    return Run(f"run_{number}", status, branch, repository, None, None, "{}")


async def settle(pilot: Pilot[Any]) -> None:
    """Waits until everything that was begun is done."""
    await quiet(pilot.app)


@asynccontextmanager
async def opened(
    app: App[Any], typed: str = "", *keys: str, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Pilot[Any]]:
    """An app on show, with fields filled in and then keys pressed."""
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await write(pilot, typed)
        await press(pilot, *keys)
        await settle(pilot)
        yield pilot


async def press(pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        pilot.app.post_message(key_event(key))
        await settle(pilot)


async def write(pilot: Pilot[Any], text: str) -> None:
    """Fills fields one after the other, each by a paste, as a terminal would send it; a tab goes to the next field."""
    for at, part in enumerate(text.split("\t")):
        if at:
            await pilot.press("tab")
        if part:
            pilot.app.post_message(events.Paste(part))
            await pilot.pause()


def painted(app: Any) -> str:
    """Everything on the screen, as text."""
    return "\n".join(lines(app))


def words(app: Any) -> str:
    """Everything on the screen as one line: frames and line breaks do not matter."""
    return " ".join(painted(app).replace("│", " ").replace("▌", " ").split())


async def draft_of(engine: Engine, name: str) -> Draft | None:
    return read_drafts(data_folder(engine.settings, engine.profile) / "drafts.json").get(name)
