"""An empty app over a real engine, in which tests fill in a form key by key, and a scripted service."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from textual.screen import Screen

from app.actions.drafts import Draft, read_drafts
from app.console.guard import BaseApp
from app.console.themes import DEFAULT, THEMES
from app.engine.engine import Engine
from app.profiles import data_folder
from storage.records import Repository, Run
from tests import lab
from tests.console.quiet import Driver
from tests.console.scenes import engine_on, settings_for
from tests.lab import RUN, Clock, Received, Respond, Server, Step

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
CREATED = RUN | {"run_id": "run_01J8", "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}}}
CREATED |= dict.fromkeys(("created_at", "updated_at"), "2026-05-04T12:00:00Z")
EXECUTION = lab.EXECUTION | {"agent_name": "security-review", "execution_id": "exec_7", "repository": "acme/web"}
FILLED = "acme/web\t\tFix the flaky test.\nThen run it.\tdepth=3"
WEB = Repository.parse("acme/web")
Opened = Callable[..., AbstractAsyncContextManager[Driver]]


class Stage(BaseApp[None]):
    """An empty app that shows one screen; `outcome` is the screen's result."""

    def __init__(self, make: Callable[[], Screen[Any]]) -> None:
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DEFAULT
        self.make = make
        self.ended = False
        self.outcome: object = None

    def on_mount(self) -> None:
        self.push_screen(self.make(), self._end)

    def _end(self, outcome: object) -> None:
        self.ended, self.outcome = True, outcome


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
async def engine(server: Server, tmp_path: Path, clock: Clock) -> AsyncIterator[Engine]:
    async with engine_on(settings_for(server.base_url, tmp_path), clock) as engine:
        yield engine


class Post:
    """Answers writes as scripted, one step each; reads always work and find nothing."""

    def __init__(self, server: Server) -> None:
        self.steps: list[Step] = []
        self.turns: dict[str, object] = {}
        """The service's turns by run, or its answer in place of them."""
        self.server = server
        server.otherwise = self._answer

    def next(self, *steps: Step) -> None:
        """Script the answers to the next writes."""
        self.steps.extend(steps)

    @property
    def requests(self) -> list[Received]:
        """The writes that arrived."""
        return [request for request in self.server.requests if request.method == "POST"]

    def _answer(self, request: Received) -> Step:
        if request.method == "POST":
            return self.steps.pop(0)
        if (turns := self.turns.get(request.path.rpartition("/")[2])) is not None:
            return turns if isinstance(turns, Step) else Respond(200, turns)
        if request.path.endswith("invitations"):
            return Respond(404, {"message": "Not Found"})
        return Respond(200, {"code_hosting": {}, "runs": [], "next_token": None})


@pytest.fixture
def post(server: Server) -> Post:
    return Post(server)


@pytest.fixture
def opened(engine: Engine) -> Opened:
    """Shows the screen that `make` creates over that engine, fills in its fields, and presses keys."""

    @asynccontextmanager
    async def open_form(
        make: Callable[[Engine], Screen[Any]], typed: str = "", *keys: str, size: tuple[int, int] = (80, 24)
    ) -> AsyncIterator[Driver]:
        async with Stage(lambda: make(engine)).run_test(size=size) as pilot:
            form = Driver(pilot)
            await form.settle()
            await form.fill(typed)
            await form.press(*keys)
            yield form

    return open_form


def a_run(number: int | str, branch: str, status: str = "failed", repository: Repository = WEB) -> Run:
    """A run as the cache returns it."""
    return Run(f"run_{number}", status, branch, repository, None, None, "{}")


async def draft_of(engine: Engine, name: str) -> Draft | None:
    return read_drafts(data_folder(engine.settings, engine.profile) / "drafts.json").get(name)
