"""Onboarding of GitLab projects and their webhooks, against a GitLab on loopback and a real database."""

import threading
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
