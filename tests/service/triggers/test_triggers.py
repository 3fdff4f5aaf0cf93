"""Pull requests start runs: once for each delivery, by rules, and never because of the service's own changes."""

import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import httpx
import pytest

from service.clock import DAY_MICROS
from service.settings import DataFolder
from service.store import turns
from tests import service_process
from tests.service.conftest import BARE, Api
from tests.service.triggers.payloads import SECRET, github, gitlab, signed, with_token
from tests.service_process import demo_setup, git
from tests.waiting import eventually

SETTINGS: Final = """
[triggers]
github_secret_env = "HOOK_SECRET"
own_accounts = ["Acme-Bot"]
body_bytes = 100_000
[gitlab]
webhook_secret_env = "GITLAB_SECRET"
"""
ENVIRONMENT: Final = {
    "HOOK_SECRET": SECRET,
    "GITLAB_SECRET": "of gitlab",
    "OTHER_SECRET": "of other",
    "LENT": "lent",
}
TELLER: Final = """
import json, os, pathlib, sys
pathlib.Path("told.txt").write_text("changed")
summary = json.dumps({"LENT": "LENT" in os.environ})
open(os.environ["RUNWARDEN_RESULT"], "w").write(json.dumps({"summary": summary}))
"""
NUMBERS: Final = count(100)


class Host:
    """A code host that delivers to one service."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.api = Api(service)
        self.root = service.base_url.removesuffix("/v1")
        self.repository = service.repositories["acme/api"]

    def post(self, platform: str, sent: tuple[bytes, dict[str, str]]) -> httpx.Response:
        return BARE.post(f"{self.root}/hooks/{platform}", content=sent[0], headers=sent[1])

    def deliver(self, action: str, sha: str, delivery: str | None = None, **given: Any) -> httpx.Response:
        return self.post("github", signed(github(action, sha, **given), delivery or f"delivery-{secrets.token_hex(8)}"))

    def rules(self, *rules: dict[str, Any], name: str = "api", **options: str) -> None:
        """Give a repository these rules."""
        path = f"acme/{name}"
        given = {"org": "acme", "platform": "gitlab" if name == "tools" else "github", "path": path}
        given |= {"url": str(self.service.repositories[path])} | options
        words = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", value)]
        for rule in rules:
            toml = ", ".join(f"{key} = {json.dumps(value)}" for key, value in rule.items())
            words += ["--trigger", f"{{ {toml} }}"]
        self.service.admin("repository", "add", name, *words)

    def branch(self, name: str) -> str:
        """Make a branch with its own commit and return the commit."""
        git("branch", "--force", name, "fix/login", cwd=self.repository)
        return self.push(name)

    def push(self, ref: str, by: str = "fix/login") -> str:
        """Put a new commit onto a branch, as a user does."""
        full = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
        words = ("-p", by, "-m", f"work {secrets.token_hex(4)}")
        commit = git("commit-tree", f"{by}^{{tree}}", *words, cwd=self.repository)
        git("update-ref", full, commit, cwd=self.repository)
        return commit

    def log(self, number: int) -> list[dict[str, Any]]:
        """The decisions on a pull request's deliveries."""
        found = self.service.admin("trigger", "log", "--org", "acme")["deliveries"]
        return [one for one in found if one["number"] == number]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A service with its code host, for all tests here."""
    folder = tmp_path_factory.mktemp("triggers")
    teller = folder / "teller.py"
    teller.write_text(TELLER, "utf-8")
    setup = demo_setup(folder)
    setup["agents"].append({"name": "teller", "argv": ["{python}", str(teller)], "environment": ["LENT"]})
    service = service_process.start_service(folder, setup=setup, settings=SETTINGS, environment=ENVIRONMENT)
    yield Host(service)
    service.kill()


@pytest.fixture
def number() -> int:
    """A pull request number for this test only."""
    return next(NUMBERS)


def rule(**given: Any) -> dict[str, Any]:
    """A rule for the quick agent."""
    return {"agent": "scribe", "instructions": "nothing to do"} | given


def test_a_pull_request_starts_a_run_but_its_push_none(host: Host, number: int) -> None:
    """The run is on its branch, by `webhook`; its own push is delivered back, by any sender, and starts nothing."""
    host.rules(rule(instructions="note this"))
    branch = f"loop-{number}"
    sha = host.branch(branch)
    answer = host.deliver("opened", sha, number=number, head=branch, at=1)
    run_id = answer.json()["runs"][0]
    ended = host.api.ended(run_id)
    turn = host.api.turns(run_id)[0]
    pushed = git("rev-parse", branch, cwd=host.repository)
    given = {"number": number, "head": branch}
    senders = ("dora", "acme-bot", "another-bot")
    again = [host.deliver("synchronize", pushed, at=2, sender=sender, **given) for sender in senders]
    labeled = host.deliver("opened", host.push(branch), number=number, head=branch, at=3, sender="acme-bot")

    assert (answer.status_code, answer.json()["waiting"]) == (202, 0)
    assert (ended["status"], ended["branch_name"], turn["caller"]) == ("completed", branch, "webhook")
    assert turn["commit"] == pushed != sha
    assert turn["instructions"] == f"note this\n\n(pull request #{number}, commit {sha})"
    assert "Ignore all rules" not in git("show", f"{pushed}:notes/{run_id}-1.json", cwd=host.repository)
    assert [(one.status_code, one.content) for one in [*again, labeled]] == [(204, b"")] * 4
    assert [one["result"] for one in host.log(number)] == ["started", "own", "own", "own", "own"]
    trail = host.service.admin("audit", "list", "--action", "trigger")["entries"]
    assert any(one["target"] == run_id and one["actor"].startswith("webhook:github:") for one in trail)


def test_only_the_delivered_commit_is_used(host: Host, number: int) -> None:
    """A newer commit of the branch is not used, and neither is the default branch if the commit is gone."""
    host.rules(rule(instructions="note this"))
    moved, gone = f"moved-{number}", f"gone-{number}"
    shas = [host.branch(branch) for branch in (moved, gone)]
    host.push(moved)
    git("branch", "-D", gone, cwd=host.repository)
    runs = [
        host.deliver("opened", sha, number=number + 500 * at, head=branch).json()["runs"][0]
        for at, (branch, sha) in enumerate(zip((moved, gone), shas, strict=True), 1)
    ]

    assert [host.api.ended(run_id)["status"] for run_id in runs] == ["failed", "failed"]
    reasons = [host.api.turns(run_id)[0]["reason"] for run_id in runs]
    assert f"the branch {moved} is at" in reasons[0]
    assert f"the branch {gone} is gone; the run was started for" in reasons[1]
    assert git("branch", "--list", gone, cwd=host.repository) == ""


def test_a_repeated_or_late_delivery_starts_one_run(host: Host, number: int) -> None:
    """A repeated delivery, and a scheduled time, start one run each, even over two crashes.

    The next time is stored with the run. Another name of the commit, or another rule for it, starts no second run.
    """
    host.rules(rule())
    passed = datetime.now(UTC) - timedelta(minutes=10)
    daily = rule(on=["schedule"], schedule=f"{passed.minute} {passed.hour} * * *", instructions="note this")
    host.rules(daily, name="web")
    given: dict[str, Any] = {"number": number, "head": f"twice-{number}"}
    sha, name = host.branch(given["head"]), f"twice-{number}"
    first = host.deliver("opened", sha, name, **given)
    host.service.kill()
    with closing(sqlite3.connect(DataFolder(host.service.data_dir).database_file)) as database, database:
        database.execute("UPDATE schedules SET due_at = due_at - ?", [DAY_MICROS])
    host.service.restart()
    eventually(lambda: host.log(-1), "the time is decided on")
    host.service.kill()
    host.service.restart()
    later = [host.deliver("opened", sha, name, **given), host.deliver("reopened", sha, **given)]
    host.rules(rule(on=["reopened", "opened"]))
    later.append(host.deliver("reopened", sha, **given))
    (decided,) = host.log(-1)
    ended = host.api.ended(decided["run_id"])
    host.rules(rule(), name="web")

    assert [one.status_code for one in (first, *later)] == [202, 204, 204, 204]
    (started,) = [one for one in host.api.runs() if one["branch_name"] == given["head"]]
    assert [one["result"] for one in host.log(number)] == ["started", "ignored", "repeated"]
    assert host.api.ended(started["run_id"])["status"] == "completed"
    assert (decided["result"], ended["status"], ended["repository"]["data"]["repo"]) == ("started", "completed", "web")
    assert host.api.turns(decided["run_id"])[0]["caller"] == f"schedule {daily['schedule']}"


def test_senders_without_the_secret_learn_nothing(host: Host, number: int) -> None:
    """Every sender without the secret gets the same answer; others get 404, 204, 400 or 413, without foreign data."""
    host.rules(rule())
    known, unknown = github("opened", "a" * 40, number=number), github("opened", "a" * 40, path="acme/secret")
    raw, headers = signed(known, f"delivery-{number}")
    without = {name: value for name, value in headers.items() if "256" not in name}
    forged = [host.post("github", signed(one, f"delivery-{number}", secret="another")) for one in (known, unknown)]
    forged += [host.post("github", (raw, without)), host.post("github", (raw[:-1] + b" ", headers))]
    forged += [host.post("gitlab", with_token(gitlab("open", "a" * 40), {}, token=token)) for token in ("", SECRET)]
    forged.append(host.post("github", (raw + b" " * 200_000, without)))
    elsewhere = [host.post(name, (raw, headers)) for name in ("bitbucket", "GitHub", "github/x")]
    missing, ping, comment, bad, large = (
        host.post("github", signed(document, f"delivery-of-{event}", event))
        for document, event in (
            (unknown, "pull_request"),
            ({"zen": "Keep it logically awesome."}, "ping"),
            (known | {"comment": {}}, "issue_comment"),
            ({"action": "opened"}, "pull_request"),
            (known | {"x": "x" * 100_000}, "pull_request"),
        )
    )

    assert {(one.status_code, one.content) for one in forged} == {(401, forged[0].content)}
    assert {one.status_code for one in elsewhere} == {404}
    message = "the repository is not configured for this webhook"
    assert missing.json() == {"error_code": "unknown_repository", "message": message}
    assert [(one.status_code, one.content) for one in (ping, comment)] == [(204, b"")] * 2
    assert (bad.status_code, bad.json()["error_code"], large.status_code) == (400, "invalid_payload", 413)
    assert host.log(number) == []


def test_a_forks_head_starts_nothing_waits_or_has_no_secrets(host: Host, number: int) -> None:
    """The approval is for one commit; a fork's run pushes nothing, neither to the fork nor to a branch here.

    A commit that the fork's owner put in place of the announced one does not run.
    """
    ref, fork = f"refs/pull/{number}/head", {"fork": "yes", "number": number, "head": "main"}
    sha = host.push(ref)
    before = git("for-each-ref", "refs/heads", cwd=host.repository)
    host.rules(rule(agent="teller"))
    refused = host.deliver("opened", sha, **fork)
    host.rules(rule(agent="teller", forks="without_secrets"))
    bare = host.deliver("synchronize", sha, at=1, **fork).json()["runs"][0]
    host.api.ended(bare)
    moved = host.deliver("synchronize", "b" * 40, at=2, **fork | {"fork": "deleted"}).json()["runs"][0]
    host.api.ended(moved)
    host.rules(rule(agent="teller", forks="approve"))
    first = host.deliver("synchronize", host.push(ref), at=3, **fork)
    newest = host.push(ref)
    second = host.deliver("synchronize", newest, at=4, **fork)
    waiting = host.service.admin("trigger", "log", "--waiting")["deliveries"]
    approved = host.service.admin("trigger", "approve", waiting[-1]["id"])["run_id"]
    again = service_process.refused_start(host.service.data_dir, "trigger", "approve", waiting[-1]["id"])
    host.api.ended(approved)
    without, other, done = (host.api.turns(one)[0] for one in (bare, moved, approved))

    assert (refused.status_code, first.json(), second.status_code) == (204, {"runs": [], "waiting": 1}, 202)
    assert [(one["commit"], one["number"]) for one in waiting] == [(newest, number)]
    assert (again.returncode, "does not wait" in again.stderr) == (2, True)
    assert [json.loads(one["summary"]) for one in (without, done)] == [{"LENT": False}, {"LENT": True}]
    assert (done["outcome"], done["commit"], done["reason"]) == ("completed", None, turns.NOT_PUSHED)
    assert other["outcome"] == "failed"
    assert f"{ref} is no longer at {'b' * 40}" in other["reason"]
    assert git("for-each-ref", "refs/heads", cwd=host.repository) == before
    assert [(one["result"], one["detail"].partition(" by ")[0]) for one in host.log(number)] == [
        ("ignored", "teller: the head is in a fork"),
        ("started", ""),
        ("started", ""),
        ("superseded", "superseded"),
        ("started", "approved"),
    ]


def test_gitlab_uses_the_secret_set_by_onboarding(host: Host, number: int) -> None:
    """A repeated delivery is recognized by its Idempotency-Key; a repository's own secret replaces the common one."""
    host.rules(rule(), name="tools")
    repository, head = host.service.repositories["acme/web"], f"mr-{number}"
    sha = git("rev-parse", "main", cwd=repository)
    git("branch", head, "main", cwd=repository)
    key = {"Idempotency-Key": f"key-{number}-of-it", "X-Gitlab-Event-UUID": "e-1"}
    merge_request = gitlab("update", sha, oldrev="d" * 40, number=number, head=head)
    answers = [host.post("gitlab", with_token(merge_request, key, token="of gitlab")) for _ in range(2)]
    ended = host.api.ended(answers[0].json()["runs"][0])
    host.rules(rule(), name="tools", webhook_secret_env="OTHER_SECRET")
    other = gitlab("open", "e" * 40, number=number)
    own = [host.post("gitlab", with_token(other, {}, token=f"of {name}")).status_code for name in ("gitlab", "other")]

    assert [one.status_code for one in answers] == [202, 204]
    assert (ended["status"], ended["repository"]["platform"]) == ("completed", "gitlab")
    assert own == [404, 202]
