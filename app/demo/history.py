"""The demo's history: the first runs, which are real, and a month of a team's runs, made up by the service's lab."""

import asyncio
import json
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from app.api.requests import ContinueRun, CreateOrganization, StartAgent, StartRun, WriteRequest
from app.demo.service_process import ServiceProcess
from app.demo.world import AGENTS, FIXER, REPOSITORIES, tasks
from storage.records import Repository

if TYPE_CHECKING:
    from app.engine.engine import Engine

PATIENCE_S: Final = 30.0
"""How long the demo waits for its first runs; on a slow machine they are then still working."""
POLL_S: Final = 0.2
MONTH_RUNS: Final = 1000
_LAB_S: Final = 60.0

FIRST: Final[tuple[WriteRequest, ...]] = (
    StartRun(
        "Review the login fix before we merge it. Look at security first.",
        Repository.parse("acme/api"),
        "fix/login-timeout",
        {"ticket": "ACME-412"},
    ),
    StartRun("Is dark mode ready to merge?", Repository.parse("acme/web"), "agent/dark-mode"),
    # This repository does not exist, so the run fails.
    StartRun("Archive this repository.", Repository.parse("acme/retired")),
    StartRun("Look over the backup tool.", Repository.parse("gitlab:platform/tools"), "agent/backup-review"),
    CreateOrganization("ada@newcustomer.example"),
)
SECOND_TURN: Final = "And the tests? Which findings of your last review are still open?"
LAST: Final[tuple[WriteRequest, ...]] = (
    StartAgent("security-review", "acme/api", "fix/login-timeout", {"instructions": "Can this leak a session?"}),
    StartRun("Review the billing code.", Repository.parse("acme/api")),
)
"""Started once everything else has finished."""


async def execute(engine: "Engine", own: str = "") -> None:
    """Execute the first runs through the ledger, as the forms do; `own` is the user's own agent, empty for none."""
    for name in filter(None, (own, FIXER)):
        await engine.actions.submit(StartAgent(name, "acme/api", inputs={"instructions": tasks()["acme-api"][0]}))
    first = [await engine.actions.submit(request) for request in FIRST]
    begun = {action.result_id for action in first}
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await engine.runs.refresh()
            while begun & {row.run_id for row in await engine.cache.active_runs()}:
                await asyncio.sleep(POLL_S)
                await engine.runs.refresh()
    conversation = await engine.cache.detail(first[0].result_id or "")
    if conversation is not None and conversation.is_final:
        run = conversation.run
        await engine.actions.submit(ContinueRun(run.run_id, SECOND_TURN, run.repository))
    for request in LAST:
        await engine.actions.submit(request)
    await engine.refresh()


def seed_month(service: ServiceProcess) -> None:
    """Let the lab make up the last month of a team's runs."""
    ask_lab(
        service.base_url,
        service.lab_token,
        "/runs",
        {
            "organization": "acme",
            "runs": MONTH_RUNS,
            "span": "30d",
            "rhythm": "team",
            "repositories": len(REPOSITORIES),
            "agents": list(AGENTS),
        },
    )


def ask_lab(base_url: str, token: str, path: str, order: dict[str, Any]) -> None:
    """Send a command to the lab of this demo's service, which is not part of the API."""
    request = urllib.request.Request(  # noqa: S310 — the demo's own address
        f"{base_url.removesuffix('/v1')}/_lab{path}",
        json.dumps(order).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_LAB_S):
        pass
