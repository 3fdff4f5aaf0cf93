"""Acting: what a rule sends, through the ledger, and what it runs and tells."""

import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.api.requests import CancelRun, ContinueRun, StartAgent, StartRun
from app.automations.acting import in_words, shown
from app.automations.bot import Bot
from app.profiles import Settings, load
from storage.records import Repository, Run, RunDetail, RunSummary
from storage.records.decision import Decision, Occurrence
from tests.lab import Received, Respond, Server

RUN: dict[str, object] = {
    "run_id": "run_1",
    "status": "failed",
    "branch_name": "fix/x",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
}


class Service:
    """A service with one run, which takes every write."""

    def __init__(self, server: Server) -> None:
        self.runs: list[dict[str, object]] = []
        self.posted: list[Received] = []
        self.to_post: Respond | None = None
        """What writes are answered with; None: a new run."""
        server.otherwise = self.answer
        self.server = server
        self.base_url = server.base_url

    def answer(self, request: Received) -> Respond:
        if request.method == "POST":
            self.posted.append(request)
            if self.to_post is not None:
                return self.to_post
            return Respond(201, {**RUN, "run_id": "run_2", "status": "queued"})
        if "health" in request.path:
            return Respond(200, {"code_hosting": {}})
        page = {"page_size": 100, "next_token": None, "total_count": len(self.runs)}
        return Respond(200, {"runs": self.runs, **page})


@pytest.fixture
def service() -> AsyncIterator[Service]:
    # Of now: what was long ago when a rule began is history.
    RUN.update(dict.fromkeys(("created_at", "updated_at"), datetime.now(UTC).isoformat()))
    with Server() as server:
        yield Service(server)


def configured(service: Service | Server, folder: Path, text: str) -> Settings:
    """A configuration file, and the settings that it makes."""
    token = folder / "token"
    token.write_text("secret-token")
    token.chmod(0o600)
    file = folder / "config.toml"
    profile = f'[profiles.acme]\nbase_url = "{service.base_url}"\ntoken_file = "{token}"\n'
    file.write_text(f'data_dir = "{folder}/data"\n{profile}{text}')
    return load(file, {})


class Said(list[tuple[str, dict[str, object]]]):
    """The log of a bot."""

    def __call__(self, event: str, **facts: object) -> None:
        self.append((event, facts))

    def outcomes(self) -> list[tuple[object, object]]:
        """Each decision's outcome and reason."""
        return [(facts["outcome"], facts["reason"]) for event, facts in self if event == "decision"]


async def fail_once(service: Service, settings: Settings) -> Said:
    """A bot that sees the run fail, and a second look at it."""
    said = Said()
    bot = await Bot.open(settings, settings.profile(), said)
    try:
        await bot.once()
        service.runs = [RUN]
        await bot.once()
        await bot.once()
    finally:
        await bot.close()
    return said


def automation(do: str, more: str = "") -> str:
    return f'[[automations]]\nname = "r"\non = {{ run = "failed" }}\ndo = {do}\n{more}\n'


async def test_a_failed_run_is_continued_once(service: Service, tmp_path: Path) -> None:
    """With its placeholders filled, marked with the rule, and in the ledger under it."""
    text = automation('{ continue = "{run.repository} failed on {run.branch}: {x}" }')
    said = await fail_once(service, configured(service, tmp_path, text))

    (request,) = service.posted
    body = request.json()
    assert isinstance(body, dict)
    assert (body["run_id"], body["instructions"]) == ("run_1", "acme/api failed on fix/x: {x}")
    assert body["metadata"] == {"runwarden_automation": "r"}
    assert [outcome for outcome, _ in said.outcomes()] == ["acting", "done"]


async def test_a_run_of_unknown_instructions_is_not_retried(service: Service, tmp_path: Path) -> None:
    """It says why."""
    said = await fail_once(service, configured(service, tmp_path, automation("{ retry = true }")))

    assert service.posted == []
    assert said.outcomes()[-1][0] == "failed"
    assert "not sent from this machine" in str(said.outcomes()[-1][1])


@pytest.mark.parametrize(
    ("run_id", "answer", "outcome", "reason"),
    [
        ("run_1", None, "done", None),
        ("run_1", Respond(404, {"message": "Not Found"}), "failed", "does not offer"),
        ("..", None, "failed", "cannot be addressed"),
    ],
)
async def test_a_run_is_cancelled_where_the_service_offers_that(
    service: Service, tmp_path: Path, run_id: str, answer: Respond | None, outcome: str, reason: str | None
) -> None:
    """Once, through the ledger; where it does not, and of a run whose id is no name, the journal says so."""
    service.to_post, RUN["run_id"] = answer, run_id
    try:
        said = await fail_once(service, configured(service, tmp_path, automation("{ cancel = true }")))
    finally:
        RUN["run_id"] = "run_1"

    assert [request.path for request in service.posted] == ["/v1/external/runs/run_1/cancel"] * (run_id == "run_1")
    last_outcome, last_reason = said.outcomes()[-1]
    assert (last_outcome, (reason or "") in (last_reason or "")) == (outcome, True)


async def test_a_read_only_profile_sends_nothing(service: Service, tmp_path: Path) -> None:
    """And the journal says so."""
    settings = configured(service, tmp_path, "read_only = true\n" + automation('{ continue = "go" }'))
    said = await fail_once(service, settings)

    assert service.posted == []
    assert "Read-only" in str(said.outcomes()[-1][1])


async def test_a_command_gets_facts_as_arguments_and_no_secret(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that looks like an option is none, no shell is involved, and no token is in its environment."""
    monkeypatch.setenv("RUNWARDEN_TOKEN", "another-secret")
    out = tmp_path / "out.json"
    program = "import json, os, sys; json.dump([sys.argv[2:], dict(os.environ)], open(sys.argv[1], 'w'))"
    argv = [sys.executable, "-c", program, str(out), "{run.branch}", "at {run.id}; rm -rf /"]
    settings = configured(service, tmp_path, automation(f"{{ command = {json.dumps(argv)} }}"))
    hostile = {**RUN, "branch_name": "--output=/etc/passwd"}
    said = Said()
    bot = await Bot.open(settings, settings.profile(), said)
    await bot.once()
    service.runs = [hostile]
    await bot.once()
    await bot.close()

    arguments, environment = json.loads(out.read_text())
    assert arguments == ["\N{HYPHEN}-output=/etc/passwd", "at run_1; rm -rf /"]
    assert not [value for value in environment.values() if "another-secret" in value]
    assert os.environ["RUNWARDEN_TOKEN"] == "another-secret"


@pytest.mark.parametrize(
    ("words", "sent", "outcome"),
    [("first", 1, ("done", None)), ("second", 0, ("expired", "the request differs from the approved one"))],
)
async def test_what_waits_for_approval_is_sent_as_it_was_shown(
    service: Service, tmp_path: Path, words: str, sent: int, outcome: tuple[str, str | None]
) -> None:
    """A rule whose text was edited in between sends nothing."""
    text = automation('{ continue = "first" }', "approval = true")
    said = await fail_once(service, configured(service, tmp_path, text))
    settings = configured(service, tmp_path, text.replace("first", words))

    bot = await Bot.open(settings, settings.profile(), said)
    await bot.state.take(_waiting(said), "waiting", "approved", "approved by ann")
    await bot.once()
    await bot.close()

    assert len(service.posted) == sent
    assert said.outcomes()[-1] == outcome


def _waiting(said: Said) -> int:
    (number,) = [facts["decision"] for event, facts in said if event == "decision" and facts["outcome"] == "waiting"]
    assert isinstance(number, int)
    return number


async def test_what_a_colleague_asked_is_retried(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the service tells it; one that cannot be asked at the moment is asked again."""
    monkeypatch.setattr("app.automations.runner.RETRY_AFTER", timedelta(0))
    turn = {"number": 1, "instructions": "Fix it", "caller": "ann"}
    down = [Respond(503)]

    def tells(request: Received) -> Respond:
        if request.path.endswith("/runs/run_1"):
            return down.pop() if down else Respond(200, {"run_id": "run_1", "turns": [turn]})
        return service.answer(request)

    service.server.otherwise = tells
    said = await fail_once(service, configured(service, tmp_path, automation("{ retry = true }")))

    assert not down
    assert [outcome for outcome, _ in said.outcomes()] == ["acting", "done"]
    assert [request.json()["instructions"] for request in service.posted] == ["Fix it"]


AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("request_json", "words"),
    [
        (
            shown(StartRun("\n Fix it.\nAll.", Repository.parse("gitlab:a/b"), "fix/x")),
            "gitlab:a/b fix/x: start a run: Fix it.",
        ),
        (shown(ContinueRun("run_1", "Go on.", Repository.parse("a/b"))), "a/b: continue: Go on."),
        (shown(StartAgent("night owl", "a/b")), "a/b: start the agent night owl"),
        (shown(CancelRun("run_1")), "run_1: cancel"),
        ('{"path": "/external/runs", "body": {"instructions": 7}}', ""),
        ('{"path": "", "body": []}', ""),
        ("null", ""),
        (None, ""),
    ],
)
def test_a_kept_request_is_told_in_a_line(request_json: str | None, words: str) -> None:
    """What it does, to what, and the first of its words; one that another version kept in another form is not told."""
    kept = Decision(1, "r", Occurrence("x", AT), AT, "waiting", "", request_json=request_json)

    assert in_words(kept, None) == words


def test_a_kept_request_says_the_run_s_place_and_what_that_run_was_asked() -> None:
    """As far as the cache knows; two runs in one branch are told apart by their words."""
    repository = Repository.parse("acme/api")
    run = Run("run_1", "failed", "fix/login", repository, AT, AT, "{}")
    held = RunDetail(run, AT, AT, "current", (), summary=RunSummary(asked="Log in"))
    facts = {"run.id": "run_1", "run.repository": "acme/api", "run.branch": "main"}
    occurrence = Occurrence("x", AT, facts=facts)
    again = Decision(1, "r", occurrence, AT, "waiting", "", request_json=shown(ContinueRun("run_1", "Go.", repository)))
    cancel = replace(again, request_json=shown(CancelRun("run_1")))

    assert in_words(again, held) == "acme/api fix/login: continue “Log in”: Go."
    assert in_words(again, None) == "acme/api main: continue: Go."
    assert in_words(cancel, held) == "acme/api fix/login: cancel “Log in”"
