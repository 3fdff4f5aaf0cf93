"""Onboarding of GitLab projects and their webhooks: POST /external/gitlab/projects (spec 4.6; the shape is ours)."""

import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from service.clock import now_micros
from service.hosts.gitlab import OnboardingError
from service.hosts.onboarding import Onboarding, Outcome, ProjectKey
from service.settings import GitLabSettings, ProbingSettings, Settings
from service.store import organizations, repositories
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from tests.service.gitlab_server import PROJECT, GitLabServer

HOOK: Final = "https://hooks.example/gitlab"
BY_PATH: Final = ProjectKey(None, "acme/web")
BY_ID: Final = ProjectKey(42, None)


class Acme:
    """An organization in a database of its own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with self.database.write() as connection:
            self.id = organizations.create(connection, name="Acme", now=now_micros()).id

    def onboarding(
        self, gitlab: GitLabServer, *, token_env: str | None = "GITLAB_TOKEN_HERE", **hook: Any
    ) -> Onboarding:
        host = Host("gitlab", "gitlab.example", None, "api", gitlab.url, None, token_env)
        settings = Settings(
            gitlab=GitLabSettings(**{"webhook_url": HOOK, **hook}), probing=ProbingSettings(timeout_s=60)
        )
        return Onboarding(self.database, self.id, host, settings, now_micros, "token:tok_1")

    def add(self, repository: Repository) -> None:
        with self.database.write() as connection:
            repositories.put(connection, self.id, repository, now_micros())

    @property
    def repositories(self) -> list[Repository]:
        with self.database.read() as connection:
            return repositories.of(connection, self.id)


@pytest.fixture
def acme(database: Database) -> Acme:
    return Acme(database)


@pytest.mark.parametrize(
    ("token", "hook", "cure"),
    [
        ("developer-token", {}, "Maintainer"),
        ("stolen", {}, "token"),
        ("", {}, "--token-env"),
        ("maintainer-token", {"webhook_url": "https://refused.example"}, "Invalid url given"),
        ("maintainer-token", {"webhook_url": "https://refused.example"}, "gitlab.webhook_url"),
        ("maintainer-token", {"webhook_secret_env": "NO_SUCH_SECRET_HERE"}, "NO_SUCH_SECRET_HERE"),
    ],
)
def test_what_keeps_the_webhook_from_being_set_still_onboards(
    acme: Acme, gitlab: GitLabServer, monkeypatch: pytest.MonkeyPatch, token: str, hook: dict[str, str], cure: str
) -> None:
    """The project is connected, webhook_configured is false, and the reason names the cure."""
    monkeypatch.setenv("GITLAB_TOKEN_HERE", token)
    gitlab.known.add("stolen")
    gitlab.refused_urls.add("https://refused.example")
    outcome = acme.onboarding(gitlab, **hook).onboard(BY_PATH)

    assert (outcome.is_new, outcome.repository.webhook_configured) == (True, False)
    assert cure in str(outcome.webhook_failure)
    assert gitlab.hooks == []


def test_a_webhook_that_failed_is_made_up_for(
    acme: Acme, gitlab: GitLabServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Onboarding again with a better token sets it; already connected, and configured now."""
    monkeypatch.setenv("GITLAB_TOKEN_HERE", "developer-token")
    acme.onboarding(gitlab).onboard(BY_PATH)
    monkeypatch.setenv("GITLAB_TOKEN_HERE", "maintainer-token")
    outcome = acme.onboarding(gitlab).onboard(BY_PATH)

    assert (outcome.is_new, outcome.repository.webhook_configured, outcome.webhook_failure) == (False, True, None)
    assert len(gitlab.hooks) == 1


def test_a_webhook_that_was_removed_is_not_claimed(
    acme: Acme, gitlab: GitLabServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the database remembers does not count; GitLab is asked."""
    acme.onboarding(gitlab).onboard(BY_PATH)
    gitlab.hooks.clear()
    gitlab.maintainers.clear()
    outcome = acme.onboarding(gitlab).onboard(BY_PATH)

    assert outcome.repository.webhook_configured is False
    assert acme.repositories[0].webhook_configured is False


def test_a_gitlab_that_is_away_takes_nothing_back(acme: Acme, gitlab: GitLabServer) -> None:
    """Nothing new is known: already connected, the webhook as it was, and why it was not looked at."""
    acme.onboarding(gitlab).onboard(BY_PATH)
    gitlab.close()
    outcome = acme.onboarding(gitlab).onboard(BY_PATH)

    assert (outcome.is_new, outcome.repository.webhook_configured) == (False, True)
    assert "cannot be reached" in str(outcome.webhook_failure)


def test_a_webhook_is_found_on_any_page_and_kept_one(acme: Acme, gitlab: GitLabServer) -> None:
    """Among webhooks of others, and when there are two of ours already; those of others are left alone."""
    others = [{"id": number, "url": f"https://other.example/{number}"} for number in range(5)]
    gitlab.hooks = [*others, {"id": 8, "url": HOOK, "push_events": False}, {"id": 9, "url": HOOK}]
    gitlab.page_size = 2
    outcome = acme.onboarding(gitlab, webhook_events=("push_events",)).onboard(BY_PATH)

    assert outcome.repository.webhook_configured
    assert [one["id"] for one in gitlab.hooks] == [0, 1, 2, 3, 4, 8]
    assert gitlab.hooks[-1]["push_events"] is True


def test_onboardings_at_the_same_moment_leave_one_webhook(acme: Acme, gitlab: GitLabServer) -> None:
    """Both add one before either looks again; the oldest stays, and only one of the two was first."""
    gitlab.before_add = threading.Barrier(2, timeout=300)
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(acme.onboarding(gitlab).onboard(BY_PATH))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [one["url"] for one in gitlab.hooks] == [HOOK]
    assert sorted(one.is_new for one in outcomes) == [False, True]
    assert all(one.repository.webhook_configured for one in outcomes)
    assert len(acme.repositories) == 1


def test_a_configured_repository_keeps_its_name_and_address(acme: Acme, gitlab: GitLabServer) -> None:
    """It is already connected; it learns its project's id and its webhook."""
    acme.add(Repository("site", "gitlab", "Acme/Web", "/srv/web.git"))
    outcome = acme.onboarding(gitlab).onboard(BY_ID)

    assert outcome.is_new is False
    assert acme.repositories == [Repository("site", "gitlab", "Acme/Web", "/srv/web.git", 42, webhook_configured=True)]


def test_a_repository_s_own_secret_is_that_of_its_webhook(
    acme: Acme, gitlab: GitLabServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose deliveries are taken for it then."""
    monkeypatch.setenv("OWN_SECRET_HERE", "own")
    monkeypatch.setenv("COMMON_SECRET_HERE", "common")
    acme.add(Repository("site", "gitlab", "acme/web", "/srv/web.git", webhook_secret_env="OWN_SECRET_HERE"))
    acme.onboarding(gitlab, webhook_secret_env="COMMON_SECRET_HERE").onboard(BY_ID)

    assert [hook["token"] for hook in gitlab.hooks] == ["own"]


def test_a_project_that_moved_in_gitlab_moves_here(acme: Acme, gitlab: GitLabServer) -> None:
    """The id is what stays: one repository, at the new path."""
    acme.onboarding(gitlab, webhook_url=None).onboard(BY_PATH)
    gitlab.projects = [
        PROJECT | {"path_with_namespace": "acme/site", "http_url_to_repo": "http://gitlab.example/acme/site.git"}
    ]
    outcome = acme.onboarding(gitlab, webhook_url=None).onboard(ProjectKey(None, "acme/site"))

    assert outcome.is_new is False
    assert [(one.path, one.project_id) for one in acme.repositories] == [("acme/site", 42)]


def test_a_name_that_another_platform_has_is_no_obstacle(acme: Acme, gitlab: GitLabServer) -> None:
    """A GitHub repository may be configured under the very path of the project."""
    acme.add(Repository("acme/web", "github", "acme/web", "/srv/other.git"))
    outcome = acme.onboarding(gitlab, webhook_url=None).onboard(BY_PATH)

    assert (outcome.is_new, outcome.repository.name) == (True, "gitlab:acme/web")
    assert len(acme.repositories) == 2


@pytest.mark.parametrize(
    ("project", "message"),
    [
        ({"id": 42, "path_with_namespace": None}, "cannot be named"),
        ({"id": 42, "path_with_namespace": "acme/web"}, "names no address"),
        (PROJECT | {"path_with_namespace": "../../etc"}, "cannot be named"),
    ],
)
def test_an_answer_that_is_no_project_connects_nothing(
    acme: Acme, gitlab: GitLabServer, project: dict[str, Any], message: str
) -> None:
    """A project without a path or an address, or with a path that cannot be."""
    gitlab.projects = [project]
    with pytest.raises(OnboardingError, match=message):
        acme.onboarding(gitlab).onboard(BY_ID)

    assert acme.repositories == []


HOOK_URL: Final = "https://hooks.example/gitlab"


def test_a_project_is_onboarded_and_then_already_connected(tenant: Callable[..., Any], api: Any) -> None:
    """The first time onboarded, every further time already_connected; afterwards runs know it by its path."""
    clone_url = f"{api.service.data_dir.parent}/repositories/{{path}}.git"
    host = {"platform": "gitlab", "probe": "git", "clone_url": clone_url, "host": "gitlab.example"}
    api = tenant(hosts=[host])
    answers = [api.post("/external/gitlab/projects", {"project_path": "acme/web"}) for _ in range(2)]
    run = api.post("/external/agents/scribe/runs", {"repository": "https://gitlab.example/acme/web"})

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json()["status"] for answer in answers] == ["onboarded", "already_connected"]
    assert answers[0].json() == {
        "success": True,
        "project_path": "acme/web",
        "status": "onboarded",
        "webhook_configured": False,
    }
    assert run.status_code == 201


def test_a_project_that_cannot_be_read_fails_visibly(api: Any) -> None:
    """200 with success false, status failed and the reason."""
    body = api.post("/external/gitlab/projects", {"project_path": "acme/missing"}).json()

    assert (body["success"], body["status"], body["webhook_configured"]) == (False, "failed", False)
    assert "acme/missing" in body["error"]


@pytest.mark.parametrize(
    "document",
    [{}, {"project_id": None}, {"project_id": 0}, {"project_id": "5"}, {"project_path": "alone"}, {"project_path": ""}],
)
def test_a_project_needs_an_id_or_a_path(api: Any, document: dict[str, Any]) -> None:
    """Neither, or one that cannot be: 400."""
    assert api.post("/external/gitlab/projects", document).status_code == 400


def test_without_a_gitlab_host_there_is_nothing_to_onboard_to(tenant: Callable[..., Any]) -> None:
    """404 that names the cure."""
    answer = tenant().post("/external/gitlab/projects", {"project_path": "a/b"})

    assert (answer.status_code, answer.json()["error_code"]) == (404, "no_code_host")
    assert "host connect" in answer.json()["message"]


def host_at(gitlab: GitLabServer, **options: str) -> dict[str, str]:
    return {"platform": "gitlab", "api_url": gitlab.url, "host": "gitlab.example"} | options


def test_a_project_is_looked_up_in_the_api_and_the_id_wins(tenant: Callable[..., Any], gitlab: GitLabServer) -> None:
    """With an API the path comes from GitLab; a wrong path beside a right id does no harm."""
    api = tenant(hosts=[host_at(gitlab)])
    unknown = api.post("/external/gitlab/projects", {"project_id": 7}).json()
    found = api.post("/external/gitlab/projects", {"project_id": 42, "project_path": "wrong/path"}).json()
    again = api.post("/external/gitlab/projects", {"project_path": "acme/web"}).json()

    assert (unknown["success"], unknown["project_id"], unknown["project_path"]) == (False, 7, "")
    assert (found["status"], found["project_path"], found["project_id"]) == ("onboarded", "acme/web", 42)
    assert again["status"] == "already_connected"
    assert gitlab.asked == ["GET /api/v4/projects/7", "GET /api/v4/projects/42"]


@pytest.mark.parametrize(
    "address",
    [
        "file:///srv/beta/app.git",
        "/srv/beta/app.git",
        "https://evil.example/acme/web.git",
        "https://gitlab.example/beta/app.git",
        "https://gitlab.example/evil/acme/web.git",
        "git://gitlab.example/acme/web.git",
        "https://user:secret@gitlab.example/acme/web.git",
        "https://gitlab.example@evil.example/acme/web.git",
        None,
    ],
)
def test_an_address_that_is_not_the_project_s_is_refused(
    tenant: Callable[..., Any], gitlab: GitLabServer, address: str | None
) -> None:
    """What GitLab names is cloned and pushed to: another host, another project or a folder of ours is not taken."""
    gitlab.projects[0]["http_url_to_repo"] = address
    body = tenant(hosts=[host_at(gitlab)]).post("/external/gitlab/projects", {"project_id": 42}).json()

    assert (body["success"], body["status"]) == (False, "failed")
    assert "--clone-url" in body["error"]


@pytest.mark.parametrize("options", [{}, {"clone_url": "/srv/{path}.git"}])
def test_projects_outside_the_connected_group_are_not_onboarded(
    tenant: Callable[..., Any], gitlab: GitLabServer, options: dict[str, str]
) -> None:
    """By id, and by path; a run on one is unknown, too."""
    api = tenant(hosts=[host_at(gitlab, group="beta, acme/web", **options)])
    answers = [
        api.post("/external/gitlab/projects", wanted).json()
        for wanted in ({"project_id": 42}, {"project_path": "acme/web"})
    ]
    run = api.post("/external/agents/scribe/runs", {"repository": "acme/web"})

    assert [answer["success"] for answer in answers] == [False, False]
    assert all("outside the connected group" in answer["error"] for answer in answers)
    assert (run.status_code, run.json()["error_code"]) == (400, "unknown_repository")


def test_the_webhook_is_set_with_a_token_that_may(start: Callable[..., Any], gitlab: GitLabServer) -> None:
    """Once, with URL, secret and events from service.toml; asking again keeps it one."""
    host = host_at(gitlab, token_env="GITLAB_TOKEN_HERE")
    api = start(
        setup={"organizations": [{"name": "Acme", "tokens": [{"alias": "t"}], "hosts": [host]}]},
        settings=f'[gitlab]\nwebhook_url = "{HOOK_URL}"\nwebhook_secret_env = "HOOK_SECRET_HERE"\n',
        environment={"GITLAB_TOKEN_HERE": "maintainer-token", "HOOK_SECRET_HERE": "hush"},
    )
    answers = [api.post("/external/gitlab/projects", {"project_path": "acme/web"}).json() for _ in range(2)]

    assert answers[0] == {
        "success": True,
        "project_path": "acme/web",
        "status": "onboarded",
        "webhook_configured": True,
        "project_id": 42,
    }
    assert answers[1] == answers[0] | {"status": "already_connected"}
    assert [{name: value for name, value in one.items() if name != "id"} for one in gitlab.hooks] == [
        {
            "url": HOOK_URL,
            "token": "hush",
            "enable_ssl_verification": True,
            "push_events": True,
            "merge_requests_events": True,
        }
    ]
    listed = api.service.admin("repository", "list", "--org", "acme")["repositories"]
    assert [one["webhook_configured"] for one in listed] == [True]
