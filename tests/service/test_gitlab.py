"""POST /external/gitlab/projects: named in spec 4.6, its shape is our decision (docs/decisions.md)."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


def test_a_project_is_onboarded_and_then_already_connected(start: Callable[..., Any]) -> None:
    """The first time onboarded, every further time already_connected; afterwards runs know it by its path."""
    api = start()
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


def test_without_a_gitlab_host_there_is_nothing_to_onboard_to(start: Callable[..., Any]) -> None:
    """400 that names the cure."""
    api = start(setup={"organizations": [{"name": "Bare", "tokens": [{"alias": "t"}]}]})
    answer = api.post("/external/gitlab/projects", {"project_path": "a/b"})

    assert (answer.status_code, answer.json()["error_code"]) == (400, "no_code_host")
    assert "host connect" in answer.json()["message"]


@pytest.fixture
def gitlab() -> Iterator[tuple[str, list[str]]]:
    """A GitLab API on loopback with one project, 42 at acme/web; yields its URL and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            known = self.path in {"/api/v4/projects/42", "/api/v4/projects/acme%2Fweb"}
            document = {
                "id": 42,
                "path_with_namespace": "acme/web",
                "http_url_to_repo": "http://x.example/acme/web.git",
            }
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(document if known else {"message": "404 Not Found"}).encode())

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/api/v4", asked
    server.shutdown()
    server.server_close()


def test_a_project_is_looked_up_in_the_api_and_the_id_wins(
    start: Callable[..., Any], gitlab: tuple[str, list[str]]
) -> None:
    """With an API the path comes from GitLab; a wrong path beside a right id does no harm."""
    host = {"platform": "gitlab", "api_url": gitlab[0], "host": "gitlab.example"}
    api = start(setup={"organizations": [{"name": "Acme", "tokens": [{"alias": "t"}], "hosts": [host]}]})
    unknown = api.post("/external/gitlab/projects", {"project_id": 7}).json()
    found = api.post("/external/gitlab/projects", {"project_id": 42, "project_path": "wrong/path"}).json()
    again = api.post("/external/gitlab/projects", {"project_path": "acme/web"}).json()

    assert (unknown["success"], unknown["project_id"]) == (False, 7)
    assert (found["status"], found["project_path"], found["project_id"]) == ("onboarded", "acme/web", 42)
    assert again["status"] == "already_connected"
    assert gitlab[1] == ["/api/v4/projects/7", "/api/v4/projects/42"]
