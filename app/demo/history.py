"""The demo's history: a few real runs and an organization."""

import asyncio
from typing import Final

from app.api.requests import ContinueRun, CreateOrganization, StartAgent, StartRun, WriteRequest
from app.config import Profile, Settings
from app.engine import Engine
from storage.records import Repository

PATIENCE_S: Final = 30.0
"""How long the demo waits for its first runs; a slow machine then shows them still working."""
POLL_S: Final = 0.2

FIRST: Final[tuple[WriteRequest, ...]] = (
    StartRun(
        "Review the login fix before we merge it. Look at security first.",
        Repository.parse("acme/api"),
        "fix/login-timeout",
        {"ticket": "ACME-412"},
    ),
    StartRun("Is dark mode ready to merge?", Repository.parse("acme/web"), "agent/dark-mode"),
    # There is no such repository, so the run fails.
    StartRun("Archive what is left here.", Repository.parse("acme/retired")),
    StartRun("Look over the backup tool.", Repository.parse("gitlab:platform/tools"), "agent/backup-review"),
    CreateOrganization("ada@newcustomer.example"),
)
SECOND_TURN: Final = "And the tests? Say what is still open since your last review."
LAST: Final[tuple[WriteRequest, ...]] = (
    StartAgent("security-review", "acme/api", "fix/login-timeout"),
    StartRun("Review the billing code.", Repository.parse("acme/api")),
)
"""Started when everything else is done, so that the console opens on something that moves."""


async def make(settings: Settings, profile: Profile) -> None:
    """Carry out the history through the ledger, as the forms would."""
    async with await Engine.open(settings, profile, actor="demo") as engine:
        first = [await engine.actions.submit(request) for request in FIRST]
        await _settled(engine)
        conversation = await engine.cache.detail(first[0].result_id or "")
        if conversation is not None and conversation.is_final:
            run = conversation.run
            await engine.actions.submit(ContinueRun(run.run_id, SECOND_TURN, run.repository))
        for request in LAST:
            await engine.actions.submit(request)
        await engine.refresh()


async def _settled(engine: Engine) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await engine.runs.refresh()
                if not await engine.cache.active_runs():
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return
