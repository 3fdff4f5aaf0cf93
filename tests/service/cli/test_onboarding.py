"""Onboarding of GitLab projects and their webhooks: POST /external/gitlab/projects (spec 4.6; the shape is ours)."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa

from service.clock import now_micros
from service.forge.onboarding import OnboardingError, Outcome, onboard
from service.hosts.tokens import HostTokens
from service.settings import GitLabSettings, ProbingSettings, Settings
from service.setup import RepositoryEntry, add_repository
from service.store import organizations, repositories
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from service.store.schema import host_tokens
from tests.service.conftest import WEBHOOK as HOOK
from tests.service.conftest import Make
from tests.service.forge.forges import PROJECT, GitLabForge

BY_PATH: Final = (None, "acme/web")
BY_ID: Final = (42, None)


@pytest.fixture
def gitlab(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabForge]:
    """A GitLab with one project; the variable GITLAB_TOKEN_HERE holds its maintainer's token."""
    monkeypatch.setenv("GITLAB_TOKEN_HERE", "bot-token")
    with GitLabForge() as server:
        yield server


class Acme:
    """An organization in its own database, connected to a GitLab."""

    def __init__(self, database: Database, gitlab: GitLabForge) -> None:
        self.database, self.gitlab = database, gitlab
        with self.database.write() as connection:
            self.id = organizations.create(connection, name="Acme", now=now_micros()).id

    def onboard(self, key: tuple[int | None, str | None] = BY_PATH, **hook: Any) -> Outcome:
        host = Host("gitlab", "gitlab.example", None, "api", self.gitlab.url, None, "GITLAB_TOKEN_HERE")
        webhook = GitLabSettings(**{"webhook_url": HOOK, **hook})
        settings = Settings(gitlab=webhook, probing=ProbingSettings(timeout_s=60))
        given = (self.database, HostTokens(self.database), self.id, host, settings, now_micros, "token:tok_1")
        return onboard(*given, project_id=key[0], path=key[1])

    def add(self, repository: Repository) -> None:
        with self.database.write() as connection:
            repositories.save(connection, self.id, repository, now_micros())

    @property
    def repositories(self) -> list[Repository]:
        with self.database.read() as connection:
            return repositories.of(connection, self.id)


@pytest.fixture
def acme(database: Database, gitlab: GitLabForge) -> Acme:
    return Acme(database, gitlab)


def test_a_webhooks_state_comes_from_gitlab(acme: Acme, gitlab: GitLabForge) -> None:
    """A removed webhook is not reported as set; an unreachable GitLab changes nothing, and the answer says why."""
    acme.onboard()
    hooks, maintainers = list(gitlab.hooks), set(gitlab.maintainers)
    gitlab.hooks.clear()
    gitlab.maintainers.clear()
    removed = acme.onboard().repository.webhook_configured
    kept = acme.repositories[0].webhook_configured
    gitlab.hooks, gitlab.maintainers = hooks, maintainers
    acme.onboard()
    gitlab.close()
    away = acme.onboard()

    assert (removed, kept) == (False, False)
    assert (away.is_new, away.repository.webhook_configured) == (False, True)
    assert "cannot be reached" in str(away.webhook_failure)


def test_without_a_token_the_webhook_is_unchanged(acme: Acme) -> None:
    """An example is a lost rotation: the answer has the reason, and the project stays connected."""
    acme.onboard()
    lost = {"digest": hashlib.sha256(b"runwarden:bot-token").hexdigest(), "variable": "GITLAB_TOKEN_HERE"}
    with acme.database.write() as connection:
        connection.execute(sa.insert(host_tokens).values(**lost, is_lost=True, fault="create a new token"))
    outcome = acme.onboard()

    assert (outcome.is_new, outcome.repository.webhook_configured) == (False, True)
    assert outcome.webhook_failure is not None
    assert outcome.webhook_failure.endswith("there is no token for gitlab.example: create a new token")


def test_a_duplicate_webhook_is_removed(acme: Acme, gitlab: GitLabForge) -> None:
    """Others' webhooks are left alone, and of two of ours one stays."""
    others = [{"id": number, "url": f"https://other.example/{number}"} for number in range(5)]
    gitlab.hooks = [*others, {"id": 8, "url": HOOK, "push_events": False}, {"id": 9, "url": HOOK}]
    gitlab.page_size = 2
    outcome = acme.onboard(webhook_events=("push_events",))

    assert outcome.repository.webhook_configured
    assert [one["id"] for one in gitlab.hooks] == [0, 1, 2, 3, 4, 8]


def test_simultaneous_onboardings_leave_one_webhook(acme: Acme, gitlab: GitLabForge) -> None:
    """Both calls add a webhook before either looks again; the oldest stays, and only one call is the first."""
    gitlab.before_add = threading.Barrier(2, timeout=300)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: acme.onboard(), range(2)))

    assert [one["url"] for one in gitlab.hooks] == [HOOK]
    assert sorted(one.is_new for one in outcomes) == [False, True]
    assert all(one.repository.webhook_configured for one in outcomes)
    assert len(acme.repositories) == 1


def test_a_configured_repository_keeps_its_settings(
    acme: Acme, gitlab: GitLabForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository learns its project's id and webhook, whose deliveries use its own secret."""
    for name in ("OWN", "COMMON"):
        monkeypatch.setenv(f"{name}_SECRET_HERE", name)
    known = Repository("site", "gitlab", "Acme/Web", "/srv/web.git", webhook_secret_env="OWN_SECRET_HERE")
    acme.add(known)
    outcome = acme.onboard(BY_ID, webhook_secret_env="COMMON_SECRET_HERE")

    assert outcome.is_new is False
    assert acme.repositories == [replace(known, project_id=42, webhook_configured=True)]
    assert [hook["token"] for hook in gitlab.hooks] == ["OWN"]


def test_configuring_an_onboarded_repository_keeps_its_webhook(acme: Acme) -> None:
    """A deletion of the organization then names the webhook; another address may be that of another project."""
    onboarded = acme.onboard(BY_ID).repository
    kept = []
    for url in (onboarded.url, "https://gitlab.other/acme/web.git"):
        entry = RepositoryEntry(name="web", platform="gitlab", path="Acme/Web", url=url)
        with acme.database.write() as connection:
            organization = organizations.by_id(connection, acme.id)
            assert organization is not None
            add_repository(connection, organization, entry, Path("/"), now_micros())
        kept.append((acme.repositories[0].project_id, acme.repositories[0].webhook_configured))

    assert kept == [(42, True), (None, False)]


def test_a_moved_project_is_updated(acme: Acme, gitlab: GitLabForge) -> None:
    """The id identifies it: one repository, at the new path, even if another platform has the same name."""
    other = Repository("acme/web", "github", "acme/web", "/srv/other.git")
    acme.add(other)
    first = acme.onboard()
    moved = {"path_with_namespace": "acme/site", "http_url_to_repo": "http://gitlab.example/acme/site.git"}
    gitlab.projects = [PROJECT | moved]
    second = acme.onboard((None, "acme/site"))

    assert (first.is_new, first.repository.name, second.is_new) == (True, "gitlab:acme/web", False)
    assert [(one.path, one.project_id) for one in acme.repositories if one != other] == [("acme/site", 42)]


def test_an_invalid_project_is_not_connected(acme: Acme, gitlab: GitLabForge) -> None:
    """Examples are a project without a path or an address, or with an impossible path."""
    for project, message in (
        ({"id": 42, "path_with_namespace": None}, "cannot be named"),
        ({"id": 42, "path_with_namespace": "acme/web"}, "names no address"),
        (PROJECT | {"path_with_namespace": "../../etc"}, "cannot be named"),
    ):
        gitlab.projects = [project]
        with pytest.raises(OnboardingError, match=message):
            acme.onboard(BY_ID)

    assert acme.repositories == []


def ask(api: Any, **project: Any) -> Any:
    return api.post("/external/gitlab/projects", project)


def test_a_project_is_onboarded_and_then_already_connected(tenant: Make, api: Any) -> None:
    """Further calls answer already_connected, and runs know it by its path.

    A valid id or path and a GitLab host are required; an unreadable project fails visibly.
    """
    clone_url = f"{api.service.data_dir.parent}/repositories/{{path}}.git"
    mine = tenant(hosts=[{"platform": "gitlab", "probe": "git", "clone_url": clone_url, "host": "gitlab.example"}])
    answers = [ask(mine, project_path="acme/web") for _ in range(2)]
    run = mine.post("/external/agents/scribe/runs", {"repository": "https://gitlab.example/acme/web"})
    body = {"success": True, "project_path": "acme/web", "status": "onboarded", "webhook_configured": False}
    missing, nowhere = ask(mine, project_path="acme/missing").json(), ask(tenant(), project_path="a/b")

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json() for answer in answers] == [body, body | {"status": "already_connected"}]
    assert run.status_code == 201
    assert (missing["success"], missing["status"], missing["webhook_configured"]) == (False, "failed", False)
    assert "acme/missing" in missing["error"]
    assert [ask(mine, **given).status_code for given in ({}, {"project_id": 0})] == [400, 400]
    assert (nowhere.status_code, nowhere.json()["error_code"]) == (404, "no_code_host")


def host_at(gitlab: GitLabForge, **options: str) -> dict[str, str]:
    return {"platform": "gitlab", "api_url": gitlab.url, "host": "gitlab.example"} | options


def test_another_projects_address_is_refused(tenant: Make, gitlab: GitLabForge) -> None:
    """GitLab's address is cloned and pushed to, so another host, another project or a local folder is refused."""
    api = tenant(hosts=[host_at(gitlab)])
    for address in (
        "file:///srv/beta/app.git",
        "/srv/beta/app.git",
        "https://evil.example/acme/web.git",
        "https://gitlab.example/beta/app.git",
        "https://gitlab.example/evil/acme/web.git",
        "https://user:secret@gitlab.example/acme/web.git",
        "https://gitlab.example@evil.example/acme/web.git",
        None,
    ):
        gitlab.projects[0]["http_url_to_repo"] = address
        body = ask(api, project_id=42).json()

        assert (body["success"], body["status"]) == (False, "failed"), address
        assert "--clone-url" in body["error"]


def test_projects_outside_the_connected_group_are_not_onboarded(tenant: Make, gitlab: GitLabForge) -> None:
    """By id, by path or by clone URL they are refused, and a run on one is unknown."""
    for options in ({}, {"clone_url": "/srv/{path}.git"}):
        api = tenant(hosts=[host_at(gitlab, group="beta, acme/web", **options)])
        answers = [ask(api, project_id=42).json(), ask(api, project_path="acme/web").json()]
        run = api.post("/external/agents/scribe/runs", {"repository": "acme/web"})

        assert [answer["success"] for answer in answers] == [False, False]
        assert all("outside the connected group" in answer["error"] for answer in answers)
        assert (run.status_code, run.json()["error_code"]) == (400, "unknown_repository")


def test_the_webhook_is_set_with_an_able_token(tenant: Make, equipped: Any, gitlab: GitLabForge) -> None:
    """The webhook is set once, with URL, secret and events from service.toml.

    GitLab gives the path, and a valid id outweighs it.
    """
    api = tenant(on=equipped, hosts=[host_at(gitlab, token_env="GITLAB_TOKEN_HERE")])
    answers = [ask(api, **given).json() for given in ({"project_id": 42, "project_path": "a/b"}, {"project_id": 42})]
    body = {"success": True, "project_path": "acme/web", "webhook_configured": True, "project_id": 42}
    events = {"push_events": True, "merge_requests_events": True}
    (hook,) = gitlab.hooks

    assert answers == [body | {"status": status} for status in ("onboarded", "already_connected")]
    assert hook == {"id": hook["id"], "url": HOOK, "token": "hush", "enable_ssl_verification": True} | events
