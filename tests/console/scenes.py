"""Scenes: a service whose runs are scripted, a real engine on it, and a clock that stands still."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from app.api.requests import WriteRequest, as_json
from app.console.app import RunwardenApp
from app.engine.engine import Engine
from app.profiles import ConsoleSettings, PollSettings, Profile, Settings
from app.profiles.engines import ProfileEngines
from app.profiles.token import EnvToken
from app.runs.screen_views import first_picture
from storage.ledger import Ledger, new_action_id
from storage.records import Action, ActionFailure, SettledState
from tests.lab import START, Clock, Lab

LOST = ActionFailure("timed_out", "No answer within 20 s.")
TOKEN_VARIABLE = "RUNWARDEN_SCENE_TOKEN"
MINUTES_INTO_THE_DAY = 600.0
"""The current time, in the board's minutes: 22:00 UTC."""
NOW = START + timedelta(minutes=MINUTES_INTO_THE_DAY)

REPOSITORIES = ("acme/api", "acme/web", "acme/payment-service", "acme/infrastructure", "gitlab:acme/tools")
BRANCHES = (
    "fix/login-timeout",
    "agent/dark-mode",
    "agent/flaky-retry",
    "feature/import-customers-from-csv-with-progress",
    "main",
    "agent/upgrade-dependencies",
)


def a_day(board: Lab, runs: int = 60) -> None:
    """Fills the board with a day's runs, the newest of them a minute old."""
    for number in range(runs):
        age = 1.0 + number * 7.3 + (number % 5) * 0.9
        status = "working" if number in {0, 2, 5} else "queued" if number == 1 else "completed"
        status = "failed" if number in {3, 9, 17, 41} else status
        took = 0.1 if status in {"queued", "working"} else 0.6 + (number * 37 % 19)
        owner, _, repo = REPOSITORIES[number % 5].removeprefix("gitlab:").partition("/")
        is_gitlab = REPOSITORIES[number % 5].startswith("gitlab:")
        reference = {"project_path": f"{owner}/{repo}"} if is_gitlab else {"owner": owner, "repo": repo}
        board.put(
            f"run_01JX{number:04}{'7F3KQ9ZT2M':s}{(number * 7919) % 10000:04}",
            status,
            created=MINUTES_INTO_THE_DAY - age,
            updated=min(MINUTES_INTO_THE_DAY, MINUTES_INTO_THE_DAY - age + took),
            branch_name=BRANCHES[number % 6],
            repository={"platform": "gitlab" if is_gitlab else "github", "data": reference},
        )
    board.health = {
        "github": {"status": "ok"},
        "gitlab": {"status": "degraded", "host": "gitlab.acme.example", "group": "acme"},
    }


def settings_for(base_url: str, data_dir: Path, *, read_only: bool = False, **console: object) -> Settings:
    """Settings with one profile, `acme-prod`."""
    profile = Profile(
        "acme-prod", base_url, EnvToken(TOKEN_VARIABLE), poll=PollSettings(deadline_s=60.0), read_only=read_only
    )
    run_url = "https://runs.example/{run_id}"
    return Settings(
        data_dir=data_dir,
        console=ConsoleSettings(**{"run_url": run_url, "needs_you": False, **console}),  # type: ignore[arg-type]
        profiles=(profile,),
    )


@asynccontextmanager
async def engine_on(settings: Settings, clock: Clock) -> AsyncIterator[Engine]:
    """The real engine of the scene's profile, without automatic polls."""
    async with await Engine.open(settings, settings.profile(), actor="console", clock=clock) as engine:
        yield engine


class StillEngines(ProfileEngines):
    """Provides the first profile's open engine; engines of other profiles do not poll automatically."""

    def __init__(self, settings: Settings, profile: Profile, clock: Clock, engine: Engine | None = None) -> None:
        super().__init__(settings, profile, os.environ if engine is None else {}, clock)
        self._first, self._opened = profile.name, engine

    async def open_polling(self, name: str) -> Engine:
        if name != self._first:
            return await super().open_polling(name)
        return self._opened or await self.engine(name)


def app_on(settings: Settings, clock: Clock, engine: Engine) -> RunwardenApp:
    """The console just after start, over an engine that is already open."""
    profile = settings.profile()
    first = first_picture(settings, profile, clock())
    return RunwardenApp(settings, profile, StillEngines(settings, profile, clock, engine), first, clock)


async def enter(
    ledger: Ledger,
    request: WriteRequest,
    state: SettledState,
    *,
    key: str = "key",
    actor: str = "console:ann",
    made: str | None = None,
    error: ActionFailure = LOST,
) -> None:
    """Records a past write in the ledger, as the program does."""
    at, texts = ledger.clock(), (request.subject, key, request.path, as_json(request), actor)
    prepared = await ledger.prepare(Action(new_action_id(at), request.kind, *texts, "prepared", at))
    if state != "not_sent":
        await ledger.sending(prepared.action_id)
    await ledger.settle(prepared.action_id, state, None if state == "confirmed" else error, made)
