"""A GitLab on loopback, as far as its documentation goes for projects, their webhooks, and who may touch them."""

import json
import threading
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.lab import Received, Respond, Server

PROJECT = {"id": 42, "path_with_namespace": "acme/web", "http_url_to_repo": "http://gitlab.example/acme/web.git"}


class GitLabServer(Server):
    """One project, 42 at acme/web, visible to everybody; its webhooks to a Maintainer only."""

    def __init__(self) -> None:
        super().__init__()
        self.projects: list[dict[str, Any]] = [dict(PROJECT)]
        self.maintainers = {"maintainer-token"}
        self.known = {"maintainer-token", "developer-token"}
        self.hooks: list[dict[str, Any]] = []
        self.page_size = 100
        self.before_add = threading.Barrier(1)
        """Where a request that adds a webhook waits: with two parties, until another does so too."""
        self._lock = threading.Lock()
        self.otherwise = self._gitlab

    @property
    def url(self) -> str:
        return f"{self.origin}/api/v4"

    @property
    def asked(self) -> list[str]:
        """Method and path of each request, without the query."""
        return [f"{request.method} {urlsplit(request.target).path}" for request in self.requests]

    def _gitlab(self, request: Received) -> Respond:
        parts = urlsplit(request.target)
        _, key, *rest = parts.path.removeprefix("/api/v4/").split("/")
        keys = {unquote(key)}
        project = next((one for one in self.projects if keys & {str(one["id"]), one["path_with_namespace"]}), None)
        token = request.headers.get("private-token")
        if token is not None and token not in self.known:
            return Respond(401, {"message": "401 Unauthorized"})
        if project is None:
            return Respond(404, {"message": "404 Project Not Found"})
        if not rest:
            return Respond(200, project)
        if token not in self.maintainers:
            return Respond(401 if token is None else 403, {"message": "not allowed"})
        query = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
        return self._hooks(request.method, rest[1:], query, json.loads(request.body or b"{}"))

    def _hooks(self, method: str, rest: list[str], query: dict[str, int], given: dict[str, Any]) -> Respond:
        if method == "GET":
            size, page = min(self.page_size, query["per_page"]), query["page"]
            further = str(page + 1) if page * size < len(self.hooks) else ""
            shown = [_shown(one) for one in self.hooks[(page - 1) * size : page * size]]
            return Respond(200, shown, {"X-Next-Page": further})
        if method == "POST":
            self.before_add.wait(300)
            if "refused" in given["url"]:
                return Respond(422, {"error": "Invalid url given"})
            with self._lock:
                self.hooks.append({"id": len(self.asked) * 10 + len(self.hooks), **given})
                return Respond(201, _shown(self.hooks[-1]))
        with self._lock:
            found = next((one for one in self.hooks if str(one["id"]) == rest[0]), None)
            if found is None:
                return Respond(404, {"message": "404 Not found"})
            if method == "DELETE":
                self.hooks.remove(found)
                return Respond(204, b"")
            found.update(given)
            return Respond(200, _shown(found))


def _shown(hook: dict[str, Any]) -> dict[str, Any]:
    # GitLab never shows the secret.
    return {name: value for name, value in hook.items() if name != "token"}
