"""What a rule sends through the ledger, which commands it runs, and what it notifies."""

import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.api.requests import CancelRun, ContinueRun, StartAgent, StartRun
from app.automations.acting import describe_request, request_text
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
    """A service with one run that accepts every write."""

    def __init__(self, server: Server) -> None:
        self.runs: list[dict[str, object]] = []
        self.posted: list[Received] = []
        self.to_post: Respond | None = None
        """The answers to writes; None: a new run."""
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
    # The current time, since a rule ignores what happened long before it started.
    RUN.update(dict.fromkeys(("created_at", "updated_at"), datetime.now(UTC).isoformat()))
    with Server() as server:
        yield Service(server)


def configured(service: Service | Server, folder: Path, text: str) -> Settings:
    """Write a configuration file and return its settings."""
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
        """Return each decision's outcome and reason."""
        return [(facts["outcome"], facts["reason"]) for event, facts in self if event == "decision"]


async def fail_once(service: Service, settings: Settings) -> Said:
    """Let the bot see the run fail, and poll once more."""
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
    """The continuation has its placeholders filled in, and its ledger row names the rule."""
    text = automation('{ continue = "{run.repository} failed on {run.branch}: {x}" }')
    said = await fail_once(service, configured(service, tmp_path, text))

    (request,) = service.posted
    body = request.json()
    assert isinstance(body, dict)
    assert (body["run_id"], body["instructions"]) == ("run_1", "acme/api failed on fix/x: {x}")
    assert body["metadata"] == {"runwarden_automation": "r"}
    assert [outcome for outcome, _ in said.outcomes()] == ["acting", "done"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (automation("{ retry = true }"), "not sent from this machine"),
        ("read_only = true\n" + automation('{ continue = "go" }'), "Read-only"),
    ],
)
async def test_an_unknown_retry_or_read_only_write_is_not_sent(
    service: Service, tmp_path: Path, text: str, reason: str
) -> None:
    """A retry with unknown instructions, or any write of a read-only profile, is not sent.

    The journal gives the reason.
    """
    said = await fail_once(service, configured(service, tmp_path, text))

    assert service.posted == []
    assert said.outcomes()[-1][0] == "failed"
    assert reason in str(said.outcomes()[-1][1])


@pytest.mark.parametrize(
    ("run_id", "answer", "outcome", "reason"),
    [
        ("run_1", None, "done", None),
        ("run_1", Respond(404, {"message": "Not Found"}), "failed", "does not offer"),
        ("..", None, "failed", "cannot be addressed"),
    ],
)
async def test_a_run_is_cancelled_if_the_service_offers_it(
    service: Service, tmp_path: Path, run_id: str, answer: Respond | None, outcome: str, reason: str | None
) -> None:
    """The cancellation is sent once; if it is not offered or the run's id is invalid, the journal says so."""
    service.to_post, RUN["run_id"] = answer, run_id
    try:
        said = await fail_once(service, configured(service, tmp_path, automation("{ cancel = true }")))
    finally:
        RUN["run_id"] = "run_1"

    assert [request.path for request in service.posted] == ["/v1/external/runs/run_1/cancel"] * (run_id == "run_1")
    last_outcome, last_reason = said.outcomes()[-1]
    assert (last_outcome, (reason or "") in (last_reason or "")) == (outcome, True)


async def test_a_command_gets_facts_as_arguments_and_no_secret(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command gets facts as arguments, without a shell.

    A branch cannot pose as an option, and no token is in the environment.
    """
    monkeypatch.setenv("RUNWARDEN_TOKEN", "another-secret")
    out = tmp_path / "out.json"
    program = "import json, os, sys; json.dump([sys.argv[2:], dict(os.environ)], open(sys.argv[1], 'w'))"
    argv = [sys.executable, "-c", program, str(out), "{run.branch}", "at {run.id}; rm -rf /"]
    monkeypatch.setitem(RUN, "branch_name", "--output=/etc/passwd")
    await fail_once(service, configured(service, tmp_path, automation(f"{{ command = {json.dumps(argv)} }}")))

    arguments, environment = json.loads(out.read_text())
    assert arguments == ["\N{HYPHEN}-output=/etc/passwd", "at run_1; rm -rf /"]
    assert not [value for value in environment.values() if "another-secret" in value]
    assert os.environ["RUNWARDEN_TOKEN"] == "another-secret"


@pytest.mark.parametrize(
    ("words", "sent", "outcome"),
    [("first", 1, ("done", None)), ("second", 0, ("expired", "the request differs from the approved one"))],
)
async def test_an_approved_request_is_sent_as_it_was_shown(
    service: Service, tmp_path: Path, words: str, sent: int, outcome: tuple[str, str | None]
) -> None:
    """If a rule's text was edited after the request was shown, the approval sends nothing."""
    text = automation('{ continue = "first" }', "approval = true")
    said = await fail_once(service, configured(service, tmp_path, text))
    settings = configured(service, tmp_path, text.replace("first", words))

    bot = await Bot.open(settings, settings.profile(), said)
    (waiting,) = await bot.state.open_decisions()
    await bot.state.change_outcome(waiting.decision_id, "waiting", "approved", "approved by ann")
    await bot.once()
    await bot.close()

    assert len(service.posted) == sent
    assert said.outcomes()[-1] == outcome


@pytest.mark.parametrize(("caller", "continues"), [("ann", None), ("webhook", "run_1")])
async def test_a_colleagues_run_is_retried_with_the_services_words(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: str, continues: str | None
) -> None:
    """The words come from the service, which is asked again if it does not answer.

    A run that an event started is continued, because a new run might have more access.
    """
    monkeypatch.setattr("app.automations.runner.RETRY_AFTER", timedelta(0))
    turn = {"number": 1, "instructions": "Fix it", "caller": caller}
    down = [Respond(503)]

    def tells(request: Received) -> Respond:
        if request.path.endswith("/runs/run_1"):
            return down.pop() if down else Respond(200, {"run_id": "run_1", "turns": [turn]})
        return service.answer(request)

    service.server.otherwise = tells
    said = await fail_once(service, configured(service, tmp_path, automation("{ retry = true }")))

    assert not down
    assert [outcome for outcome, _ in said.outcomes()] == ["acting", "done"]
    bodies = [request.json() for request in service.posted]
    assert [(body["instructions"], body.get("run_id")) for body in bodies] == [("Fix it", continues)]


def test_a_waiting_request_is_summarized_in_a_line() -> None:
    """A waiting request is summarized with its action, its run and its first words.

    Two runs on one branch can be told apart, and a request in another version's format has no summary.
    """
    at, repository = datetime(2026, 5, 1, 12, 0, tzinfo=UTC), Repository.parse("acme/api")
    run = Run("run_1", "failed", "fix/login", repository, at, at, "{}")
    held = RunDetail(run, at, at, "current", (), summary=RunSummary(asked="Log in"))
    facts = {"run.id": "run_1", "run.repository": "acme/api", "run.branch": "main"}
    plain, about = Occurrence("x", at), Occurrence("x", at, facts=facts)
    start = StartRun("\n Fix it.\nAll.", Repository.parse("gitlab:a/b"), "fix/x")
    again, cancel = request_text(ContinueRun("run_1", "Go.", repository)), request_text(CancelRun("run_1"))
    for occurrence, detail, kept, words in (
        (plain, None, request_text(start), "gitlab:a/b fix/x: start a run: Fix it."),
        (plain, None, request_text(StartAgent("night owl", "a/b")), "a/b: start the agent night owl"),
        (plain, None, cancel, "run_1: cancel"),
        (plain, None, '{"path": "/external/runs", "body": {"instructions": 7}}', ""),
        (plain, None, None, ""),
        (about, held, again, "acme/api fix/login: continue “Log in”: Go."),
    ):
        assert describe_request(Decision(1, "r", occurrence, at, "waiting", "", request_json=kept), detail) == words
