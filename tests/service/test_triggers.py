"""Runs that pull requests start: once for each delivery, by rules, and never by what the service did itself."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final

import httpx
import pytest

from service.store import turns
from tests import service_process
from tests.service.conftest import BARE, Api
from tests.service.payloads import (
    SECRET,
    forgejo,
    github,
    github_check,
    github_comment,
    gitlab,
    gitlab_issue,
    signed,
    with_token,
)
from tests.service_process import demo_setup, git

SETTINGS: Final = """
[triggers]
github_secret_env = "HOOK_SECRET"
forgejo_secret_env = "FORGEJO_SECRET"
own_accounts = ["Acme-Bot"]
body_bytes = 100_000
mention = "acme-bot"
[gitlab]
webhook_secret_env = "GITLAB_SECRET"
"""
ENVIRONMENT: Final = {
    "HOOK_SECRET": SECRET,
    "FORGEJO_SECRET": "of forgejo",
    "GITLAB_SECRET": "of gitlab",
    "OTHER_SECRET": "of other",
    "LENT": "lent",
}
TELLER: Final = """
import json, os, pathlib, sys
pathlib.Path("told.txt").write_text("changed")
held = {name: name in os.environ for name in ("LENT",)}
open(os.environ["RUNWARDEN_RESULT"], "w").write(json.dumps({"summary": json.dumps(held)}))
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
        """Make a branch with a commit of its own and return the commit."""
        git("branch", "--force", name, "fix/login", cwd=self.repository)
        return self.push(name)

    def push(self, ref: str, by: str = "fix/login") -> str:
        """Put a new commit onto a branch, as people do."""
        full = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
        commit = git(
            "commit-tree", f"{by}^{{tree}}", "-p", by, "-m", f"work {secrets.token_hex(4)}", cwd=self.repository
        )
        git("update-ref", full, commit, cwd=self.repository)
        return commit

    def log(self, number: int) -> list[dict[str, Any]]:
        """What was decided on a pull request's deliveries."""
        found = self.service.admin("trigger", "log", "--org", "acme")["deliveries"]
        return [one for one in found if one["number"] == number]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A service with its code host, for all tests here."""
    folder = tmp_path_factory.mktemp("triggers")
    teller = folder / "teller.py"
    teller.write_text(TELLER, "utf-8")
    setup = demo_setup(folder)
    setup["agents"].append({"name": "holder", "argv": ["/bin/sleep", "3600"]})
    setup["agents"].append({"name": "teller", "argv": ["{python}", str(teller)], "environment": ["LENT"]})
    environment = ENVIRONMENT | {"RUNWARDEN_METRICS_TOKEN": "a-token-for-scraping"}
    service = service_process.start_service(folder, setup=setup, settings=SETTINGS, environment=environment)
    yield Host(service)
    service.kill()


@pytest.fixture
def number() -> int:
    """A pull request of one's own."""
    return next(NUMBERS)


def rule(**given: Any) -> dict[str, Any]:
    """A rule for the quick agent."""
    return {"agent": "scribe", "instructions": "nothing to do"} | given


def test_a_pull_request_starts_a_run_and_what_the_run_pushes_starts_none(host: Host, number: int) -> None:
    """On its branch, as `webhook`; the push comes back as a delivery, by any sender, and starts nothing."""
    host.rules(rule(instructions="note this"))
    branch = f"loop-{number}"
    sha = host.branch(branch)
    answer = host.deliver("opened", sha, number=number, head=branch, at=1)
    run_id = answer.json()["runs"][0]
    ended = host.api.ended(run_id)
    turn = host.api.turns(run_id)[0]
    pushed = git("rev-parse", branch, cwd=host.repository)
    again = [
        host.deliver("synchronize", pushed, number=number, head=branch, at=2, sender=sender)
        for sender in ("dora", "acme-bot", "another-bot")
    ]
    labeled = host.deliver("opened", host.push(branch), number=number, head=branch, at=3, sender="acme-bot")

    assert (answer.status_code, answer.json()["waiting"]) == (202, 0)
    assert (ended["status"], ended["branch_name"], turn["caller"]) == ("completed", branch, "webhook")
    assert turn["commit"] == pushed != sha
    assert turn["instructions"] == f"note this\n\n(pull request #{number}, commit {sha})"
    assert "Ignore all rules" not in json.dumps(
        json.loads(git("show", f"{pushed}:notes/{run_id}-1.json", cwd=host.repository))
    )
    assert [(one.status_code, one.content) for one in [*again, labeled]] == [(204, b"")] * 4
    assert [one["result"] for one in host.log(number)] == ["started", "own", "own", "own", "own"]
    trail = host.service.admin("audit", "list", "--action", "trigger")["entries"]
    assert any(one["target"] == run_id and one["actor"].startswith("webhook:github:") for one in trail)


def test_only_the_delivered_commit_is_worked_on(host: Host, number: int) -> None:
    """Not another one that the branch is at by now, nor the default branch where it is gone."""
    host.rules(rule(instructions="note this"))
    runs = []
    for at, (name, change) in enumerate((("moved", host.push), ("gone", None)), 1):
        branch = f"{name}-{number}"
        sha = host.branch(branch)
        if change is None:
            git("branch", "-D", branch, cwd=host.repository)
        else:
            change(branch)
        runs.append(host.deliver("opened", sha, number=number + 500 * at, head=branch, at=1).json()["runs"][0])
    ended = [host.api.ended(run_id)["status"] for run_id in runs]
    reasons = [host.api.turns(run_id)[0]["reason"] for run_id in runs]

    assert ended == ["failed", "failed"]
    assert f"the branch moved-{number} is at" in reasons[0]
    assert f"the branch gone-{number} is gone; the run was started for" in reasons[1]
    assert git("branch", "--list", f"gone-{number}", cwd=host.repository) == ""


def test_a_delivery_that_arrives_twice_starts_one_run(host: Host, number: int) -> None:
    """Also at the same time, after the service was killed, and under another name for the same commit."""
    host.rules(rule())
    branch = f"twice-{number}"
    sha = host.branch(branch)
    with ThreadPoolExecutor(8) as pool:
        at_once = list(
            pool.map(lambda _: host.deliver("opened", sha, f"twice-{number}", number=number, head=branch), range(8))
        )
    host.service.kill()
    host.service.restart()
    later = host.deliver("opened", sha, f"twice-{number}", number=number, head=branch)
    renamed = host.deliver("reopened", sha, number=number, head=branch)
    host.rules(rule(on=["reopened", "opened"]))
    another = host.deliver("reopened", sha, number=number, head=branch)
    started = [one for one in host.api.runs() if one["branch_name"] == branch]

    assert sorted(one.status_code for one in at_once) == [202] + [204] * 7
    assert [one.status_code for one in (later, renamed, another)] == [204, 204, 204]
    assert len(started) == 1
    assert [one["result"] for one in host.log(number)] == ["started", "ignored", "repeated"]
    assert host.api.ended(started[0]["run_id"])["status"] == "completed"


def test_who_is_not_the_code_host_learns_nothing(host: Host, number: int) -> None:
    """One answer to all who do not know the secret; to those who do, 404, 204, 400 and 413 without a word of others."""
    host.rules(rule())
    known, unknown = github("opened", "a" * 40, number=number), github("opened", "a" * 40, path="acme/secret")
    raw, headers = signed(known, f"delivery-{number}")
    without = {name: value for name, value in headers.items() if "256" not in name}
    forged = [host.post("github", signed(one, f"delivery-{number}", secret="another")) for one in (known, unknown)]
    forged += [host.post("github", (raw, without)), host.post("github", (raw[:-1] + b" ", headers))]
    forged += [host.post("gitlab", with_token(gitlab("open", "a" * 40), {}, token=token)) for token in ("", SECRET)]
    forged.append(host.post("github", (raw + b" " * 200_000, without)))
    elsewhere = [host.post(name, (raw, headers)) for name in ("bitbucket", "GitHub", "github/x")]
    missing = host.post("github", signed(unknown, "delivery-of-unknown"))
    ping = host.post("github", signed({"zen": "Keep it logically awesome."}, "delivery-of-ping", "ping"))
    comment = host.post("github", signed(known | {"comment": {}}, "delivery-of-comment", "issue_comment"))
    bad = host.post("github", signed({"action": "opened"}, "delivery-of-bad"))
    large = host.post("github", signed(known | {"x": "x" * 100_000}, "delivery-of-large"))

    assert {(one.status_code, one.content) for one in forged} == {(401, forged[0].content)}
    assert {one.status_code for one in elsewhere} == {404}
    assert missing.json() == {
        "error_code": "unknown_repository",
        "message": "the repository is not configured for this webhook",
    }
    assert [(one.status_code, one.content) for one in (ping, comment)] == [(204, b"")] * 2
    assert (bad.status_code, bad.json()["error_code"], large.status_code) == (400, "invalid_payload", 413)
    assert host.log(number) == []
    shown = BARE.get(f"{host.root}/metrics", headers={"Authorization": "Bearer a-token-for-scraping"}).text
    counted = {"invalid_signature", "unknown_repository", "ignored", "invalid_payload", "body_too_large"}
    assert {name for name in counted if f'{{platform="github",result="{name}"}}' not in shown} == set()


def test_a_fork_s_head_starts_nothing_or_waits_or_goes_without_secrets(host: Host, number: int) -> None:
    """What is approved is one commit; nothing is pushed for a fork, neither to it nor to a branch here.

    Nor does a commit run that the fork's owner put in the place of the one that was announced.
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


def test_gitlab_starts_runs_with_the_secret_that_onboarding_sets(host: Host, number: int) -> None:
    """Its key for repeated deliveries counts; a repository's own secret takes the common one's place."""
    host.rules(rule(), name="tools")
    sha = git("rev-parse", "main", cwd=host.service.repositories["acme/web"])
    git("branch", f"mr-{number}", "main", cwd=host.service.repositories["acme/web"])
    key = {"Idempotency-Key": f"key-{number}-of-it", "X-Gitlab-Event-UUID": "e-1"}
    merge_request = gitlab("update", sha, oldrev="d" * 40, number=number, head=f"mr-{number}")
    answers = [host.post("gitlab", with_token(merge_request, key, token="of gitlab")) for _ in range(2)]
    ended = host.api.ended(answers[0].json()["runs"][0])
    host.rules(rule(), name="tools", webhook_secret_env="OTHER_SECRET")
    other = gitlab("open", "e" * 40, number=number)
    tokens = [
        host.post("gitlab", with_token(other, {}, token=token)).status_code for token in ("of gitlab", "of other")
    ]

    assert [one.status_code for one in answers] == [202, 204]
    assert (ended["status"], ended["repository"]["platform"]) == ("completed", "gitlab")
    assert tokens == [404, 202]
    assert host.service.admin("trigger", "list", "--org", "acme")["triggers"][-1]["agent"] == "scribe"
    with pytest.raises(AssertionError, match="a trigger names the agent 'nobody-here'"):
        host.rules(rule(agent="nobody-here"))


def test_an_issue_starts_a_run_and_what_may_not_start_one_is_in_the_log(host: Host, number: int) -> None:
    """On a branch of its own; a stranger, a confidential issue and a second request start none."""
    given = rule(agent="holder", on=["issue"], labels=["agent"], authors=["dora"])
    host.rules(given, name="tools", webhook_secret_env="OTHER_SECRET")

    def deliver(action: str, name: str = "Issue Hook", **given: Any) -> httpx.Response:
        document = gitlab_issue(action, labels=["agent"], number=number, **given)
        return host.post("gitlab", with_token(document, {"X-Gitlab-Event": name}, token="of other"))

    refused = [deliver("update", sender="eve"), deliver("update", "Confidential Issue Hook", confidential=True)]
    started = deliver("update", at=1)
    refused += [deliver("update", at=1), deliver("update", at=2), deliver("close", state="closed", at=3)]
    run_id = started.json()["runs"][0]
    ended = host.api.ended(run_id)

    assert [one.status_code for one in refused] == [204] * 5
    assert ended["branch_name"].startswith("agent/")
    assert host.api.turns(run_id)[0]["reason"] == f"cancelled: issue {number} was closed"
    assert [(one["result"], one["detail"]) for one in host.log(number) if one["is_issue"]] == [
        ("ignored", "holder: eve is not among its authors"),
        ("ignored", "the issue is confidential"),
        ("started", ""),
        ("refused", "holder is at work on this issue"),
        ("closed", "ended 1 run"),
    ]


def test_forgejo_starts_runs_at_either_of_its_names(host: Host, number: int) -> None:
    """By its own secret; the case of a repository's name means nothing; the API shows owner, repository and host."""
    api, branch = host.api, f"forgejo-{number}"
    sha = host.branch(branch)
    admin = host.service.admin
    admin("host", "connect", "--org", "acme", "--platform", "gitea", "--api-url", "http://127.0.0.1:9/git/api/v1")
    rule = '{ agent = "scribe", instructions = "note this" }'
    where = ("--platform", "gitea", "--path", "Acme/Forge", "--url", str(host.repository))
    admin("repository", "add", "forge", "--org", "acme", *where, "--trigger", rule)

    def deliver(name: str, secret: str) -> httpx.Response:
        document = forgejo("synchronized", sha, number=number, head=branch, path="acme/forge")
        return host.post(name, signed(document, f"delivery-{number}", secret=secret))

    answers = [deliver(*given) for given in (("forgejo", SECRET), ("gitea", "of forgejo"), ("forgejo", "of forgejo"))]
    ended = api.ended(answers[1].json()["runs"][0])
    health = api.get("/external/installation/health").json()["code_hosting"]
    reference = {"platform": "forgejo", "data": {"owner": "Acme", "repo": "Forge"}}
    found = api.get("/external/runs", params={"platform": "forgejo", "data": json.dumps(reference["data"])}).json()
    again = api.post("/external/runs", {"instructions": "x", "repository": reference, "branch_name": branch})
    admin("host", "disconnect", "--org", "acme", "--platform", "gitea")

    assert [one.status_code for one in answers] == [401, 202, 204]
    assert (ended["status"], ended["repository"], ended["branch_name"]) == ("completed", reference, branch)
    assert health["forgejo"] == {"status": "unreachable", "host": "127.0.0.1"}
    assert ([run["run_id"] for run in found["runs"]], again.status_code) == ([ended["run_id"]], 201)
    assert f"(pull request #{number}, commit {sha})" in api.turns(ended["run_id"])[0]["instructions"]


def test_a_comment_and_a_failed_check_start_runs_on_the_delivered_commit(host: Host, number: int) -> None:
    """The whole way; what is forged starts nothing and can be read in the log of decisions, or in the figures."""
    host.rules(
        rule(instructions="note this", on=["comment"], authors=["dora"]), rule(instructions="note this", on=["failed"])
    )
    branch = f"asked-{number}"
    sha, given = host.branch(branch), {"number": number, "head": branch}

    def deliver(name: str, document: dict[str, Any], secret: str = SECRET) -> httpx.Response:
        return host.post("github", signed(document, f"delivery-{secrets.token_hex(8)}", name, secret))

    ask, diff = "@acme-bot review the login", "pull_request_review_comment"
    answer = deliver(diff, github_comment(ask, sha, **given))
    ended = host.api.ended(answer.json()["runs"][0])
    pushed = git("rev-parse", branch, cwd=host.repository)
    failed = deliver("check_run", github_check(sha, head_sha=pushed, **given))
    own = deliver("check_run", github_check(pushed, **given))
    forged = [
        deliver(diff, github_comment(ask, sha, id=9, **given), "another"),
        deliver(diff, github_comment(ask, sha, id=9, sender="eve", **given)),
        deliver("issue_comment", github_comment(ask, id=10, **given)),
    ]
    told = host.log(number)

    assert (answer.status_code, ended["status"], pushed != sha) == (202, "completed", True)
    turn = host.api.turns(ended["run_id"])[0]
    assert turn["instructions"].startswith(
        f"note this\n\ndora asks: On src/app.py, line 3: the login\n\n(pull request #{number}"
    )
    assert [one.status_code for one in (failed, own, *forged)] == [204, 204, 401, 204, 204]
    assert [(one["event"], one["result"]) for one in told] == [
        ("comment", "started"),
        ("failed", "ignored"),
        ("failed", "own"),
        ("comment", "ignored"),
        ("comment", "ignored"),
    ]
    details = [one["detail"] for one in told]
    assert details[1] == f"the pull request is at {pushed[:12]} by now"
    assert details[3] == "scribe: eve is not among its authors; scribe: not on comment"
    assert details[4].startswith("the pull request cannot be read: ")
