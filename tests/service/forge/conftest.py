"""The forges, and a service with one organization whose runs are completed in the store alone."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.clock import SECOND_MICROS
from service.findings import IdentifiedFinding, pack_findings
from service.forge.poster import post
from service.hosts.tokens import HostTokens
from service.settings import DataFolder, ForgeSettings, Settings
from service.setup import AgentEntry, HostEntry, connect_host, put_agent
from service.store import organizations, postings, repositories, runs, turn_files, turns
from service.store.database import Database
from service.store.postings import Posting
from service.store.rows import unsent
from service.store.schema import postings as postings_table
from service.store.turns import TurnOutcome
from tests.service.conftest import NOW, accepted, due_jobs, order, organization
from tests.service.forge.forges import Forge, ForgejoServer, GitHubServer, GitLabForge
from tests.service_process import lay_tables
from tests.waiting import present

EVERYTHING = {"pull_request": "draft", "status": True, "review": True}
ONE_FORGE = pytest.mark.parametrize("forge", [pytest.param(GitHubServer, id="github")], indirect=True)
"""The forge for tests that do not depend on it."""


class Desk:
    """The service's side; its clock only moves on request."""

    def __init__(self, server: Forge, place: Path) -> None:
        os.environ["FORGE_TOKEN_HERE"] = "bot-token"
        self.now = NOW
        self.server = server
        self.platform, self.path, self.url = server.platform, server.path, f"{server.site}.git"
        self.place = {"platform": self.platform, "path": self.path, "url": self.url}
        lay_tables(place)
        self.database = Database(DataFolder(place).database_url)
        settings = Settings(forge=ForgeSettings(run_url="https://runs.example/{run_id}", timeout_s=60))
        self.post_run = partial(post, self.database, HostTokens(self.database), settings, lambda: self.now)
        self.owner_id = organization(self.database, now=self.now)
        self.plan(EVERYTHING)
        self.connect()
        with self.database.write() as connection:
            repositories.note_default_branch(connection, self.url, "main")

    def plan(self, on_completion: dict[str, Any]) -> None:
        fixer = {"name": "fixer", "argv": ["/bin/true"], "on_completion": on_completion}
        with self.database.write() as connection:
            put_agent(connection, AgentEntry.model_validate(fixer), self.now)

    def connect(self, **changed: Any) -> None:
        host = self.url.split("/")[2]
        entry = {"platform": self.platform, "host": host, "api_url": self.server.url, "token_env": "FORGE_TOKEN_HERE"}
        with self.database.write() as connection:
            owner = present(organizations.by_id(connection, self.owner_id))
            connect_host(connection, owner, HostEntry.model_validate(entry | changed), self.now)

    def begin(self, instructions: str = "Fix the login", branch: str = "agent/fix-1") -> str:
        place = self.place | {"agent": "fixer", "branch": branch, "instructions": instructions}
        run_id = accepted(self.database, now=self.now, **place).id
        with self.database.write() as connection:
            turns.claim(connection, run_id, 1, "w", self.now)
        return run_id

    def next_turn(self, run_id: str, instructions: str) -> int:
        with self.database.write() as connection:
            run = present(runs.by_id(connection, run_id))
            again = order(run.organization_id, run.agent, **self.place, instructions=instructions)
            resumed = present(runs.resume(connection, run, again, self.now))
            turns.claim(connection, run_id, resumed.turn, "w", self.now)
            return resumed.turn

    def at_work(self, run_id: str, commit: str, number: int = 1) -> None:
        with self.database.write() as connection:
            run = present(runs.by_id(connection, run_id))
            postings.at_work(connection, run, number, commit, self.now)

    def end(
        self, run_id: str, commit: str | None = "b" * 40, number: int = 1, branch: str = "agent/fix-1", **outcome: Any
    ) -> None:
        if commit is not None:
            self.server.branches[branch] = commit
        fields = {"status": "completed", "summary": "Login fixed\n\nIt was the clock."} | outcome
        with self.database.write() as connection:
            turns.end(connection, run_id, number, TurnOutcome(commit_sha=commit, **fields), self.now)

    def report(self, run_id: str, number: int, *findings: IdentifiedFinding) -> None:
        with self.database.write() as connection:
            turn_files.save(connection, (run_id, number), 1, turn_files.FINDINGS, pack_findings("a" * 40, findings))

    @property
    def is_owing(self) -> bool:
        with self.database.read() as connection:
            return unsent(connection, postings_table.c.state)["waiting"] > 0

    def post(self) -> None:
        while True:
            with self.database.read() as connection:
                due = due_jobs(connection, "post", self.now)
            if not due:
                return
            self.post_run(due[0])

    def later(self, seconds: float) -> None:
        self.now += int(seconds * SECOND_MICROS)

    def posting(self, run_id: str, kind: str) -> Posting:
        with self.database.read() as connection:
            (found,) = (one for one in postings.of_run(connection, run_id) if one.kind == kind)
            return found


@pytest.fixture(params=[GitHubServer, GitLabForge, ForgejoServer], ids=["github", "gitlab", "forgejo"])
def forge(request: pytest.FixtureRequest) -> Iterator[Forge]:
    with contextlib.closing(request.param()) as server:
        yield server


@pytest.fixture
def desk(forge: Forge, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(forge, tmp_path)
    with contextlib.closing(desk.database):
        yield desk
