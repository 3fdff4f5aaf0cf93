"""A GitLab on loopback, as far as its documentation goes for projects, their webhooks, and who may touch them."""

import json
import threading
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fault_server import FaultServer, Received, Respond

PROJECT = {"id": 42, "path_with_namespace": "acme/web", "http_url_to_repo": "http://gitlab.example/acme/web.git"}


class GitLabServer:
    """One project, 42 at acme/web, visible to everybody; its webhooks to a Maintainer only."""

    def __init__(self) -> None:
        self.projects: list[dict[str, Any]] = [dict(PROJECT)]
        self.maintainers = {"maintainer-token"}
        self.known = {"maintainer-token", "developer-token"}
        self.hooks: list[dict[str, Any]] = []
        self.page_size = 100
        self.refused_urls: set[str] = set()
        self.before_add = threading.Barrier(1)
        """Where a request that adds a webhook waits: with two parties, until another does so too."""
        self.asked: list[str] = []
        """Method and path of each request, without the query."""
        self._lock = threading.Lock()
        self._server = FaultServer()
        self._server.otherwise = self._serve
        self.url = f"{self._server.origin}/api/v4"

    def close(self) -> None:
        self._server.close()

    def _serve(self, request: Received) -> Respond:
        parts = urlsplit(request.target)
        self.asked.append(f"{request.method} {parts.path}")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        token = request.headers.get("private-token")
        segments = parts.path.removeprefix("/api/v4/").split("/")
        status, document, headers = self._answer(
            request.method, segments, token, query, json.loads(request.body or b"{}")
        )
        return Respond(status, b"" if document is None else document, headers)

    def _answer(
        self, method: str, segments: list[str], token: str | None, query: dict[str, str], given: dict[str, Any]
    ) -> tuple[int, Any, dict[str, str]]:
        if token is not None and token not in self.known:
            return 401, {"message": "401 Unauthorized"}, {}
        key = unquote(segments[1])
        project = next((one for one in self.projects if key in {str(one["id"]), one["path_with_namespace"]}), None)
        if project is None:
            return 404, {"message": "404 Project Not Found"}, {}
        if len(segments) == 2:
            return 200, project, {}
        if token is None:
            return 401, {"message": "401 Unauthorized"}, {}
        if token not in self.maintainers:
            return 403, {"message": "403 Forbidden"}, {}
        return self._hooks(method, segments[3:], query, given)

    def _hooks(
        self, method: str, rest: list[str], query: dict[str, str], given: dict[str, Any]
    ) -> tuple[int, Any, dict[str, str]]:
        if method == "GET":
            return self._page(query)
        if method == "POST":
            self.before_add.wait(300)
            if given["url"] in self.refused_urls:
                return 422, {"error": "Invalid url given"}, {}
            with self._lock:
                made = {"id": len(self.asked) * 10 + len(self.hooks), **given}
                self.hooks.append(made)
            return 201, _shown(made), {}
        with self._lock:
            found = next((one for one in self.hooks if str(one["id"]) == rest[0]), None)
            if found is None:
                return 404, {"message": "404 Not found"}, {}
            if method == "DELETE":
                self.hooks.remove(found)
                return 204, None, {}
            found.update(given)
        return 200, _shown(found), {}

    def _page(self, query: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        size, page = min(self.page_size, int(query["per_page"])), int(query["page"])
        shown = self.hooks[(page - 1) * size : page * size]
        further = str(page + 1) if page * size < len(self.hooks) else ""
        return 200, [_shown(one) for one in shown], {"X-Next-Page": further}


def _shown(hook: dict[str, Any]) -> dict[str, Any]:
    # GitLab never shows the secret.
    return {name: value for name, value in hook.items() if name != "token"}
