"""POST /external/gitlab/projects: named in spec 4.6, its shape is our decision (docs/decisions.md)."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.service.gitlab_server import GitLabServer

HOOK: Final = "https://hooks.example/gitlab"


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
        settings=f'[gitlab]\nwebhook_url = "{HOOK}"\nwebhook_secret_env = "HOOK_SECRET_HERE"\n',
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
            "url": HOOK,
            "token": "hush",
            "enable_ssl_verification": True,
            "push_events": True,
            "merge_requests_events": True,
        }
    ]
    listed = api.service.admin("repository", "list", "--org", "acme")["repositories"]
    assert [one["webhook_configured"] for one in listed] == [True]
